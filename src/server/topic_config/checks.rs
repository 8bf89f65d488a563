//! Settings that contradict each other.
//!
//! Owns: which, and how it is said: both names, both values, where each comes from. Never does:
//! refuse what only has no effect. Left: `value`. Right: `layers`, which has the values.

use super::layers::{Given, Values};
use super::value::Value;
use crate::policy::FlushPolicy;
use crate::types::Micros;

/// Kafka's `flush.messages` and `flush.ms` as the policy that promises the same; the largest number
/// is Kafka's "never".
fn policy_of(messages: i64, ms: i64) -> FlushPolicy {
    let time = Micros((ms as u64).saturating_mul(1000));
    match (messages, ms) {
        (1, _) => FlushPolicy::Each,
        // No acked record is ever ahead of the disk.
        (_, 0) => FlushPolicy::default(),
        (i64::MAX, i64::MAX) => FlushPolicy::Os,
        (i64::MAX, _) => FlushPolicy::Interval(time),
        (_, i64::MAX) => FlushPolicy::Records(messages as u64),
        _ => FlushPolicy::RecordsOrInterval { records: messages as u64, time },
    }
}

/// The flush policy that a layer sets, under one name or another. Where it sets more than one
/// (`agree` refuses that) `flush.policy` holds.
pub fn flush_of(given: &Given) -> Option<FlushPolicy> {
    if let Some(Value::Policy(policy)) = given.get("flush.policy") {
        return Some(*policy);
    }
    let int = |name| match given.get(name) {
        Some(Value::Int(number)) => Some(*number),
        _ => None,
    };
    let (messages, ms) = (int("flush.messages"), int("flush.ms"));
    if messages.is_none() && ms.is_none() {
        return None;
    }
    Some(policy_of(messages.unwrap_or(i64::MAX), ms.unwrap_or(i64::MAX)))
}

/// One layer must not say twice when to flush.
fn one_flush(given: &Given) -> Result<(), String> {
    let Some(policy) = given.get("flush.policy") else { return Ok(()) };
    for name in ["flush.messages", "flush.ms"] {
        if let Some(value) = given.get(name) {
            return Err(format!(
                "flush.policy {policy} and {name} {value} both say when to flush: set one of them"
            ));
        }
    }
    Ok(())
}

/// `name value (source)`.
fn shown(values: &Values, name: &str) -> String {
    format!("{name} {} ({})", values.get(name), values.source(name).name())
}

/// Pairs of which the first may not be above the second, and why.
const ORDERED: [(&str, &str, &str); 3] = [
    ("max.message.bytes", "segment.bytes", "such a batch would fit no segment"),
    ("min.compaction.lag.ms", "max.compaction.lag.ms", "no record could meet both"),
    ("segment.jitter.ms", "segment.ms", "a segment would be due before it begins"),
];

/// # Errors
/// The first contradiction.
pub fn agree(server: &Given, topic: &Given, values: &Values) -> Result<(), String> {
    one_flush(server)?;
    one_flush(topic)?;
    for (low, high, why) in ORDERED {
        if values.int(low) > values.int(high) {
            let (low, high) = (shown(values, low), shown(values, high));
            return Err(format!("{low} is above {high}: {why}"));
        }
    }
    if !values.is_on("remote.storage.enable") {
        return Ok(());
    }
    let remote = shown(values, "remote.storage.enable");
    if values.cleans_by("compact") {
        let policy = shown(values, "cleanup.policy");
        return Err(format!("{remote} and {policy}: compacted topics cannot be tiered"));
    }
    for (local, whole) in
        [("local.retention.ms", "retention.ms"), ("local.retention.bytes", "retention.bytes")]
    {
        let (kept_here, kept) = (values.int(local), values.int(whole));
        // -2: as long as the whole; below 0 the whole has no end.
        if kept_here != -2 && kept >= 0 && (kept_here < 0 || kept_here > kept) {
            let (local, whole) = (shown(values, local), shown(values, whole));
            return Err(format!("{local} is above {whole}: what is local is part of the whole"));
        }
    }
    Ok(())
}
