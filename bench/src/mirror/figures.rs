//! What a contestant was measured to take, and how one compares with another.

use serde_json::{Value, json};

use super::{
    copy::Copy,
    latency::Latency,
    options::{Load, PeerName},
};

/// Everything about one contestant with one load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figures {
    /// Who.
    pub(crate) peer: PeerName,
    /// With what.
    pub(crate) load: Load,
    /// Bytes of keys and values that were copied.
    pub(crate) bytes: u64,
    /// The copy.
    pub(crate) copy: Copy,
    /// Records on the target beyond those of the source.
    pub(crate) repeats: u64,
    /// Records that were compared with the source's.
    pub(crate) compared: u64,
    /// Latency at 1,000 records/s, if it was measured.
    pub(crate) latency: Option<Latency>,
}

impl Figures {
    /// Records copied in a second.
    pub(crate) fn records_per_second(&self) -> f64 {
        quotient(self.copy.records as f64, self.copy.wall.as_secs_f64()).unwrap_or(0.0)
    }

    /// Megabytes (of 10^6) of keys and values copied in a second.
    pub(crate) fn megabytes_per_second(&self) -> f64 {
        quotient(self.bytes as f64 / 1e6, self.copy.wall.as_secs_f64()).unwrap_or(0.0)
    }

    /// Cores that took part while copying, of those in `time`.
    pub(crate) fn cores(&self, time: std::time::Duration) -> f64 {
        quotient(time.as_secs_f64(), self.copy.wall.as_secs_f64()).unwrap_or(0.0)
    }

    /// The line of raw figures.
    pub(crate) fn json(&self) -> Value {
        let copy = &self.copy;
        let millis =
            |of: fn(&Latency) -> std::time::Duration| self.latency.as_ref().map(of).map(to_millis);
        json!({
            "bench": "mirror_run",
            "load": self.load.name(),
            "peer": self.peer.name(),
            "records": copy.records,
            "bytes": self.bytes,
            "wall_seconds": rounded(copy.wall.as_secs_f64()),
            "cpu_seconds": rounded(copy.cpu.as_secs_f64()),
            "startup_seconds": rounded(copy.startup.as_secs_f64()),
            "startup_cpu_seconds": rounded(copy.startup_cpu.as_secs_f64()),
            "records_per_second": self.records_per_second().round(),
            "megabytes_per_second": rounded(self.megabytes_per_second()),
            "memory_peak_bytes": copy.memory_peak_bytes,
            "brokers_cpu_seconds": rounded(copy.brokers_cpu.as_secs_f64()),
            "machine_cpu_seconds": rounded(copy.machine_cpu.as_secs_f64()),
            "repeats": self.repeats,
            "compared_records": self.compared,
            "latency_p50_ms": millis(|latency| latency.p50),
            "latency_p99_ms": millis(|latency| latency.p99),
            "latency_p999_ms": millis(|latency| latency.p999),
            "latency_max_ms": millis(|latency| latency.max),
        })
    }
}

/// A peer compared with ours. Each ratio says how many times better ours is: above 1, ours is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Ratios {
    /// Processor time of the peer, divided by ours.
    pub(crate) cpu: Option<f64>,
    /// Peak memory of the peer, divided by ours.
    pub(crate) memory: Option<f64>,
    /// Time that the peer took for the same records, divided by ours.
    pub(crate) throughput: Option<f64>,
    /// 99th percentile of the peer's latency, divided by ours.
    pub(crate) p99: Option<f64>,
}

impl Ratios {
    /// Of a peer and ours with the same load. None where ours was too little to be measured, or
    /// something was not measured.
    pub(crate) fn of(peer: &Figures, ours: &Figures) -> Self {
        let time = |of: fn(&Copy) -> std::time::Duration| {
            quotient(of(&peer.copy).as_secs_f64(), of(&ours.copy).as_secs_f64())
        };
        let p99 = peer.latency.zip(ours.latency);
        Self {
            cpu: time(|copy| copy.cpu),
            memory: quotient(
                peer.copy.memory_peak_bytes as f64,
                ours.copy.memory_peak_bytes as f64,
            ),
            throughput: time(|copy| copy.wall),
            p99: p99
                .and_then(|(peer, ours)| quotient(peer.p99.as_secs_f64(), ours.p99.as_secs_f64())),
        }
    }

    /// The line of a comparison.
    pub(crate) fn json(&self, load: Load, peer: PeerName, ours: PeerName) -> Value {
        json!({
            "bench": "mirror",
            "load": load.name(),
            "peer": peer.name(),
            "ours": ours.name(),
            "cpu_ratio": self.cpu.map(rounded),
            "memory_ratio": self.memory.map(rounded),
            "throughput_ratio": self.throughput.map(rounded),
            "p99_ratio": self.p99.map(rounded),
        })
    }
}

