//! The list of what is damaged on the disk in one partition: a small text file in its directory.
//!
//! Owns: the text (the container of Kafka's checkpoints, whose name no broker looks at). Never
//! does: I/O, finding damage. Left: [`super::checkpoint`]. Right: `log::recovery`, `tools`.
//!
//! ```text
//! 0                                                  version
//! 1                                                  rows
//! <base> <pos> <end pos> <first> <next> <reason>     segment, bytes, offsets (ends exclusive)
//! ```

use std::fmt::Write;

use super::checkpoint::{TextError, columns, parse_rows, rows_head};
use super::cut_name::CutReason;

pub const FILE_NAME: &str = "ringlog-damage";

/// One damaged range: bytes `pos..end_pos` of the segment at `base`, which held the offsets
/// `first..next`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DamageRow {
    pub base: i64,
    pub pos: u64,
    pub end_pos: u64,
    pub first: i64,
    pub next: i64,
    pub reason: CutReason,
}

/// Ranges are checked to be ranges, in order, within their segment and not below its base.
pub fn parse(bytes: &[u8]) -> Result<Vec<DamageRow>, TextError> {
    parse_rows(bytes, "base, position, end, first offset, next offset and reason", |line| {
        let [base, pos, end_pos, first, next, reason] = columns(line)?;
        let row = DamageRow {
            base: base.parse().ok()?,
            pos: pos.parse().ok()?,
            end_pos: end_pos.parse().ok()?,
            first: first.parse().ok()?,
            next: next.parse().ok()?,
            reason: CutReason::parse(reason)?,
        };
        let sound = row.base >= 0 && row.base <= row.first && row.first <= row.next;
        (sound && row.pos < row.end_pos).then_some(row)
    })
}

pub fn render(rows: &[DamageRow]) -> String {
    let mut text = rows_head(rows.len());
    for DamageRow { base, pos, end_pos, first, next, reason } in rows {
        let reason = reason.name();
        // A String takes all.
        let _ = writeln!(text, "{base} {pos} {end_pos} {first} {next} {reason}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_and_nonsense_is_not() {
        let row = DamageRow {
            base: 100,
            pos: 77,
            end_pos: 154,
            first: 101,
            next: 103,
            reason: CutReason::Checksum,
        };
        let text = render(&[row]);
        assert_eq!(text, "0\n1\n100 77 154 101 103 checksum\n");
        assert_eq!(parse(text.as_bytes()), Ok(vec![row]));
        assert_eq!(parse(b""), Ok(vec![]));
        for wrong in [
            "100 77 77 101 103 checksum",
            "100 77 154 99 103 checksum",
            "100 77 154 104 103 checksum",
            "100 77 154 101 103 luck",
            "100 77 154 101 103",
        ] {
            assert!(parse(format!("0\n1\n{wrong}\n").as_bytes()).is_err(), "{wrong}");
        }
        assert!(parse(b"0\n2\n100 77 154 101 103 checksum\n").is_err(), "a row is missing");
    }
}
