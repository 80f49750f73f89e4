//! What commands print: tables for people, JSON and YAML for programs.
//!
//! - [`table`]: rows under headings.
//! - [`units`]: numbers, bytes and times as people read them.
//! - [`clusters`], [`links`], [`subscriptions`], [`tasks`], [`workers`], [`status`]: one thing each,
//!   with the fields of its JSON form, which are part of the interface.
//! - [`verification`]: what `verify` found.
//! - [`changes`]: the difference that `apply` makes.

pub(crate) mod changes;
pub(crate) mod clusters;
pub(crate) mod links;
pub(crate) mod status;
pub(crate) mod subscriptions;
pub(crate) mod table;
pub(crate) mod tasks;
pub(crate) mod units;
pub(crate) mod verification;
pub(crate) mod workers;

#[cfg(test)]
mod tests;

use serde::Serialize;

use crate::args::Format;

/// Something that `get` lists.
pub(crate) trait Listed: Serialize {
    /// What several are called, for an empty list.
    const PLURAL: &'static str;
    /// Headings of the table; those of the wide one begin with them.
    const HEADINGS: &'static [&'static str];
    /// More headings of the wide table.
    const WIDE: &'static [&'static str];

    /// The cells under [`HEADINGS`](Self::HEADINGS).
    fn cells(&self) -> Vec<String>;
    /// The cells under [`WIDE`](Self::WIDE).
    fn wide_cells(&self) -> Vec<String>;
}

/// A list in the form asked for, without a last line end.
pub(crate) fn list<T: Listed>(items: &[T], format: Format) -> anyhow::Result<String> {
    let wide = match format {
        Format::Json | Format::Yaml => return data(&items, format),
        Format::Table => false,
        Format::Wide => true,
    };
    if items.is_empty() {
        return Ok(format!("no {}", T::PLURAL));
    }
    let mut headings = T::HEADINGS.to_vec();
    if wide {
        headings.extend(T::WIDE);
    }
    let rows = items.iter().map(|item| {
        let mut cells = item.cells();
        if wide {
            cells.extend(item.wide_cells());
        }
        cells
    });
    Ok(table::table(&headings, rows))
}

/// Any value as JSON or YAML.
pub(crate) fn data<T: Serialize>(value: &T, format: Format) -> anyhow::Result<String> {
    Ok(match format {
        Format::Yaml => serde_saphyr::to_string(value)?.trim_end().to_owned(),
        Format::Json | Format::Table | Format::Wide => serde_json::to_string_pretty(value)?,
    })
}
