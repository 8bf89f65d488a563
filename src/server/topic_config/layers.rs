//! Which value of each setting holds: the topic's own, else the server's, else the default.
//!
//! Owns: the layers, and what they make of a partition's settings. Never does: judge values that
//! contradict each other (`checks`), or speak of effects (`notices`). Left: `table`, `value`.
//! Right: `config`, `control`.

use std::collections::BTreeMap;

use super::checks;
use super::notices;
use super::table::{SETTINGS, find};
use super::value::Value;
use crate::format::batch::Codec;
use crate::format::reencode::Target;
use crate::log::LogConfig;
use crate::policy::FlushPolicy;
use crate::protocol::topics::ConfigSource;
use crate::shard::mailbox::Settings;

/// What one layer sets, by name.
pub(super) type Given = BTreeMap<&'static str, Value>;

/// Every setting with the value that holds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Values(BTreeMap<&'static str, (Value, ConfigSource)>);

impl Values {
    pub fn get(&self, name: &str) -> &Value {
        &self.0[name].0
    }

    pub fn source(&self, name: &str) -> ConfigSource {
        self.0[name].1
    }

    pub fn int(&self, name: &str) -> i64 {
        match self.get(name) {
            Value::Int(number) => *number,
            other => unreachable!("{name} is no number but {other}"),
        }
    }

    pub fn is_on(&self, name: &str) -> bool {
        *self.get(name) == Value::Flag(true)
    }

    pub fn text(&self, name: &str) -> &str {
        match self.get(name) {
            Value::Text(text) => text,
            other => unreachable!("{name} is no text but {other}"),
        }
    }

    /// Whether `cleanup.policy` has this in its list.
    pub fn cleans_by(&self, name: &str) -> bool {
        self.text("cleanup.policy").split(',').any(|one| one == name)
    }

    fn flush(&self) -> FlushPolicy {
        match self.get("flush.policy") {
            Value::Policy(policy) => *policy,
            other => unreachable!("flush.policy is no policy but {other}"),
        }
    }

    fn compression(&self) -> Option<Target> {
        let name = self.text("compression.type");
        let level = |name| i32::try_from(self.int(name)).ok();
        let (codec, level) = match name {
            "producer" => return None,
            "uncompressed" => (Codec::None, None),
            "gzip" => (Codec::Gzip, level("compression.gzip.level").filter(|level| *level > 0)),
            "zstd" => (Codec::Zstd, level("compression.zstd.level")),
            // Snappy has no levels, lz4 has one here.
            other => (Codec::from_name(other).expect("a name of the table"), None),
        };
        Some(Target { codec, level })
    }

    /// What of the values a shard acts on; the rest is as in `base`.
    fn settings(&self, base: &LogConfig) -> Settings {
        let log = LogConfig {
            segment_bytes: self.int("segment.bytes") as u64,
            segment_index_bytes: self.int("segment.index.bytes") as usize,
            index_interval_bytes: self.int("index.interval.bytes") as u32,
            segment_ms: self.int("segment.ms"),
            segment_jitter_ms: self.int("segment.jitter.ms"),
            max_message_bytes: self.int("max.message.bytes") as usize,
            flush: self.flush(),
            compacted: self.cleans_by("compact"),
            deletes: self.cleans_by("delete"),
            retention_ms: self.int("retention.ms"),
            retention_bytes: self.int("retention.bytes"),
            file_delete_delay_ms: self.int("file.delete.delay.ms"),
            max_compaction_lag_ms: self.int("max.compaction.lag.ms"),
            ..base.clone()
        };
        Settings {
            log,
            timestamp_before_max_ms: self.int("message.timestamp.before.max.ms"),
            timestamp_after_max_ms: self.int("message.timestamp.after.max.ms"),
            log_append_time: self.text("message.timestamp.type") == "LogAppendTime",
            compression: self.compression(),
        }
    }
}

