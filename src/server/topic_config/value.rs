//! Values of topic settings: read from what people write, shown as Kafka shows them.
//!
//! Owns: the kinds of value and their bounds. Never does: know a setting. Left: `policy::units`.
//! Right: `table` (which kind each setting has), `layers`.

use std::fmt;

use crate::policy::FlushPolicy;
use crate::policy::units::{parse_size, parse_time};

/// What a whole number counts, beyond which it is only a number.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Unit {
    None,
    Bytes,
    Millis,
}

/// How a setting's value is written.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Kind {
    Int {
        low: i64,
        high: i64,
        unit: Unit,
    },
    /// 1 to 9, or -1 for the codec's own choice.
    GzipLevel,
    /// From 0 to 1.
    Ratio,
    Flag,
    OneOf(&'static [&'static str]),
    /// At least one of these, each once.
    List(&'static [&'static str]),
    /// `partition:broker,..`, `*`, or nothing.
    Replicas,
    Policy,
}

/// A value that is one of its kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Int(i64),
    Ratio(f64),
    Flag(bool),
    Text(String),
    Policy(FlushPolicy),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Int(number) => number.fmt(f),
            // 1.0 rather than 1, as Kafka prints a double.
            Value::Ratio(ratio) => write!(f, "{ratio:?}"),
            Value::Flag(flag) => flag.fmt(f),
            Value::Text(text) => f.write_str(text),
            Value::Policy(policy) => policy.fmt(f),
        }
    }
}

impl Kind {
    /// # Errors
    /// What is wrong with the text, and what would do.
    pub fn parse(self, text: &str) -> Result<Value, String> {
        let text = text.trim();
        match self {
            Kind::Int { low, high, unit } => int(text, unit, low, high).map(Value::Int),
            Kind::GzipLevel => match int(text, Unit::None, -1, 9)? {
                0 => Err("0 is no level: 1 to 9, or -1 for the usual one".to_string()),
                level => Ok(Value::Int(level)),
            },
            Kind::Ratio => match text.parse::<f64>() {
                Ok(ratio) if (0.0..=1.0).contains(&ratio) => Ok(Value::Ratio(ratio)),
                Ok(ratio) => Err(format!("{ratio} is outside 0 to 1")),
                Err(_) => Err(format!("{text:?} is not a number from 0 to 1")),
            },
            Kind::Flag => match text.to_ascii_lowercase().as_str() {
                "true" => Ok(Value::Flag(true)),
                "false" => Ok(Value::Flag(false)),
                _ => Err(format!("{text:?} is neither true nor false")),
            },
            Kind::OneOf(names) => match names.contains(&text) {
                true => Ok(Value::Text(text.to_string())),
                false => Err(format!("{text:?} is none of {}", names.join(", "))),
            },
            Kind::List(names) => list(text, names).map(Value::Text),
            Kind::Replicas => replicas(text).map(Value::Text),
            Kind::Policy => text.parse().map(Value::Policy).map_err(|e| format!("{e}")),
        }
    }
}

/// Plain numbers are Kafka's: bytes, or milliseconds. A unit is read where the number has one.
fn int(text: &str, unit: Unit, low: i64, high: i64) -> Result<i64, String> {
    let with_unit = || match unit {
        Unit::None => None,
        Unit::Bytes => parse_size(text).and_then(|bytes| i64::try_from(bytes).ok()),
        Unit::Millis => parse_time(text)
            .filter(|time| time.0.is_multiple_of(1000))
            .and_then(|time| i64::try_from(time.0 / 1000).ok()),
    };
    let value = text.parse::<i64>().ok().or_else(with_unit).ok_or_else(|| match unit {
        Unit::None => format!("{text:?} is not a whole number"),
        Unit::Bytes => format!("{text:?} is not a size: a whole number of bytes, or 64KiB, 1GiB"),
        Unit::Millis => {
            format!("{text:?} is not a time: a whole number of milliseconds, or 10s, 7days")
        }
    })?;
    match (low..=high).contains(&value) {
        true => Ok(value),
        false => Err(format!("{value} is outside {low} to {high}")),
    }
}

fn list(text: &str, names: &[&str]) -> Result<String, String> {
    let mut chosen: Vec<&str> = Vec::new();
    for part in text.split(',').map(str::trim) {
        if !names.contains(&part) {
            return Err(format!("{part:?} is none of {}", names.join(", ")));
        }
        if !chosen.contains(&part) {
            chosen.push(part);
        }
    }
    Ok(chosen.join(","))
}

fn replicas(text: &str) -> Result<String, String> {
    let is_pair = |pair: &str| {
        pair.trim().split_once(':').is_some_and(|(partition, broker)| {
            partition.parse::<u32>().is_ok() && broker.parse::<u32>().is_ok()
        })
    };
    match text {
        "" | "*" => Ok(text.to_string()),
        list if list.split(',').all(is_pair) => Ok(list.replace(' ', "")),
        _ => Err(format!("{text:?} is neither * nor a list of partition:broker")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Kind = Kind::Int { low: 0, high: i32::MAX as i64, unit: Unit::Bytes };
    const TIME: Kind = Kind::Int { low: -1, high: i64::MAX, unit: Unit::Millis };

    #[test]
    fn plain_numbers_are_kafkas_and_units_are_read() {
        for (kind, text, shown) in [
            (SIZE, "4096", "4096"),
            (SIZE, "64KiB", "65536"),
            (TIME, "-1", "-1"),
            (TIME, "9223372036854775807", "9223372036854775807"),
            (TIME, "7days", "604800000"),
            (TIME, "1500", "1500"),
            (Kind::Ratio, "1", "1.0"),
            (Kind::Flag, "TRUE", "true"),
            (Kind::GzipLevel, "-1", "-1"),
            (Kind::List(&["compact", "delete"]), "compact, delete,compact", "compact,delete"),
            (Kind::Replicas, "0:1, 1:1", "0:1,1:1"),
            (Kind::Replicas, "*", "*"),
            (Kind::Policy, "bytes:1048576", "bytes:1MiB"),
        ] {
            let value = kind.parse(text).unwrap_or_else(|why| panic!("{text}: {why}"));
            assert_eq!(value.to_string(), shown);
            assert_eq!(kind.parse(shown).as_ref(), Ok(&value), "what is shown is read back");
        }
    }

    #[test]
    fn what_is_no_value_is_told_with_what_would_do() {
        for (kind, text, hint) in [
            (SIZE, "4GiB", "0 to 2147483647"),
            (SIZE, "much", "64KiB"),
            (TIME, "-2", "-1 to"),
            (TIME, "500us", "milliseconds"),
            (TIME, "soon", "7days"),
            (Kind::Ratio, "1.5", "0 to 1"),
            (Kind::Ratio, "NaN", "0 to 1"),
            (Kind::Flag, "yes", "true"),
            (Kind::GzipLevel, "0", "-1"),
            (Kind::GzipLevel, "10", "-1 to 9"),
            (Kind::List(&["compact", "delete"]), "", "compact, delete"),
            (Kind::List(&["compact", "delete"]), "compact,keep", "keep"),
            (Kind::Replicas, "1", "partition:broker"),
            (Kind::OneOf(&["a", "b"]), "A", "a, b"),
            (Kind::Policy, "never", "group"),
        ] {
            let why = kind.parse(text).expect_err(text);
            assert!(why.contains(hint), "{text}: {why}");
        }
    }
}
