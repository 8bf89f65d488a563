//! The settings a topic may have: all that Kafka's log layer knows, and ours.
//!
//! Owns: names, kinds, bounds and defaults, those of released Kafka 4.x; which settings have no
//! effect here, and why; names of former versions and of the broker. Never does: resolve a topic's.
//! Left: `value`. Right: `layers`.

use super::value::{Kind, Unit};

/// What a setting does in this server.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Here,
    /// Kept and described; a value other than the default is told to have none, for this reason.
    None(&'static str),
}

#[derive(Debug)]
pub struct Setting {
    pub name: &'static str,
    pub kind: Kind,
    pub default: &'static str,
    pub effect: Effect,
}

const REPLICAS: Effect = Effect::None("a partition has one replica here");
const TIERED: Effect = Effect::None("there is no remote storage here");
const COMPACTION: Effect = Effect::None("compaction does not run yet");
const PREALLOCATE: Effect = Effect::None("files grow as they are written here");
const CONVERSION: Effect = Effect::None("batches are never converted to old formats");

const NEVER: &str = "9223372036854775807";
const I32_MAX: i64 = i32::MAX as i64;

const fn number(name: &'static str, low: i64, high: i64, default: &'static str) -> Setting {
    let kind = Kind::Int { low, high, unit: Unit::None };
    Setting { name, kind, default, effect: Effect::Here }
}

/// A number of bytes.
const fn size(name: &'static str, low: i64, high: i64, default: &'static str) -> Setting {
    let kind = Kind::Int { low, high, unit: Unit::Bytes };
    Setting { name, kind, default, effect: Effect::Here }
}

/// A number of milliseconds.
const fn time(name: &'static str, low: i64, default: &'static str) -> Setting {
    let kind = Kind::Int { low, high: i64::MAX, unit: Unit::Millis };
    Setting { name, kind, default, effect: Effect::Here }
}

const fn of(name: &'static str, kind: Kind, default: &'static str) -> Setting {
    Setting { name, kind, default, effect: Effect::Here }
}

const fn flag(name: &'static str, default: &'static str) -> Setting {
    of(name, Kind::Flag, default)
}

impl Setting {
    const fn but(self, effect: Effect) -> Setting {
        Setting { effect, ..self }
    }
}

const CODECS: Kind = Kind::OneOf(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]);
const CLOCKS: Kind = Kind::OneOf(&["CreateTime", "LogAppendTime"]);

/// In the order of their names.
pub const SETTINGS: &[Setting] = &[
    of("cleanup.policy", Kind::List(&["compact", "delete"]), "delete"),
    of("compression.gzip.level", Kind::GzipLevel, "-1"),
    number("compression.lz4.level", 1, 17, "9"),
    of("compression.type", CODECS, "producer"),
    number("compression.zstd.level", -131_072, 22, "3"),
    time("delete.retention.ms", 0, "86400000").but(COMPACTION),
    time("file.delete.delay.ms", 0, "60000"),
    number("flush.messages", 1, i64::MAX, NEVER),
    time("flush.ms", 0, NEVER),
    of("flush.policy", Kind::Policy, "group"),
    of("follower.replication.throttled.replicas", Kind::Replicas, "").but(REPLICAS),
    size("index.interval.bytes", 0, I32_MAX, "4096"),
    of("leader.replication.throttled.replicas", Kind::Replicas, "").but(REPLICAS),
    size("local.retention.bytes", -2, i64::MAX, "-2").but(TIERED),
    time("local.retention.ms", -2, "-2").but(TIERED),
    time("max.compaction.lag.ms", 1, NEVER),
    size("max.message.bytes", 0, I32_MAX, "1048588"),
    flag("message.downconversion.enable", "true").but(CONVERSION),
    time("message.timestamp.after.max.ms", 0, "3600000"),
    time("message.timestamp.before.max.ms", 0, NEVER),
    of("message.timestamp.type", CLOCKS, "CreateTime"),
    of("min.cleanable.dirty.ratio", Kind::Ratio, "0.5").but(COMPACTION),
    time("min.compaction.lag.ms", 0, "0").but(COMPACTION),
    number("min.insync.replicas", 1, I32_MAX, "1").but(REPLICAS),
    flag("preallocate", "false").but(PREALLOCATE),
    flag("remote.log.copy.disable", "false").but(TIERED),
    flag("remote.log.delete.on.disable", "false").but(TIERED),
    flag("remote.storage.enable", "false").but(TIERED),
    size("retention.bytes", i64::MIN, i64::MAX, "-1"),
    time("retention.ms", -1, "604800000"),
    // Kafka's released minimum is 1 MiB; smaller ones are for tests and are read by brokers.
    size("segment.bytes", 1024, I32_MAX, "1073741824"),
    size("segment.index.bytes", 4, I32_MAX, "10485760"),
    time("segment.jitter.ms", 0, "0"),
    time("segment.ms", 1, "604800000"),
    flag("unclean.leader.election.enable", "false").but(REPLICAS),
];

