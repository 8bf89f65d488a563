//! Tables for people, within 80 columns, and numbers in them.
//!
//! Owns: how tables, byte counts and rates look. Never does: know what the figures mean.
//! Left: `comfy-table`, `indicatif`. Right: `topic`, `stats`, `produce`, `explore`, `verify`.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The widest a table may be.
const COLUMNS: u16 = 80;

/// An empty table: the first column stands left, all others, which are numbers, right.
pub fn table(header: &[&str]) -> Table {
    let mut table = left_table(header);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// An empty table of words.
pub fn left_table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(COLUMNS);
    table.set_header(header.to_vec());
    table.discover_columns();
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
}

/// The table's lines without blanks at their ends.
pub fn lines(table: &Table) -> String {
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n")
}

/// A bar over this many bytes, on standard error if that is a terminal.
pub fn progress(total: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:40} {decimal_bytes} of {decimal_total_bytes}");
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// A count of bytes in the unit that fits, powers of 1000: `12.3 MB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 4] = ["kB", "MB", "GB", "TB"];
    if count < 1000 {
        return format!("{count} B");
    }
    let mut scaled = count as f64 / 1000.0;
    let mut unit = 0;
    while scaled >= 999.95 && unit + 1 < UNITS.len() {
        scaled /= 1000.0;
        unit += 1;
    }
    format!("{scaled:.1} {}", UNITS[unit])
}

/// A quotient for people: two digits behind the point where they matter.
pub fn ratio(part: u64, whole: u64) -> String {
    let quotient = part as f64 / whole as f64;
    if quotient >= 100.0 { format!("{quotient:.0}") } else { format!("{quotient:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_in_the_unit_that_fits() {
        for (count, shown) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 kB"),
            (999_949, "999.9 kB"),
            (999_950, "1.0 MB"),
            (12_345_678, "12.3 MB"),
            (u64::MAX, "18446744.1 TB"),
        ] {
            assert_eq!(bytes(count), shown);
        }
    }

    #[test]
    fn a_table_keeps_to_80_columns() {
        let mut table = table(&["name", "value"]);
        table.add_row(["x".repeat(70), "1".repeat(70)]);
        assert!(lines(&table).lines().all(|line| line.chars().count() <= 80));
    }

    #[test]
    fn quotients() {
        assert_eq!((ratio(7, 2), ratio(1000, 3)), ("3.50".to_owned(), "333".to_owned()));
    }
}
