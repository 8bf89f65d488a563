//! What the owner of a setting should know: that it does nothing here, or not yet.
//!
//! Owns: the sentences. Never does: refuse anything: such settings are kept, so that a topic can
//! be moved here and back with all its settings. Left: `layers`, `table`. Right: `layers`.

use super::layers::Values;
use super::table::{Effect, SETTINGS};
use crate::protocol::topics::ConfigSource;

/// Of the values that come from `source`.
pub fn of(values: &Values, source: ConfigSource) -> Vec<String> {
    let mut notices = Vec::new();
    for setting in SETTINGS {
        let (name, value) = (setting.name, values.get(setting.name).to_string());
        if values.source(name) != source || value == setting.default {
            continue;
        }
        match setting.effect {
            Effect::None(why) => notices.push(format!("{name}={value} has no effect: {why}")),
            Effect::Here => notices.extend(without_effect(values, name, &value)),
        }
    }
    notices
}

/// Settings that have an effect, but not with the others as they are, or not all of it yet.
fn without_effect(values: &Values, name: &str, value: &str) -> Option<String> {
    let codec = values.text("compression.type");
    match name {
        "cleanup.policy" if values.cleans_by("compact") => Some(format!(
            "cleanup.policy={value}: compaction does not run yet. Records need keys{}",
            match values.cleans_by("delete") {
                true => "",
                false => ", and nothing is removed by time or size",
            }
        )),
        "compression.lz4.level" if codec == "lz4" => {
            Some(format!("{name}={value} has no effect: lz4 has one level here, the fast one"))
        }
        "compression.gzip.level" | "compression.lz4.level" | "compression.zstd.level"
            if name.split('.').nth(1) != Some(codec) =>
        {
            Some(format!("{name}={value} has no effect while compression.type is {codec}"))
        }
        "max.compaction.lag.ms" if !values.cleans_by("compact") => {
            Some(format!("{name}={value} has no effect without compact in cleanup.policy"))
        }
        _ => None,
    }
}
