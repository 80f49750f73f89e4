//! What a person and a program are told: a table on standard error, one JSON line a result on
//! standard output.

use std::io::{self, Write as _};

use anyhow::{Context as _, Result};
use comfy_table::{CellAlignment, Table, presets};
use serde_json::Value;

use super::{
    figures::{Figures, Ratios, of, ours, to_millis},
    machine::Machine,
    options::PeerName,
};

/// Prints a result.
///
/// # Errors
/// When nobody reads standard output any more.
pub(crate) fn line(value: &Value) -> Result<()> {
    writeln!(io::stdout(), "{value}").context("cannot write to standard output")
}

/// Tells what is being done.
pub(crate) fn say(text: &str) {
    eprintln!("bench: {text}");
}

/// Prints the raw figures of a load, each peer compared with ours, and MirrorMaker 2 with the engine that
/// is a peer too.
///
/// # Errors
/// As [`line()`].
pub(crate) fn load(of_load: &[Figures], machine: &Machine) -> Result<()> {
    eprintln!("{}", table(of_load));
    for figures in of_load {
        say(&bound(figures, machine));
    }
    let Some(ours) = ours(of_load) else {
        return Ok(());
    };
    let compare = |peer: &Figures, ours: &Figures| {
        line(&Ratios::of(peer, ours).json(peer.load, peer.peer, ours.peer))
    };
    for peer in of_load {
        if peer.peer != ours.peer {
            compare(peer, ours)?;
        }
    }
    if let Some((mm2, records)) = of(of_load, PeerName::Mm2).zip(of(of_load, PeerName::Records))
        && ours.peer != PeerName::Records
    {
        compare(mm2, records)?;
    }
    Ok(())
}

/// The figures of one load, a row each.
fn table(of_load: &[Figures]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "LOAD",
        "PEER",
        "RECORDS",
        "WALL s",
        "RECORDS/s",
        "MB/s",
        "CPU s",
        "START CPU s",
        "PEAK MiB",
        "p50 ms",
        "p99 ms",
        "p99.9 ms",
        "MAX ms",
    ]);
    for figures in of_load {
        let copy = &figures.copy;
        let mut row = vec![
            figures.load.name().to_owned(),
            figures.peer.name().to_owned(),
            copy.records.to_string(),
            format!("{:.2}", copy.wall.as_secs_f64()),
            format!("{:.0}", figures.records_per_second()),
            format!("{:.1}", figures.megabytes_per_second()),
            format!("{:.2}", copy.cpu.as_secs_f64()),
            format!("{:.2}", copy.startup_cpu.as_secs_f64()),
            format!("{}", copy.memory_peak_bytes >> 20),
        ];
        row.extend(match figures.latency {
            Some(latency) => [latency.p50, latency.p99, latency.p999, latency.max]
                .map(|time| format!("{:.1}", to_millis(time))),
            None => ["-"; 4].map(str::to_owned),
        });
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Who had the machine while a copy ran, and so what bounds its speed.
fn bound(figures: &Figures, machine: &Machine) -> String {
    let copy = &figures.copy;
    let others = copy
        .machine_cpu
        .saturating_sub(copy.brokers_cpu)
        .saturating_sub(copy.cpu);
    let busy = figures.cores(copy.machine_cpu);
    let name = figures.peer.name();
    let mut text = format!(
        "{} {name}: of {} cores {busy:.1} were busy: the brokers {:.1}, {name} {:.1}, everything else {:.1}",
        figures.load.name(),
        machine.cores,
        figures.cores(copy.brokers_cpu),
        figures.cores(copy.cpu),
        figures.cores(others),
    );
    if busy > 0.9 * machine.cores as f64 {
        text.push_str("; speed is bounded by the cores, which all share");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn figures(machine_cpu: u64) -> Figures {
        let mut figures = Figures::sample(PeerName::Mm2);
        figures.copy.machine_cpu = Duration::from_secs(machine_cpu);
        figures
    }

    #[test]
    fn a_row_tells_what_was_measured_and_what_was_not() {
        let text = table(&[figures(4)]).to_string();
        let row: Vec<&str> = text
            .lines()
            .nth(1)
            .expect("a row")
            .split_whitespace()
            .collect();
        let expected = [
            "lz4", "mm2", "10000", "2.00", "5000", "1.5", "1.00", "2.00", "64", "-", "-", "-", "-",
        ];
        assert_eq!(row, expected);
    }

    #[test]
    fn the_bound_is_named_when_the_machine_was_busy() {
        let machine = Machine {
            cores: 2,
            memory_bytes: 1 << 30,
        };
        assert_eq!(
            bound(&figures(4), &machine),
            "lz4 mm2: of 2 cores 2.0 were busy: the brokers 1.0, mm2 0.5, everything else 0.5; \
             speed is bounded by the cores, which all share"
        );
        assert!(!bound(&figures(3), &machine).contains("bounded"));
    }
}
