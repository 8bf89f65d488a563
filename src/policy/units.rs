//! Sizes and times as people type them: `64KiB`, `10ms`.
//!
//! Owns: the one way they are read and shown. Never does: bounds (each setting has its own).
//! Left: `bytesize`, `humantime`. Right: `flush`, the server's configuration, the command line.

use crate::types::Micros;

/// `1MiB`, `64KiB`, `10MB`, `4096`; `None` when it is no size or does not fit.
pub fn parse_size(text: &str) -> Option<u64> {
    let size: Result<bytesize::ByteSize, _> = text.trim().parse();
    size.ok().map(|size| size.as_u64())
}

/// `50us`, `10ms`, `2s`, `1min`; a number without a unit is no time, nor is a part of a
/// microsecond.
pub fn parse_time(text: &str) -> Option<Micros> {
    let time = humantime::parse_duration(text.trim()).ok()?;
    let is_whole = time.subsec_nanos().is_multiple_of(1000);
    is_whole.then(|| u64::try_from(time.as_micros()).ok().map(Micros)).flatten()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_parsed_back() {
        for bytes in [0, 1, 1023, 1024, 3 << 20, 5 << 30] {
            assert_eq!(parse_size(&show_size(bytes)), Some(bytes));
        }
        for micros in [0, 1, 999, 1000, 50_000, 2_000_000, 86_400_000_000] {
            assert_eq!(parse_time(&show_time(Micros(micros))), Some(Micros(micros)));
        }
    }

    #[test]
    fn nonsense_is_no_quantity() {
        for text in ["", "MiB", "-1", "1 parsec", "0x10"] {
            assert_eq!(parse_size(text), None, "{text}");
        }
        for text in ["", "10", "ms", "-1ms", "1 parsec", "1500ns"] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }
}
