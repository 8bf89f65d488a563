//! Sizes and times as people write them: `64KiB`, `10ms`.
//!
//! Owns: the two value types of flags and files. Never does: bounds (Config::resolve does).
//! Left: `policy::units`. Right: `config`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer};

use crate::policy::FlushPolicy;
use crate::policy::units::{parse_size, parse_time, show_size};

/// A number of bytes: `1048576`, `64KiB`, `1GiB`, `10MB`.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        parse_size(text).map(Size).ok_or_else(|| {
            format!("{text:?} is not a size; write for example 65536, 64KiB or 1GiB")
        })
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&show_size(self.0))
    }
}

/// A length of time: `50us`, `10ms`, `2s`, `7days`.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        let time = parse_time(text).map(|time| Span(Duration::from_micros(time.0)));
        time.ok_or_else(|| format!("{text:?} is not a time; write for example 50us, 10ms or 2s"))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.0).fmt(f)
    }
}

/// Files may give a plain number or a string with its unit.
impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Raw {
            Number(u64),
            Text(String),
        }
        match Raw::deserialize(deserializer)? {
            Raw::Number(bytes) => Ok(Size(bytes)),
            Raw::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

impl<'de> Deserialize<'de> for FlushPolicy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FlushPolicy, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_take_units_and_say_what_is_wrong() {
        assert_eq!("64KiB".parse::<Size>(), Ok(Size(65536)));
        assert_eq!("1GiB".parse::<Size>(), Ok(Size(1 << 30)));
        assert_eq!("4096".parse::<Size>(), Ok(Size(4096)));
        assert!("12 parsecs".parse::<Size>().unwrap_err().contains("64KiB"));
        assert_eq!("50us".parse::<Span>(), Ok(Span(Duration::from_micros(50))));
        assert!("soon".parse::<Span>().unwrap_err().contains("10ms"));
        assert_eq!(Size(1 << 20).to_string(), "1MiB");
        assert_eq!(Size(100_000).to_string(), "100000");
    }
}