/// The figures of one contestant, where it was measured.
pub(crate) fn of(of_load: &[Figures], peer: PeerName) -> Option<&Figures> {
    of_load.iter().find(|figures| figures.peer == peer)
}

/// Whom peers are compared with: the engine `batches` where it was measured, else `records`.
pub(crate) fn ours(of_load: &[Figures]) -> Option<&Figures> {
    of(of_load, PeerName::Batches).or_else(|| of(of_load, PeerName::Records))
}

#[cfg(test)]
impl Figures {
    /// 10,000 records in two seconds.
    pub(crate) fn sample(peer: PeerName) -> Self {
        use std::time::Duration;
        Self {
            peer,
            load: Load::Lz4,
            bytes: 3_000_000,
            copy: Copy {
                records: 10_000,
                wall: Duration::from_secs(2),
                cpu: Duration::from_secs(1),
                startup: Duration::from_secs(3),
                startup_cpu: Duration::from_secs(2),
                memory_peak_bytes: 64 << 20,
                brokers_cpu: Duration::from_secs(2),
                machine_cpu: Duration::from_secs(4),
            },
            repeats: 0,
            compared: 0,
            latency: None,
        }
    }
}

/// None: nothing to divide by.
pub(crate) fn quotient(above: f64, below: f64) -> Option<f64> {
    (below > 0.0).then(|| above / below)
}

/// Milliseconds with the digits that mean something.
pub(crate) fn to_millis(time: std::time::Duration) -> f64 {
    rounded(time.as_secs_f64() * 1e3)
}

/// Two digits after the point.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn figures(
        peer: PeerName,
        cpu_ms: u64,
        wall_ms: u64,
        memory: u64,
        p99: Option<u64>,
    ) -> Figures {
        let mut figures = Figures::sample(peer);
        figures.copy.cpu = Duration::from_millis(cpu_ms);
        figures.copy.wall = Duration::from_millis(wall_ms);
        figures.copy.memory_peak_bytes = memory;
        figures.latency = p99.map(|p99| Latency {
            p50: Duration::from_millis(1),
            p99: Duration::from_millis(p99),
            p999: Duration::from_millis(p99 * 2),
            max: Duration::from_millis(p99 * 3),
        });
        figures
    }

    #[test]
    fn every_ratio_is_larger_when_ours_is_better() {
        let peer = figures(PeerName::Mm2, 30_000, 20_000, 1_300, Some(300));
        let ours = figures(PeerName::Batches, 1_500, 4_000, 100, Some(20));
        let ratios = Ratios {
            cpu: Some(20.0),
            memory: Some(13.0),
            throughput: Some(5.0),
            p99: Some(15.0),
        };
        assert_eq!(Ratios::of(&peer, &ours), ratios);
    }

    #[test]
    fn what_was_not_measured_has_no_ratio() {
        let peer = figures(PeerName::Mm2, 30_000, 20_000, 1_300, Some(300));
        let ours = figures(PeerName::Records, 0, 4_000, 100, None);
        let ratios = Ratios::of(&peer, &ours);
        assert_eq!((ratios.cpu, ratios.p99), (None, None));
        let line = ratios.json(Load::Zstd, PeerName::Mm2, PeerName::Records);
        assert_eq!(
            line.to_string(),
            "{\"bench\":\"mirror\",\"load\":\"zstd\",\"peer\":\"mm2\",\"ours\":\"records\",\
             \"cpu_ratio\":null,\"memory_ratio\":13.0,\"throughput_ratio\":5.0,\"p99_ratio\":null}"
        );
    }

    #[test]
    fn peers_are_compared_with_batches_where_there_is_one() {
        let mm2 = figures(PeerName::Mm2, 1, 1, 1, None);
        let records = figures(PeerName::Records, 1, 1, 1, None);
        let batches = figures(PeerName::Batches, 1, 1, 1, None);
        let name = |all: &[Figures]| ours(all).map(|figures| figures.peer);
        assert_eq!(name(&[mm2, records, batches]), Some(PeerName::Batches));
        assert_eq!(name(&[mm2, records]), Some(PeerName::Records));
        assert_eq!(name(&[mm2]), None);
    }

    #[test]
    fn raw_figures_hold_units_in_their_names() {
        let line = figures(PeerName::Mm2, 30_000, 2_000, 1_300, Some(317)).json();
        assert_eq!(line["records_per_second"], 5_000.0);
        assert_eq!(line["megabytes_per_second"], 1.5);
        assert_eq!(line["cpu_seconds"], 30.0);
        assert_eq!(line["latency_p99_ms"], 317.0);
        let without = figures(PeerName::Mm2, 1, 1, 1, None).json();
        assert!(without["latency_p99_ms"].is_null());
    }
}