/// Names that together say one thing: the flush policy.
const FLUSH: [&str; 3] = ["flush.messages", "flush.ms", "flush.policy"];

/// The value of each setting of the stronger layer, else of the weaker, else its default.
fn lay(server: &Given, topic: &Given) -> Values {
    let topics_flush = checks::flush_of(topic);
    let own_flush = topics_flush.is_some();
    let mut values = BTreeMap::new();
    for setting in SETTINGS {
        let name = setting.name;
        let own = topic.get(name).map(|value| (value.clone(), ConfigSource::Topic));
        // A topic that says when to flush says all of it: what the server says no longer holds.
        let covered = own_flush && FLUSH.contains(&name);
        let servers = server.get(name).filter(|_| !covered);
        let value = own
            .or_else(|| servers.map(|value| (value.clone(), ConfigSource::Server)))
            .unwrap_or_else(|| {
                let default = setting.kind.parse(setting.default);
                (default.expect("a default is a value"), ConfigSource::Default)
            });
        values.insert(name, value);
    }
    let flush = topics_flush.map(|policy| (policy, ConfigSource::Topic));
    let servers = || checks::flush_of(server).map(|policy| (policy, ConfigSource::Server));
    if let Some((policy, source)) = flush.or_else(servers) {
        values.insert("flush.policy", (Value::Policy(policy), source));
    }
    Values(values)
}

/// A setting as it is described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub name: &'static str,
    pub value: String,
    pub source: ConfigSource,
    pub default: &'static str,
}

/// A topic's settings in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    pub settings: Settings,
    pub rows: Vec<Row>,
    /// What its owner should know: values without effect, values that do not hold.
    pub notices: Vec<String>,
}

impl Resolved {
    fn new(values: &Values, base: &LogConfig, notices: Vec<String>) -> Resolved {
        let row = |setting: &'static super::table::Setting| Row {
            name: setting.name,
            value: values.get(setting.name).to_string(),
            source: values.source(setting.name),
            default: setting.default,
        };
        let rows = SETTINGS.iter().map(row).collect();
        Resolved { settings: values.settings(base), rows, notices }
    }
}

/// A setting's value as it is kept.
///
/// # Errors
/// What is wrong with the name or the value, and what would do.
pub fn canonical(name: &str, text: &str) -> Result<String, String> {
    parse(name, text).map(|(_, value)| value.to_string())
}

/// # Errors
/// Which setting was probably meant.
pub fn known_name(name: &str) -> Result<(), String> {
    find(name).map(|_| ())
}

fn parse(name: &str, text: &str) -> Result<(&'static str, Value), String> {
    let setting = find(name)?;
    let value = setting.kind.parse(text).map_err(|why| format!("{name}: {why}"))?;
    Ok((setting.name, value))
}

fn parse_all(texts: &BTreeMap<String, String>) -> Result<Given, String> {
    texts.iter().map(|(name, text)| parse(name, text)).collect()
}

/// What the server sets for topics that do not.
#[derive(Clone, Debug)]
pub struct Defaults {
    /// What of a log no topic sets.
    base: LogConfig,
    given: Given,
}

impl Defaults {
    /// # Errors
    /// As `resolve`.
    pub fn new(base: LogConfig, texts: &BTreeMap<String, String>) -> Result<Defaults, String> {
        let mut given = parse_all(texts)?;
        // Small segments alone are no contradiction: what a batch may measure follows.
        let values = lay(&given, &Given::new());
        let segment = values.int("segment.bytes");
        if !given.contains_key("max.message.bytes") && values.int("max.message.bytes") > segment {
            given.insert("max.message.bytes", Value::Int(segment));
        }
        checks::agree(&given, &Given::new(), &lay(&given, &Given::new()))?;
        Ok(Defaults { base, given })
    }

    /// What a topic without settings of its own gets.
    pub fn settings(&self) -> Settings {
        lay(&self.given, &Given::new()).settings(&self.base)
    }

