//! Sizes and times as people type them: `64KiB`, `10ms`.
//!
//! Owns: the text. Never does: bounds (each setting has its own).
//! Left: `types`. Right: `flush`, the server's configuration.

use crate::types::Micros;

const SIZE_UNITS: [(&str, u64); 7] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("B", 1),
];
const TIME_UNITS: [(&str, u64); 4] =
    [("us", 1), ("ms", 1_000), ("s", 1_000_000), ("min", 60_000_000)];

/// `1MiB`, `64KiB`, `10MB`, `4096`; `None` when it is no size or does not fit.
pub fn parse_size(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    if unit.is_empty() {
        return Some(number);
    }
    scale(number, unit, &SIZE_UNITS)
}

/// `50us`, `10ms`, `2s`, `1min`; a number without a unit is no time.
pub fn parse_time(text: &str) -> Option<Micros> {
    let (number, unit) = split(text)?;
    scale(number, unit, &TIME_UNITS).map(Micros)
}

/// The shortest exact form.
pub fn show_size(bytes: u64) -> String {
    for (unit, factor) in [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if bytes != 0 && bytes.is_multiple_of(factor) {
            return format!("{}{unit}", bytes / factor);
        }
    }
    bytes.to_string()
}

/// The shortest exact form.
pub fn show_time(time: Micros) -> String {
    for (unit, factor) in [("s", 1_000_000), ("ms", 1_000)] {
        if time.0 != 0 && time.0.is_multiple_of(factor) {
            return format!("{}{unit}", time.0 / factor);
        }
    }
    format!("{}us", time.0)
}

fn split(text: &str) -> Option<(u64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    Some((number.parse().ok()?, unit))
}

fn scale(number: u64, unit: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(*factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_parsed_back() {
        for bytes in [0, 1, 1023, 1024, 3 << 20, 5 << 30, u64::MAX] {
            assert_eq!(parse_size(&show_size(bytes)), Some(bytes));
        }
        for micros in [0, 1, 999, 1000, 50_000, 2_000_000, u64::MAX] {
            assert_eq!(parse_time(&show_time(Micros(micros))), Some(Micros(micros)));
        }
    }

    #[test]
    fn nonsense_is_no_quantity() {
        for text in
            ["", "MiB", "-1", "1 MiB", "1mib", "99999999999999999999", "18446744073709551615KiB"]
        {
            assert_eq!(parse_size(text), None, "{text}");
        }
        for text in ["", "10", "10MS", "ms", "1h"] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }
}
