//! Topic settings: names, bounds, defaults, and what they make of a partition's log settings.
//!
//! Owns: the table of settings a topic may override, Kafka's names where Kafka has one. Never does:
//! keep or publish them. Left: `shard::mailbox::Settings`, `policy`. Right: `control`.

use std::collections::BTreeMap;

use crate::log::LogConfig;
use crate::policy::FlushPolicy;
use crate::shard::mailbox::Settings;

/// One setting: how it is read from text and written back.
struct Setting {
    name: &'static str,
    set: fn(&mut Settings, &str) -> Result<(), String>,
    get: fn(&Settings) -> String,
}

fn number<T: TryFrom<i64>>(text: &str, bounds: (i64, i64)) -> Result<T, String> {
    let value: i64 = text.trim().parse().map_err(|_| format!("{text:?} is not a whole number"))?;
    let fits = (bounds.0..=bounds.1).contains(&value);
    let outside = || format!("{value} is outside {} to {}", bounds.0, bounds.1);
    T::try_from(value).ok().filter(|_| fits).ok_or_else(outside)
}

macro_rules! whole {
    ($name:literal, $($field:ident).+, $low:expr, $high:expr) => {
        Setting {
            name: $name,
            set: |config, text| {
                config.$($field).+ = number(text, ($low, $high))?;
                Ok(())
            },
            get: |config| config.$($field).+.to_string(),
        }
    };
}

const I32_MAX: i64 = i32::MAX as i64;

const SETTINGS: &[Setting] = &[
    Setting {
        name: "flush.policy",
        set: |config, text| {
            config.log.flush = text.parse::<FlushPolicy>().map_err(|e| e.to_string())?;
            Ok(())
        },
        get: |config| config.log.flush.to_string(),
    },
    whole!("index.interval.bytes", log.index_interval_bytes, 0, I32_MAX),
    whole!("max.message.bytes", log.max_message_bytes, 0, I32_MAX),
    whole!("message.timestamp.after.max.ms", timestamp_after_max_ms, 0, i64::MAX),
    whole!("message.timestamp.before.max.ms", timestamp_before_max_ms, 0, i64::MAX),
    Setting {
        name: "message.timestamp.type",
        set: |config, text| {
            config.log_append_time = match text {
                "CreateTime" => false,
                "LogAppendTime" => true,
                other => return Err(format!("{other:?} is neither CreateTime nor LogAppendTime")),
            };
            Ok(())
        },
        get: |config| {
            (if config.log_append_time { "LogAppendTime" } else { "CreateTime" }).to_string()
        },
    },
    // Kafka's released minimum is 1 MiB; smaller ones are for tests and are read by brokers.
    whole!("segment.bytes", log.segment_bytes, 1024, I32_MAX),
    whole!("segment.index.bytes", log.segment_index_bytes, 4, I32_MAX),
    whole!("segment.jitter.ms", log.segment_jitter_ms, 0, i64::MAX),
    whole!("segment.ms", log.segment_ms, 1, i64::MAX),
];

fn find(name: &str) -> Result<&'static Setting, String> {
    SETTINGS.iter().find(|setting| setting.name == name).ok_or_else(|| {
        let nearest = SETTINGS
            .iter()
            .map(|setting| (strsim::jaro_winkler(name, setting.name), setting.name))
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .map_or("", |(_, name)| name);
        format!("{name:?} is no setting of a topic; the nearest is {nearest:?}")
    })
}

/// The log settings of a topic: the server's, then the topic's overrides.
pub fn resolve(
    server: &Settings,
    overrides: &BTreeMap<String, String>,
) -> Result<Settings, String> {
    let mut config = server.clone();
    for (name, value) in overrides {
        let setting = find(name)?;
        (setting.set)(&mut config, value).map_err(|why| format!("{name}: {why}"))?;
    }
    if config.log.max_message_bytes as u64 > config.log.segment_bytes {
        return Err(format!(
            "max.message.bytes {} is above segment.bytes {}: such a batch would fit no segment",
            config.log.max_message_bytes, config.log.segment_bytes
        ));
    }
    Ok(config)
}

/// As `resolve`, for a topic that exists: one setting that cannot be (an edited file, or a server
/// started with others) must not cost the topic its flush policy.
pub fn what_holds(server: &Settings, overrides: &BTreeMap<String, String>) -> Settings {
    let mut config = server.clone();
    for (name, value) in overrides {
        let mut changed = config.clone();
        if find(name).and_then(|setting| (setting.set)(&mut changed, value)).is_ok() {
            config = changed;
        }
    }
    Settings { log: fitting(config.log.clone()), ..config }
}

/// No batch larger than a segment.
pub fn fitting(log: LogConfig) -> LogConfig {
    let most = usize::try_from(log.segment_bytes).unwrap_or(usize::MAX);
    LogConfig { max_message_bytes: log.max_message_bytes.min(most), ..log }
}

/// Each setting, its value in force, and whether the topic overrides it.
pub fn describe(
    config: &Settings,
    overrides: &BTreeMap<String, String>,
) -> Vec<(&'static str, String, bool)> {
    SETTINGS.iter().map(|s| (s.name, (s.get)(config), overrides.contains_key(s.name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overrides(list: &[(&str, &str)]) -> BTreeMap<String, String> {
        list.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
    }

    #[test]
    fn overrides_win_and_are_told_apart() {
        let given = overrides(&[("segment.bytes", "2097152"), ("flush.policy", "each")]);
        let config = resolve(&Settings::default(), &given).expect("valid");
        assert_eq!(config.log.segment_bytes, 2 << 20);
        let described = describe(&config, &given);
        assert!(described.contains(&("flush.policy", "each".to_string(), true)));
        assert!(described.iter().any(|(name, _, own)| *name == "segment.ms" && !own));
    }

    #[test]
    fn one_setting_that_cannot_be_does_not_cost_a_topic_its_flush_policy() {
        let given = overrides(&[
            ("flush.policy", "each"),
            ("segment.bytes", "4096"),
            ("segment.ms", "soon"),
        ]);
        assert!(resolve(&Settings::default(), &given).is_err());
        let config = what_holds(&Settings::default(), &given);
        assert_eq!(config.log.flush.to_string(), "each");
        assert_eq!((config.log.segment_bytes, config.log.max_message_bytes), (4096, 4096));
        assert_eq!(config.log.segment_ms, Settings::default().log.segment_ms);
    }

    #[test]
    fn unknown_and_contradictory_settings_are_refused_with_what_would_do() {
        let refused = |list| resolve(&Settings::default(), &overrides(list)).expect_err("refused");
        assert!(refused(&[("segment.byte", "1")]).contains("\"segment.bytes\""));
        assert!(refused(&[("segment.bytes", "12")]).contains("1024 to 2147483647"));
        assert!(refused(&[("segment.bytes", "x")]).contains("whole number"));
        assert!(refused(&[("segment.bytes", "4096")]).contains("fit no segment"));
    }
}