    /// What the server's owner should know of its defaults.
    pub fn notices(&self) -> Vec<String> {
        notices::of(&lay(&self.given, &Given::new()), ConfigSource::Server)
    }

    /// The settings of a topic that overrides these.
    ///
    /// # Errors
    /// Which setting is none, is no value, or contradicts which other.
    pub fn resolve(&self, overrides: &BTreeMap<String, String>) -> Result<Resolved, String> {
        let topic = parse_all(overrides)?;
        let values = lay(&self.given, &topic);
        checks::agree(&self.given, &topic, &values)?;
        let notices = notices::of(&values, ConfigSource::Topic);
        Ok(Resolved::new(&values, &self.base, notices))
    }

    /// As `resolve`, for a topic that exists: one setting that cannot be (an edited file, or a
    /// server started with others) must not cost the topic its flush policy.
    pub fn what_holds(&self, overrides: &BTreeMap<String, String>) -> Resolved {
        let (mut topic, mut broken) = (Given::new(), Vec::new());
        for (name, text) in overrides {
            match parse(name, text) {
                Ok((name, value)) => _ = topic.insert(name, value),
                Err(why) => broken.push(format!("{name}={text} does not hold: {why}")),
            }
        }
        let mut values = lay(&self.given, &topic);
        if let Err(why) = checks::agree(&self.given, &topic, &values) {
            broken.push(format!("settings contradict each other: {why}"));
        }
        // No batch larger than a segment.
        let segment = values.int("segment.bytes");
        if values.int("max.message.bytes") > segment {
            let source = values.source("segment.bytes");
            values.0.insert("max.message.bytes", (Value::Int(segment), source));
        }
        broken.extend(notices::of(&values, ConfigSource::Topic));
        Resolved::new(&values, &self.base, broken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(list: &[(&str, &str)]) -> BTreeMap<String, String> {
        list.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
    }

    fn defaults(list: &[(&str, &str)]) -> Defaults {
        Defaults::new(LogConfig::default(), &texts(list)).expect("valid")
    }

    fn row(resolved: &Resolved, name: &str) -> (String, ConfigSource) {
        let row = resolved.rows.iter().find(|row| row.name == name).expect("a setting");
        (row.value.clone(), row.source)
    }

    /// The table's defaults are those of the types that carry them.
    #[test]
    fn without_settings_everything_is_as_built_in() {
        let resolved = defaults(&[]).resolve(&texts(&[])).expect("valid");
        assert_eq!(resolved.settings, Settings::default());
        assert_eq!(resolved.rows.len(), SETTINGS.len());
        assert!(resolved.notices.is_empty());
        for row in &resolved.rows {
            assert_eq!((row.source, &*row.value), (ConfigSource::Default, row.default));
        }
    }

    #[test]
    fn the_topic_wins_over_the_server_and_the_server_over_the_default() {
        let server = defaults(&[("retention.ms", "1h"), ("segment.bytes", "2MiB")]);
        let topic = texts(&[("segment.bytes", "4MiB"), ("cleanup.policy", "delete,compact")]);
        let resolved = server.resolve(&topic).expect("valid");
        assert_eq!(row(&resolved, "segment.bytes"), ("4194304".into(), ConfigSource::Topic));
        assert_eq!(row(&resolved, "retention.ms"), ("3600000".into(), ConfigSource::Server));
        assert_eq!(row(&resolved, "segment.ms"), ("604800000".into(), ConfigSource::Default));
        let log = &resolved.settings.log;
        assert_eq!((log.segment_bytes, log.retention_ms), (4 << 20, 3_600_000));
        assert!(log.compacted && log.deletes);
        assert_eq!(server.settings().log.segment_bytes, 2 << 20);
    }

    /// Every setting that is to have an effect changes what the shards act on.
    #[test]
    fn every_setting_with_an_effect_has_one() {
        use super::super::table::Effect;
        let others: &[(&str, &str)] = &[
            ("cleanup.policy", "compact"),
            ("compression.type", "zstd"),
            ("flush.policy", "each"),
            ("message.timestamp.type", "LogAppendTime"),
        ];
        for setting in SETTINGS {
            let known = others.iter().find(|(name, _)| *name == setting.name);
            let value = known.map_or("1234567", |(_, value)| value);
            let mut topic = vec![(setting.name, value)];
            if setting.name.ends_with(".level") {
                let codec = setting.name.split('.').nth(1).expect("a codec");
                topic = vec![(setting.name, "7"), ("compression.type", codec)];
            } else if setting.effect == Effect::None("a partition has one replica here") {
                topic = vec![];
            } else if setting.kind == super::super::value::Kind::Flag {
                topic =
                    vec![(setting.name, if setting.default == "true" { "false" } else { "true" })];
            } else if setting.kind == super::super::value::Kind::Ratio {
                topic = vec![(setting.name, "0.25")];
            }
            let given = texts(&topic);
            let resolved = defaults(&[]).resolve(&given).unwrap_or_else(|why| panic!("{why}"));
            let without: BTreeMap<_, _> =
                given.clone().into_iter().filter(|(name, _)| name != setting.name).collect();
            let plain = defaults(&[]).resolve(&without).expect("valid");
            let acts = resolved.settings != plain.settings;
            // Lz4 has one level; the notice says so.
            let told = resolved.notices.iter().any(|notice| notice.contains(setting.name));
            if given.is_empty() {
                continue;
            }
            assert_eq!(row(&resolved, setting.name).1, ConfigSource::Topic);
            match setting.effect {
                Effect::None(_) => assert!(told && !acts, "{}", setting.name),
                Effect::Here => assert!(acts || told, "{}", setting.name),
            }
        }
    }

    #[test]
    fn kafkas_flush_settings_are_the_policy_that_promises_the_same() {
        for (given, policy) in [
            (&[("flush.messages", "1")][..], "each"),
            (&[("flush.messages", "1000")], "records:1000"),
            (&[("flush.ms", "1000")], "interval:1s"),
            (&[("flush.ms", "0")], "group"),
            (&[("flush.ms", "9223372036854775807")], "os"),
            (&[("flush.messages", "9223372036854775807")], "os"),
            (&[("flush.messages", "5"), ("flush.ms", "20ms")], "records:5,interval:20ms"),
            (&[("flush.messages", "5"), ("flush.ms", "0")], "group"),
        ] {
            let resolved = defaults(&[("flush.policy", "bytes:1MiB")]).resolve(&texts(given));
            let resolved = resolved.expect("valid");
            assert_eq!(resolved.settings.log.flush.to_string(), policy, "{given:?}");
            assert_eq!(row(&resolved, "flush.policy"), (policy.into(), ConfigSource::Topic));
            let servers = defaults(given);
            assert_eq!(servers.settings().log.flush.to_string(), policy);
            let own = servers.resolve(&texts(&[("flush.policy", "os")])).expect("valid");
            assert_eq!(own.settings.log.flush, FlushPolicy::Os);
            assert_eq!(row(&own, given[0].0).1, ConfigSource::Default, "no longer the server's");
        }
    }

    #[test]
    fn compression_has_the_level_of_its_codec() {
        let target =
            |given| defaults(&[]).resolve(&texts(given)).expect("valid").settings.compression;
        let of = |codec, level| Some(Target { codec, level });
        assert_eq!(target(&[("compression.zstd.level", "7")]), None);
        assert_eq!(target(&[("compression.type", "zstd")]), of(Codec::Zstd, Some(3)));
        let seven = [("compression.type", "zstd"), ("compression.zstd.level", "-7")];
        assert_eq!(target(&seven), of(Codec::Zstd, Some(-7)));
        assert_eq!(target(&[("compression.type", "gzip")]), of(Codec::Gzip, None));
        assert_eq!(target(&[("compression.type", "uncompressed")]), of(Codec::None, None));
        assert_eq!(target(&[("compression.type", "snappy")]), of(Codec::Snappy, None));
    }

    #[test]
    fn what_contradicts_is_refused_with_both_names_and_values() {
        for (given, hints) in [
            (&[("segment.bytes", "4096")][..], ["max.message.bytes 1048588 (default)", "4096"]),
            (&[("segment.jitter.ms", "2"), ("segment.ms", "1")], ["jitter.ms 2", "segment.ms 1"]),
            (
                &[("min.compaction.lag.ms", "2"), ("max.compaction.lag.ms", "1")],
                ["min.compaction.lag.ms 2 (topic)", "max.compaction.lag.ms 1 (topic)"],
            ),
            (&[("flush.policy", "os"), ("flush.ms", "5")], ["flush.policy os", "flush.ms 5"]),
            (
                &[("remote.storage.enable", "true"), ("cleanup.policy", "compact")],
                ["remote.storage.enable true", "cleanup.policy compact"],
            ),
            (
                &[("remote.storage.enable", "true"), ("local.retention.ms", "8days")],
                ["local.retention.ms 691200000", "retention.ms 604800000"],
            ),
            (&[("segment.bytes", "12")], ["segment.bytes: 12", "1024 to 2147483647"]),
            (&[("segment.byte", "1")], ["segment.byte", "\"segment.bytes\""]),
        ] {
            let why = defaults(&[]).resolve(&texts(given)).expect_err("refused");
            assert!(hints.iter().all(|hint| why.contains(hint)), "{why}");
        }
        assert!(Defaults::new(LogConfig::default(), &texts(&[("retention.ms", "-2")])).is_err());
    }

    #[test]
    fn one_setting_that_cannot_be_does_not_cost_a_topic_its_others() {
        let given = texts(&[
            ("flush.policy", "each"),
            ("flush.ms", "7"),
            ("segment.bytes", "4096"),
            ("segment.ms", "soon"),
            ("gone.setting", "1"),
        ]);
        assert!(defaults(&[]).resolve(&given).is_err());
        let held = defaults(&[]).what_holds(&given);
        let log = &held.settings.log;
        assert_eq!(log.flush, FlushPolicy::Each);
        assert_eq!((log.segment_bytes, log.max_message_bytes), (4096, 4096));
        assert_eq!(log.segment_ms, Settings::default().log.segment_ms);
        for name in ["segment.ms=soon", "gone.setting=1", "contradict"] {
            assert!(held.notices.iter().any(|notice| notice.contains(name)), "{:?}", held.notices);
        }
    }

    #[test]
    fn small_segments_of_a_server_bound_its_batches() {
        let server = defaults(&[("segment.bytes", "4096")]);
        assert_eq!(server.settings().log.max_message_bytes, 4096);
        let both = [("segment.bytes", "4096"), ("max.message.bytes", "5000")];
        assert!(Defaults::new(LogConfig::default(), &texts(&both)).is_err());
    }

    #[test]
    fn what_does_nothing_is_told() {
        let given = texts(&[
            ("min.insync.replicas", "2"),
            ("cleanup.policy", "compact"),
            ("compression.zstd.level", "9"),
            ("retention.ms", "604800000"),
        ]);
        let notices = defaults(&[("preallocate", "true")]).resolve(&given).expect("valid").notices;
        assert_eq!(notices.len(), 3, "{notices:?}");
        assert!(notices[0].contains("does not run yet"), "{notices:?}");
        assert!(notices[1].contains("while compression.type is producer"), "{notices:?}");
        assert!(notices[2].starts_with("min.insync.replicas=2 has no effect"), "{notices:?}");
        assert!(defaults(&[("preallocate", "true")]).notices()[0].contains("preallocate=true"));
    }
}
