//! The result for people: one table in 80 columns, and the notes without which it would mislead.
//!
//! Owns: rounding, layout, notes. Never does: arithmetic on results. Left: `row`. Right: `quick`.
//!
//! The passes of a row stand one below the other, never merged (M7).

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use crate::row::{Rate, Row};

pub const COLUMNS: usize = 80;
/// Widest the first column may be for the whole to fit; names are no longer.
const NAME_WIDTH: usize = 19;
const HEADER: [&str; 11] =
    ["row", "MB/s", "k/s", "p50", "p99", "p99.9", "max", "n", "ceil", "cpu/GB", "bound"];

/// Rows of one name, in pass order: one line of the table each, one cell for all.
struct Group<'a> {
    name: &'a str,
    rows: Vec<&'a Row>,
}

/// `heading` says where the rows were taken, `warnings` what weakens all of them.
pub fn render(heading: &[String], rows: &[Row], warnings: &[String]) -> String {
    let groups = group(rows);
    let mut notes = Notes::default();
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(HEADER);
    for group in &groups {
        table.add_row(cells(group, &mut notes));
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 1));
        let ends = index == 0 || index == HEADER.len() - 1;
        column.set_cell_alignment(if ends { CellAlignment::Left } else { CellAlignment::Right });
    }
    let mut out = String::new();
    for line in heading {
        push_wrapped(&mut out, line, "  ");
    }
    out.push('\n');
    for line in table.to_string().lines() {
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out.push('\n');
    for line in LEGEND {
        push_wrapped(&mut out, line, "  ");
    }
    for (mark, note) in notes.0.iter().enumerate() {
        push_wrapped(&mut out, &format!("{} {note}", mark_of(mark)), "    ");
    }
    for row in rows {
        for why in &row.invalid {
            let what = if row.bytes == 0 { "LEFT OUT" } else { "! INVALID" };
            push_wrapped(
                &mut out,
                &format!("{what} {}, pass {}: {why}", row.name, row.pass),
                "    ",
            );
        }
    }
    for warning in warnings {
        push_wrapped(&mut out, &format!("WARNING: {warning}"), "    ");
    }
    out
}

const LEGEND: [&str; 7] = [
    "A line a pass, the second pass in opposite order; drained rates (drain) below. \
     Screening: rows this short and few cannot tell small differences from noise.",
    "k/s: thousands of records a second; of raw loops and loopback, of writes. p50 to max: \
     latency in ms of n samples; a percentile is shown with 100 samples beyond it.",
    "Batches are built before the clock starts and carry no producer id: idempotent producers, the \
     default of most clients, cost the server a lookup a batch more.",
    "ceil: percent of the matching min loop (fetch: the faster of two) of the same pass.",
    "cpu/GB: CPU seconds for 10^9 bytes: serving process / machine less client less idle.",
    "!: invalid, for the reason given below; such a line enters no ratio and no spread.",
    "bound: what was full; \"window\": nothing, so requests in flight over latency.",
];

fn group(rows: &[Row]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut ordered: Vec<&Row> = rows.iter().collect();
    ordered.sort_by_key(|row| row.pass);
    for row in ordered {
        match groups.iter_mut().find(|group| group.name == row.name) {
            Some(group) => group.rows.push(row),
            None => groups.push(Group { name: &row.name, rows: vec![row] }),
        }
    }
    groups
}

/// Distinct notes in order of appearance; rows carry their letters.
#[derive(Default)]
struct Notes(Vec<String>);

impl Notes {
    fn mark(&mut self, note: &str) -> String {
        let at = self.0.iter().position(|known| known == note).unwrap_or_else(|| {
            self.0.push(note.to_string());
            self.0.len() - 1
        });
        mark_of(at)
    }
}

fn mark_of(index: usize) -> String {
    let letter = char::from(b'a' + (index % 26) as u8);
    match index / 26 {
        0 => letter.to_string(),
        turn => format!("{letter}{turn}"),
    }
}

fn cells(group: &Group<'_>, notes: &mut Notes) -> Vec<String> {
    let lines = |one: &dyn Fn(&Row) -> String| {
        group.rows.iter().map(|row| one(row)).collect::<Vec<_>>().join("\n")
    };
    let drained = group.rows.iter().filter(|row| row.drained.is_some()).count();
    vec![
        name_cell(group, notes),
        with_drained(group, "!", &|rate| significant(rate.bytes_per_s / 1e6)),
        with_drained(group, "", &|rate| significant(rate.records_per_s / 1e3)),
        lines(&|row| latency(row.latency.p50_us)),
        lines(&|row| latency(row.latency.p99_us)),
        lines(&|row| latency(row.latency.p999_us)),
        lines(&|row| latency(row.latency.max_us)),
        lines(&|row| count(row.latency.n)),
        lines(&|row| {
            row.ceiling.as_ref().map_or("-".into(), |share| match share.percent {
                percent if percent < 999.5 => format!("{percent:.0}%"),
                _ => ">10x".to_string(),
            })
        }),
        lines(&|row| match row.bytes {
            0 => "-".into(),
            _ => format!("{}/{}", cpu(row.cpu_s_per_gb.server), cpu(row.cpu_s_per_gb.machine)),
        }),
        lines(&|row| if row.bytes == 0 { "-".into() } else { row.bound.short().into() })
            + &"\ndrain".repeat(drained),
    ]
}

