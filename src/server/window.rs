//! How much of a topic's partitions may have been written and not flushed when a crash came (D6).
//!
//! Owns: the rule that the topic file always holds the largest window since the last recovery: it
//! grows there before a policy with a larger one takes effect, and shrinks only when every
//! partition has been recovered under the old one. Never does: recovery, which asks by it whether
//! sound batches behind a bad one can be a torn tail. Left: `topics`. Right: `control`, `requests`.
//!
//! `None` is a window without bound. So a topic of which nothing is recorded (a broker wrote it)
//! has one, and its tail is always cut at the first batch that does not count.

use super::control::Control;
use crate::io::Io;
use crate::log::LogConfig;
use crate::shard::catalogue::PartitionEntry;

/// The largest a TOML file holds.
const WINDOW_MAX: u64 = i64::MAX as u64;

/// The window of the policy in force.
pub fn of(log: &LogConfig) -> Option<u64> {
    log.flush.unflushed_max(log.unsettled_bytes_max).filter(|bytes| *bytes <= WINDOW_MAX)
}

pub fn larger(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.zip(other).map(|(one, other)| one.max(other))
}

impl<I: Io> Control<I> {
    /// All partitions were opened, and none has taken an append yet: from here on the windows are
    /// those of the policies in force. Where a partition is offline or could not be cut, the old
    /// window still counts.
    pub(super) fn record_windows(&mut self) {
        let recovered = |partition: &PartitionEntry| partition.marks.now().state == 0;
        let mut changed = false;
        for at in 0..self.topics.topics.len() {
            let topic = &self.topics.topics[at];
            let Some(entry) = self.catalogue.topic(&topic.name) else { continue };
            let resolved = self.defaults.resolve(&topic.configs);
            let resolved = resolved.unwrap_or_else(|_| self.defaults.what_holds(&topic.configs));
            let now = of(&resolved.settings.log);
            let window = match entry.partitions.iter().all(recovered) {
                true => now,
                false => larger(topic.unflushed_bytes, now),
            };
            changed |= window != topic.unflushed_bytes;
            self.topics.topics[at].unflushed_bytes = window;
        }
        if changed && let Err(error) = self.save_topics() {
            tracing::error!("{error}; a crash before this file is written may be misjudged (D6)");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::mpsc::Receiver;

    use super::*;
    use crate::io::blocking::Blocking;
    use crate::io::buffers::Pool;
    use crate::io::sim::{SimIo, World};
    use crate::protocol::api::{Api, Message};
    use crate::protocol::topics::AlterRequest;
    use crate::server::config::{Config, Flags};
    use crate::server::homes::Homes;
    use crate::shard::mailbox::{FromShard, Recovered, ShardBox, ToShard, Waiter};
    use crate::types::ShardId;

    /// A started control thread with one shard, and what that shard is told.
    fn control(world: &World) -> Option<(Control<SimIo>, Receiver<ToShard>)> {
        let mut io = world.engine();
        let mut b = Blocking::new(&mut io, Pool::new(16 << 20));
        let (homes, topics) = Homes::open(&mut b, &["/data".into()], &mut |_| Ok(None)).ok()?;
        let flags = Flags { data_dir: Some(vec!["/data".into()]), ..Flags::default() };
        let (shard, inbox) = ShardBox::new(io.waker());
        let config = Config::resolve(flags, &[0]).unwrap();
        Some((Control::new(io, config, homes, topics, vec![shard]).ok()?, inbox))
    }

    /// A partition of topic "t" on the disk.
    fn plant(world: &World) {
        let mut io = world.engine();
        let mut b = Blocking::new(&mut io, Pool::new(16 << 20));
        b.create_dir(Path::new("/data")).unwrap();
        b.sync_dir(Path::new("/")).unwrap();
        crate::log::create(&mut b, Path::new("/data/t-0"), uuid::Uuid::from_u128(7), 0).unwrap();
    }

    fn alter(control: &mut Control<SimIo>, flush: &str) {
        let changes = vec![("flush.policy", Some(flush))];
        let mut body = Vec::new();
        AlterRequest { name: "t", changes }.encode(&mut body).unwrap();
        let (shard, waiter, api) = (ShardId(0), Waiter(0), Api::AlterTopic.to_wire());
        control.handle(FromShard::Request { shard, waiter, api, body });
    }

    /// Every partition has been opened and recovered.
    fn opened(control: &mut Control<SimIo>) {
        control.open_all();
        let (shard, recovered) = (ShardId(0), Recovered::default());
        control.handle(FromShard::OpenedAll { shard, recovered });
    }

    fn started(world: &World, flush: &str) -> (Control<SimIo>, Receiver<ToShard>) {
        plant(world);
        let (mut first, inbox) = control(world).unwrap();
        let topic = &mut first.topics.topics[0];
        topic.configs.insert("flush.policy".to_string(), flush.to_string());
        assert_eq!(topic.unflushed_bytes, None, "nothing is known of a topic found on the disk");
        first.save_topics().unwrap();
        opened(&mut first);
        inbox.try_iter().for_each(drop);
        (first, inbox)
    }

    /// Whatever step of an alteration the power goes at: the window found then covers every policy
    /// that a partition may have been told, until all have been recovered.
    #[test]
    fn d6_the_recorded_window_covers_every_policy_since_the_last_recovery() {
        for (from, to) in [("group", "os"), ("os", "group"), ("bytes:1MiB", "group")] {
            for n in 0..30 {
                let world = World::new(n);
                let (mut before, inbox) = started(&world, from);
                let bounded = |flush: &str| {
                    let flush = flush.parse().unwrap();
                    of(&LogConfig { flush, ..LogConfig::default() })
                };
                assert_eq!(before.topics.find("t").unwrap().unflushed_bytes, bounded(from));
                world.cut_after(n);
                alter(&mut before, to);
                let told = inbox.try_iter().any(|mail| matches!(mail, ToShard::Alter(..)));
                drop(before);
                world.power_cut();
                let (mut after, _inbox) = control(&world).unwrap();
                let found = after.topics.find("t").unwrap().unflushed_bytes;
                let least = if told { larger(bounded(from), bounded(to)) } else { bounded(from) };
                assert_eq!(larger(found, least), found, "{from} to {to}, step {n}");
                // Recovered: from here on only the policy in force counts.
                opened(&mut after);
                let topic = after.topics.find("t").unwrap();
                let now = bounded(&topic.configs["flush.policy"]);
                assert_eq!(topic.unflushed_bytes, now, "{from} to {to}, step {n}");
            }
        }
    }

    #[test]
    fn no_bound_is_the_largest() {
        assert_eq!(larger(Some(1), Some(2)), Some(2));
        assert_eq!((larger(None, Some(2)), larger(Some(1), None)), (None, None));
        let with =
            |flush: &str| LogConfig { flush: flush.parse().unwrap(), ..LogConfig::default() };
        assert_eq!((of(&with("os")), of(&with("interval:1s"))), (None, None));
        assert_eq!(of(&with("group")), Some(32 << 20));
        assert!(of(&with("bytes:1MiB")) > of(&with("group")));
    }
}
