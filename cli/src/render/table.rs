//! Rows under headings, without lines: easy to read and easy to cut.

use comfy_table::{Table, presets};

/// The table as text, without a last line end. Nothing is cut or wrapped, whatever the terminal's
/// width, so that output can be searched.
pub(crate) fn table(headings: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.force_no_tty();
    table.set_header(headings.to_vec());
    for row in rows {
        // A line break would break the row in two.
        let cells = row.into_iter().map(|cell| match cell.is_empty() {
            true => "-".to_owned(),
            false => cell.replace('\n', "; "),
        });
        table.add_row(cells.collect::<Vec<_>>());
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let lines = table.lines().map(|line| line.trim_end().to_owned());
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_rows_stay_on_one_line() {
        let rows = [
            vec!["a".to_owned(), String::new(), "first\nsecond".to_owned()],
            vec!["long-name".to_owned(), "5".to_owned(), "x".to_owned()],
        ];
        let shown = table(&["NAME", "LAG", "CAUSE"], rows.into_iter());
        assert_eq!(
            shown,
            "NAME       LAG  CAUSE\n\
             a          -    first; second\n\
             long-name  5    x"
        );
    }
}
