//! Points in time as people write them: milliseconds, RFC 3339, or a name for an end of the log.
//!
//! Owns: parsing and printing them. Never does: look at a clock.
//! Left: `humantime`. Right: `consume`, `offsets`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::protocol::offsets::special;

/// What `offsets --time` may ask for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum When {
    Earliest,
    Latest,
    /// The record with the greatest timestamp.
    Max,
    /// Milliseconds since 1970.
    Time(i64),
}

impl When {
    pub fn parse(text: &str) -> Result<When, String> {
        match text {
            "earliest" => Ok(When::Earliest),
            "latest" => Ok(When::Latest),
            "max" => Ok(When::Max),
            text => time(text)
                .map(When::Time)
                .map_err(|error| format!("{error}; or one of earliest, latest, max")),
        }
    }

    /// As a list-offsets request has it.
    pub fn to_wire(self) -> i64 {
        match self {
            When::Earliest => special::EARLIEST,
            When::Latest => special::LATEST,
            When::Max => special::MAX_TIMESTAMP,
            When::Time(ms) => ms,
        }
    }
}

/// Milliseconds since 1970, from that number or from an RFC 3339 time. Parts of a millisecond
/// round up: a search for a time must not find what was before it.
pub fn time(text: &str) -> Result<i64, String> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().map_err(|_| format!("{text} milliseconds are too many"));
    }
    let wrong = "give milliseconds since 1970, or a time (UTC) like 2026-01-31T12:00:00Z";
    let midnight = text.len() == "2026-01-31".len();
    let text = if midnight { format!("{text}T00:00:00Z") } else { text.to_owned() };
    let time = humantime::parse_rfc3339_weak(&text).map_err(|_| wrong.to_owned())?;
    let since = time.duration_since(UNIX_EPOCH).map_err(|_| "times begin in 1970".to_owned())?;
    let ms = since.as_millis() + u128::from(!since.subsec_nanos().is_multiple_of(1_000_000));
    i64::try_from(ms).map_err(|_| wrong.to_owned())
}

/// A record's timestamp for people; the bare number where the calendar does not reach.
pub fn show(ms: i64) -> String {
    /// 9999-12-31T23:59:59.999Z, the last that RFC 3339 can write.
    const LAST_MS: u64 = 253_402_300_799_999;
    match u64::try_from(ms) {
        Ok(since) if since <= LAST_MS => {
            let time: SystemTime = UNIX_EPOCH + Duration::from_millis(since);
            humantime::format_rfc3339_millis(time).to_string()
        }
        _ => ms.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_in_both_notations() {
        assert_eq!(time("0"), Ok(0));
        assert_eq!(time("1700000000000"), Ok(1_700_000_000_000));
        assert_eq!(time("2023-11-14T22:13:20Z"), Ok(1_700_000_000_000));
        assert_eq!(time("2023-11-14T22:13:20.123Z"), Ok(1_700_000_000_123));
        assert_eq!(time("2023-11-14T22:13:20.1230001Z"), Ok(1_700_000_000_124));
        assert_eq!(time("2023-11-14 22:13:20"), Ok(1_700_000_000_000));
        assert_eq!(time("2023-11-14"), Ok(1_699_920_000_000));
        for wrong in [
            "",
            "-1",
            "2023-13-14",
            "99999999999999999999",
            "yesterday",
            "1.5",
            "1969-01-01T00:00:00Z",
        ] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn shown_times_parse_again() {
        for ms in [0, 1, 999, 1_700_000_000_123, 253_402_300_799_999] {
            assert_eq!(time(&show(ms)), Ok(ms));
        }
        assert_eq!(show(-1), "-1");
        assert_eq!(show(i64::MAX), i64::MAX.to_string());
    }

    #[test]
    fn names_of_ends() {
        assert_eq!(When::parse("earliest"), Ok(When::Earliest));
        assert_eq!(When::parse("latest").map(When::to_wire), Ok(special::LATEST));
        assert_eq!(When::parse("max").map(When::to_wire), Ok(special::MAX_TIMESTAMP));
        assert_eq!(When::parse("17").map(When::to_wire), Ok(17));
        assert!(When::parse("late").is_err_and(|error| error.contains("earliest, latest, max")));
    }
}