/// Accepted rates, those of invalid rows behind `mark`, then the drained ones below them (M2).
fn with_drained(group: &Group<'_>, mark: &str, one: &dyn Fn(&Rate) -> String) -> String {
    let accepted = group.rows.iter().map(|row| match (row.bytes, row.is_valid()) {
        (0, _) => "-".to_string(),
        (_, true) => one(&row.accepted),
        (_, false) => format!("{mark}{}", one(&row.accepted)),
    });
    let drained = group.rows.iter().filter_map(|row| row.drained.as_ref()).map(one);
    accepted.chain(drained).collect::<Vec<_>>().join("\n")
}

/// Name; below it engine, duration of the first line, spread, the letters of the notes.
fn name_cell(group: &Group<'_>, notes: &mut Notes) -> String {
    let mut marks: Vec<String> = Vec::new();
    for row in &group.rows {
        for note in &row.flags {
            let mark = notes.mark(note);
            if !marks.contains(&mark) {
                marks.push(mark);
            }
        }
    }
    let engine = group.rows[0].engine.as_str();
    let mut parts = vec![if engine == "syscall" { "sys" } else { engine }.to_string()];
    if group.rows[0].bytes > 0 {
        parts.push(format!("{:.1}s", group.rows[0].seconds));
    }
    parts.extend(spread(&group.rows).map(|percent| format!("+-{percent}%")));
    parts.extend((!marks.is_empty()).then(|| marks.join("")));
    let mut cell = group.name.to_string();
    let mut line_len = NAME_WIDTH;
    for part in parts {
        line_len += 1 + part.len();
        match line_len > NAME_WIDTH {
            true => {
                line_len = 2 + part.len();
                cell.push_str("\n  ");
            }
            false => cell.push(' '),
        }
        cell.push_str(&part);
    }
    cell
}

/// Half the range of the valid passes' rates in percent of their middle.
fn spread(rows: &[&Row]) -> Option<u64> {
    let rates: Vec<f64> = rows.iter().filter(|row| row.is_valid()).map(|row| row.rate()).collect();
    let (min, max) =
        rates.iter().fold((f64::MAX, 0.0f64), |(min, max), &rate| (min.min(rate), max.max(rate)));
    (rates.len() >= 2 && max > 0.0).then(|| (100.0 * (max - min) / (max + min)).round() as u64)
}

