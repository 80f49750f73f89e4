//! Memory of compression, which the encoder of Parquet does not count.
//!
//! Each column of a row group under way has a codec of its own: two contexts of zstd, and tables from its first page on, which
//! stay until the row group ends. A thousand files of small records would hold gigabytes that nobody sees.
//!
//! # Source
//! parquet 60.1 `column/writer/mod.rs` (a codec for each column writer), `compression.rs` (its contexts). The figures are what
//! zstd 1.5.7 says of its contexts, rounded up; a test asks it again.

use super::{rows::BYTE_COLUMNS, schema};

/// Columns of a file.
const COLUMNS: usize = 12;
/// The others, of which some have pages of numbers that differ, and the rest nothing but repeats.
const NUMBER_COLUMNS: usize = 3;
const REPEATED_COLUMNS: usize = COLUMNS - BYTE_COLUMNS - NUMBER_COLUMNS;
/// Rows from which on a page is ended, whatever it holds.
pub(super) const PAGE_ROWS_MAX: usize = 20_000;

/// Highest level of zstd that can be set. Above it one column of one file takes 20 MiB and more.
pub(super) const LEVEL_MAX: i32 = 9;
/// Both contexts of a codec that has done nothing.
pub(super) const FRESH_BYTES: usize = 102 << 10;
/// Bytes of a page for which the tables are small, whatever the level.
pub(super) const SMALL_PAGE_BYTES: usize = 16 << 10;
/// Tables for such pages.
pub(super) const SMALL_BYTES: usize = 280 << 10;
/// Tables for larger pages by level, from 1 on, in KiB.
const LARGE_KIB: [usize; 9] = [570, 770, 1_280, 2_560, 3_070, 3_070, 5_630, 5_630, 10_750];

/// Tables for pages of any length.
pub(super) fn large_bytes(level: i32) -> usize {
    let index = usize::try_from(level.clamp(1, LEVEL_MAX) - 1).expect("not negative");
    LARGE_KIB[index] << 10
}

/// What has gone into the row group under way.
#[derive(Debug, Default)]
pub(super) struct Contexts {
    rows: usize,
    columns: [usize; BYTE_COLUMNS],
}

impl Contexts {
    pub(super) fn add(&mut self, rows: usize, columns: [usize; BYTE_COLUMNS]) {
        self.rows += rows;
        for (sum, bytes) in self.columns.iter_mut().zip(columns) {
            *sum += bytes;
        }
    }

    /// Bytes of memory, from above.
    pub(super) fn held(&self, level: i32) -> usize {
        if self.rows == 0 {
            return 0;
        }
        let is_paged = self.rows >= PAGE_ROWS_MAX;
        let columns = self.columns.iter().map(|bytes| {
            // A dictionary that is too large ends the page too.
            if *bytes >= schema::DICTIONARY_BYTES_MAX || (is_paged && *bytes > SMALL_PAGE_BYTES) {
                large_bytes(level)
            } else if is_paged {
                SMALL_BYTES
            } else {
                0
            }
        });
        let others = if is_paged {
            NUMBER_COLUMNS * large_bytes(level) + REPEATED_COLUMNS * SMALL_BYTES
        } else {
            0
        };
        COLUMNS * FRESH_BYTES + columns.sum::<usize>() + others
    }
}