/// What Kafka had until 3.x, and what does its work now.
const REMOVED: &[(&str, &str)] = &[
    ("log.message.format.version", FORMAT),
    ("log.message.timestamp.difference.max.ms", DIFFERENCE),
    ("message.format.version", FORMAT),
    ("message.timestamp.difference.max.ms", DIFFERENCE),
];

const FORMAT: &str = "batches are always stored in the current format";
const DIFFERENCE: &str = "set message.timestamp.before.max.ms and message.timestamp.after.max.ms";

/// The broker's names of defaults, and the topic's.
const SYNONYMS: &[(&str, &str)] = &[
    ("log.cleaner.delete.retention.ms", "delete.retention.ms"),
    ("log.cleaner.max.compaction.lag.ms", "max.compaction.lag.ms"),
    ("log.cleaner.min.cleanable.ratio", "min.cleanable.dirty.ratio"),
    ("log.cleaner.min.compaction.lag.ms", "min.compaction.lag.ms"),
    ("log.cleanup.policy", "cleanup.policy"),
    ("log.flush.interval.messages", "flush.messages"),
    ("log.flush.interval.ms", "flush.ms"),
    ("log.flush.scheduler.interval.ms", "flush.ms"),
    ("log.index.interval.bytes", "index.interval.bytes"),
    ("log.index.size.max.bytes", "segment.index.bytes"),
    ("log.local.retention.bytes", "local.retention.bytes"),
    ("log.local.retention.ms", "local.retention.ms"),
    ("log.message.timestamp.after.max.ms", "message.timestamp.after.max.ms"),
    ("log.message.timestamp.before.max.ms", "message.timestamp.before.max.ms"),
    ("log.message.timestamp.type", "message.timestamp.type"),
    ("log.preallocate", "preallocate"),
    ("log.retention.bytes", "retention.bytes"),
    ("log.retention.hours", "retention.ms"),
    ("log.retention.minutes", "retention.ms"),
    ("log.retention.ms", "retention.ms"),
    ("log.roll.hours", "segment.ms"),
    ("log.roll.jitter.hours", "segment.jitter.ms"),
    ("log.roll.jitter.ms", "segment.jitter.ms"),
    ("log.roll.ms", "segment.ms"),
    ("log.segment.bytes", "segment.bytes"),
    ("log.segment.delete.delay.ms", "file.delete.delay.ms"),
    ("message.max.bytes", "max.message.bytes"),
];

/// # Errors
/// Which setting was probably meant, or why there is none any more.
pub fn find(name: &str) -> Result<&'static Setting, String> {
    if let Some(setting) = SETTINGS.iter().find(|setting| setting.name == name) {
        return Ok(setting);
    }
    let known = |list: &[(&str, &'static str)]| {
        list.iter().find(|(known, _)| *known == name).map(|(_, other)| *other)
    };
    if let Some(instead) = known(REMOVED) {
        return Err(format!("{name:?} was removed in Kafka 4.0: {instead}"));
    }
    if let Some(topics) = known(SYNONYMS) {
        return Err(format!("{name:?} is the broker's name; the topic's is {topics:?}"));
    }
    let nearest = SETTINGS
        .iter()
        .map(|setting| (strsim::jaro_winkler(name, setting.name), setting.name))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map_or("", |(_, name)| name);
    Err(format!("{name:?} is no setting of a topic; the nearest is {nearest:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_and_defaults_are_values() {
        for pair in SETTINGS.windows(2) {
            assert!(pair[0].name < pair[1].name, "{}", pair[1].name);
        }
        for setting in SETTINGS {
            let default = setting.kind.parse(setting.default);
            let shown = default.map(|value| value.to_string());
            assert_eq!(shown.as_deref(), Ok(setting.default), "{}", setting.name);
        }
        for (_, topics) in SYNONYMS {
            assert!(find(topics).is_ok(), "{topics}");
        }
    }

    #[test]
    fn a_name_that_is_none_is_told_what_it_should_be() {
        for (name, hint) in [
            ("segment.byte", "\"segment.bytes\""),
            ("retention", "\"retention.ms\""),
            ("log.roll.hours", "\"segment.ms\""),
            ("message.max.bytes", "\"max.message.bytes\""),
            ("message.format.version", "removed in Kafka 4.0"),
            ("message.timestamp.difference.max.ms", "message.timestamp.before.max.ms"),
        ] {
            let why = find(name).expect_err(name);
            assert!(why.contains(hint), "{why}");
        }
    }
}
