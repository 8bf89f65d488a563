//! Where a lone producer goes on after a lost connection.
//!
//! Owns: comparing the log's end with what was sent. Never does: send.
//! Left: [`super::cluster`], [`super::producer`]. Right: users.
//!
//! It holds for a producer that is the only one of its partition, without producer ids: the log's
//! end then tells how many of the unacked records landed. It is not proof against a server that
//! still has batches of the old connection to append; `settle` is how long the end must stand
//! still before it counts.

use std::thread;
use std::time::Duration;

use super::cluster::Client;
use super::error::Error;
use super::producer::Sent;
use crate::protocol::offsets::special;
use crate::types::Offset;

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Resume {
    /// Send from the producer's how-many-th record on (from 0): all before it is in the log.
    From { record: u64, end: i64 },
    /// The log ends before what was acked: the ack's level did not hold, or another log answers.
    AckedLost { expected: i64, end: i64 },
    /// The end fits no boundary of ours: somebody else writes too.
    NotAlone { expected: i64, end: i64 },
}

/// Asks the log where to go on. `expected`: the end behind the last acked batch (or the end before
/// the first batch was sent); `next_record`: records this producer has sent so far.
pub fn resume_point(
    client: &mut Client,
    topic: &str,
    partition: u32,
    (expected, next_record): (Offset, u64),
    unacked: &[Sent],
    settle: Duration,
) -> Result<Resume, Error> {
    let mut end = written_end(client, topic, partition)?;
    loop {
        thread::sleep(settle);
        match written_end(client, topic, partition)? {
            same if same == end => break,
            moved => end = moved,
        }
    }
    Ok(judge(expected.get(), next_record, unacked, end))
}

/// A flush waits for what is written, so that the high watermark hides nothing.
fn written_end(client: &mut Client, topic: &str, partition: u32) -> Result<i64, Error> {
    client.flush(topic, partition)?;
    Ok(client.list_offsets(topic, partition, special::LATEST)?.0)
}

fn judge(expected: i64, next_record: u64, unacked: &[Sent], end: i64) -> Resume {
    if end < expected {
        return Resume::AckedLost { expected, end };
    }
    let mut at = expected;
    for sent in unacked {
        if at == end {
            return Resume::From { record: sent.first_record, end };
        }
        at += i64::from(sent.records);
    }
    if at == end {
        return Resume::From { record: next_record, end };
    }
    Resume::NotAlone { expected, end }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_tells_how_many_landed() {
        let sent = |number, first_record, records| Sent { number, first_record, records, bytes: 9 };
        let unacked = [sent(4, 40, 10), sent(5, 50, 7)];
        let judge = |end| judge(100, 57, &unacked, end);
        assert_eq!(judge(100), Resume::From { record: 40, end: 100 });
        assert_eq!(judge(110), Resume::From { record: 50, end: 110 });
        assert_eq!(judge(117), Resume::From { record: 57, end: 117 });
        for inside_or_past in [101, 109, 111, 118] {
            let not_alone = Resume::NotAlone { expected: 100, end: inside_or_past };
            assert_eq!(judge(inside_or_past), not_alone);
        }
        assert_eq!(judge(99), Resume::AckedLost { expected: 100, end: 99 });
    }

    #[test]
    fn nothing_unacked_resumes_behind_the_last_ack() {
        assert_eq!(judge(7, 7, &[], 7), Resume::From { record: 7, end: 7 });
        assert_eq!(judge(7, 7, &[], 8), Resume::NotAlone { expected: 7, end: 8 });
    }
}