/// Three significant digits: more would claim what two passes cannot give.
fn significant(value: f64) -> String {
    match value {
        value if value >= 999.5 => {
            let step = 10f64.powi(value.log10().floor() as i32 - 2);
            format!("{:.0}", (value / step).round() * step)
        }
        value if value >= 99.95 => format!("{value:.0}"),
        value if value >= 9.995 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// Milliseconds in four characters: `.087`, `1.23`, `33.4`, `700`; a dash for too few samples.
fn latency(us: Option<f64>) -> String {
    match us.map(|us| us / 1e3) {
        None => "-".into(),
        Some(ms) if ms < 0.9995 => format!("{ms:.3}")[1..].to_string(),
        Some(ms) if ms < 9.995 => format!("{ms:.2}"),
        Some(ms) if ms < 99.95 => format!("{ms:.1}"),
        Some(ms) => format!("{ms:.0}"),
    }
}

/// Samples of the latencies, in three characters or so.
fn count(n: u64) -> String {
    match n {
        0 => "-".into(),
        1..1_000 => n.to_string(),
        1_000..10_000 => format!("{:.1}k", (n / 100) as f64 / 10.0),
        10_000..1_000_000 => format!("{}k", n / 1_000),
        _ => format!("{:.1}M", (n / 100_000) as f64 / 10.0),
    }
}

/// CPU seconds, in three characters: `.42`, `1.3`, `24`.
fn cpu(seconds: Option<f64>) -> String {
    match seconds {
        None => "-".into(),
        Some(seconds) if seconds < 0.995 => format!("{seconds:.2}")[1..].to_string(),
        Some(seconds) if seconds < 9.95 => format!("{seconds:.1}"),
        Some(seconds) if seconds < 999.5 => format!("{seconds:.0}"),
        Some(_) => ">1k".into(),
    }
}

/// Appends `text`, broken at blanks so that no line is longer than [`COLUMNS`].
pub fn push_wrapped(out: &mut String, text: &str, indent: &str) {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && line.len() + 1 + word.len() > COLUMNS {
            out.push_str(&line);
            out.push('\n');
            line = indent.to_string();
        } else if !line.trim().is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    out.push_str(&line);
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Latencies;
    use crate::meter::{Idle, Window};
    use crate::row::{Arm, CeilingShare, CpuPerGb, Label, Measured, Work};
    use std::time::Duration;

    fn row(name: &str, pass: u32, bytes: u64, drained: bool) -> Row {
        let wall = |seconds| Window { wall: Duration::from_secs(seconds), ..Window::default() };
        let mut latencies = Latencies::default();
        (1..=100_000u64).for_each(|us| latencies.record(Duration::from_micros(us * 7)));
        let label = Label {
            name: name.into(),
            arm: Arm::Server,
            work: Work::Served,
            pass,
            setup: String::new(),
            exposure: None,
        };
        let measured = Measured {
            bytes,
            records: bytes / 1024,
            requests: bytes / 1024,
            latencies,
            accepted: wall(2),
            drained: drained.then(|| wall(4)),
            server_cpu: Some(1.9),
            server_cpu_ticked: false,
            client_cpu: 0.4,
            engine: "syscall".into(),

            extents: None,
            flags: vec!["closed loop: latency omits waiting to send".into()],
            doubt: None,
        };
        Row::new(label, measured, &Idle::default())
    }

    #[test]
    fn the_widest_row_stays_within_eighty_columns() {
        let mut rows = Vec::new();
        for pass in 1..=2 {
            let mut wide = row("fetch cold sendfile", pass, 123_456_789_000, true);
            wide.ceiling = Some(CeilingShare { name: "x".into(), percent: 1234.0 });
            wide.cpu_s_per_gb = CpuPerGb { server: Some(123.4), machine: Some(1234.5) };
            for index in 0..30 {
                wide.flag(format!("a note of some length that has to be wrapped, number {index}"));
            }
            wide.flags.truncate(17);
            wide.invalid.push("of no use".into());
            rows.push(wide);
        }
        let text = render(&[], &rows, &["w ".repeat(100)]);
        let longest = text.lines().map(str::len).max().unwrap();
        assert!(longest <= COLUMNS, "{longest} columns:\n{text}");
    }

    #[test]
    fn passes_stand_apart_with_their_spread_and_drained_rates_below() {
        let rows =
            [row("produce os", 1, 2_000_000_000, true), row("produce os", 2, 2_200_000_000, true)];
        let text = render(&[], &rows, &[]);
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert!(lines[1].starts_with("produce os") && lines[1].contains(" 1000 "), "{text}");
        assert!(lines[2].contains("sys 2.0s +-5%") && lines[2].contains(" 1100 "), "{text}");
        assert!(lines[3].contains("drain") && lines[3].contains(" 500 "), "{text}");
        assert!(lines[4].contains(" 550 "), "{text}");
    }

    #[test]
    fn an_invalid_row_is_shown_with_its_reason_and_outside_the_spread() {
        let mut bad = row("x", 2, 4_000_000_000, false);
        bad.invalid.push("steal 5.0 %".into());
        let text = render(&[], &[row("x", 1, 2_000_000_000, false), bad], &[]);
        assert!(text.contains("! INVALID x, pass 2: steal 5.0 %"), "{text}");
        assert!(!text.contains("+-"), "{text}");
        assert!(text.contains(" 1000 ") && text.contains(" !2000 "), "{text}");
    }

    #[test]
    fn rounding_claims_three_digits_at_most() {
        let all = [1234567.0, 2410.4, 437.6, 99.96, 38.44, 9.996, 7.684, 0.0];
        let want = ["1230000", "2410", "438", "100", "38.4", "10.0", "7.68", "0.00"];
        for (value, want) in all.into_iter().zip(want) {
            assert_eq!(significant(value), want);
        }
        let all = [0.4, 87.4, 999.6, 1234.0, 33_400.0, 99_960.0, 1_500_000.0];
        let want = [".000", ".087", "1.00", "1.23", "33.4", "100", "1500"];
        for (us, want) in all.into_iter().zip(want) {
            assert_eq!(latency(Some(us)), want);
        }
        assert_eq!(latency(None), "-");
        let all = [0, 999, 1_000, 9_999, 10_000, 999_999, 1_000_000, 12_345_678];
        let want = ["-", "999", "1.0k", "9.9k", "10k", "999k", "1.0M", "12.3M"];
        for (n, want) in all.into_iter().zip(want) {
            assert_eq!(count(n), want);
        }
        let all = [0.004, 0.424, 0.996, 1.26, 9.96, 1200.0];
        let want = [".00", ".42", "1.0", "1.3", "10", ">1k"];
        for (seconds, want) in all.into_iter().zip(want) {
            assert_eq!(cpu(Some(seconds)), want);
        }
    }
}
