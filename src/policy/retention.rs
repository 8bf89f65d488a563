//! Which segments may go, exactly as Kafka decides it: three passes, each taking a prefix.
//!
//! Owns: the arithmetic and the order of the passes; what counts as a segment's age. Never does:
//! removing anything (`log::retention` does). Left: `types`. Right: `log`.

use crate::types::WallMs;

/// A timestamp this far ahead of the clock is no time: Kafka's default lead, above which it
/// refuses records. Such a segment's age is that of its file (R43).
pub const FUTURE_MS: i64 = 3_600_000;

/// A segment as retention sees it, everything staged counted.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The next segment's base offset; of the last segment the log's end.
    pub end: i64,
    pub size: u64,
    /// Its greatest timestamp; -1: none.
    pub newest: WallMs,
    /// When its file was last changed, once that was asked for.
    pub modified: Option<WallMs>,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct RetentionLimits {
    /// `cleanup.policy` has `delete`.
    pub deletes: bool,
    /// Below 0: for ever.
    pub retention_ms: i64,
    /// Below 0: without bound.
    pub retention_bytes: i64,
}

/// Where the log stands.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct LogState {
    pub start: i64,
    pub high_watermark: i64,
    pub now: WallMs,
}

/// How many segments from the front may go, by the pass that took them.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Doomed {
    pub by_start: usize,
    pub by_size: usize,
    pub by_age: usize,
}

impl Doomed {
    pub fn count(&self) -> usize {
        self.by_start + self.by_size + self.by_age
    }
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Doomed(Doomed),
    /// The age of this one's file has to be known first.
    AskAge(usize),
}

/// Whether a timestamp lies so far ahead that it cannot be a time.
pub fn is_future(timestamp: WallMs, now: WallMs) -> bool {
    timestamp > now.saturating_add(FUTURE_MS)
}

/// Judges `count` segments in order. All of them may go, the last one too unless it is empty: then
/// a new one has to be begun first.
pub fn judge(
    count: usize,
    candidate: impl Fn(usize) -> Candidate,
    limits: &RetentionLimits,
    log: &LogState,
) -> Verdict {
    let settled = |at: usize| {
        let one = candidate(at);
        one.end <= log.high_watermark && (at + 1 < count || one.size > 0)
    };
    let mut at = 0;
    while at + 1 < count && candidate(at).end <= log.start && settled(at) {
        at += 1;
    }
    let mut doomed = Doomed { by_start: at, ..Doomed::default() };
    if let Ok(bound) = u64::try_from(limits.retention_bytes)
        && limits.deletes
    {
        let total: u64 = (at..count).map(|at| candidate(at).size).sum();
        let mut excess = total.checked_sub(bound);
        while at < count && settled(at) {
            excess = excess.and_then(|excess| excess.checked_sub(candidate(at).size));
            if excess.is_none() {
                break;
            }
            at += 1;
        }
        doomed.by_size = at - doomed.by_start;
    }
    if limits.deletes && limits.retention_ms >= 0 {
        while at < count && settled(at) {
            let one = candidate(at);
            let is_time = one.newest >= 0 && !is_future(one.newest, log.now);
            let Some(newest) = Some(one.newest).filter(|_| is_time).or(one.modified) else {
                return Verdict::AskAge(at);
            };
            if log.now.saturating_sub(newest) <= limits.retention_ms {
                break;
            }
            at += 1;
        }
        doomed.by_age = at - doomed.by_start - doomed.by_size;
    }
    Verdict::Doomed(doomed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOR_EVER: RetentionLimits =
        RetentionLimits { deletes: true, retention_ms: -1, retention_bytes: -1 };
    const NOW: LogState = LogState { start: 0, high_watermark: 100, now: 10_000_000 };

    /// Segments of ten offsets each.
    fn log(sizes_and_times: &[(u64, i64)]) -> Vec<Candidate> {
        let one = |(at, (size, newest)): (usize, &(u64, i64))| Candidate {
            end: (at as i64 + 1) * 10,
            size: *size,
            newest: *newest,
            modified: None,
        };
        sizes_and_times.iter().enumerate().map(one).collect()
    }

    fn doomed(log: &[Candidate], limits: RetentionLimits, state: LogState) -> Doomed {
        match judge(log.len(), |at| log[at], &limits, &state) {
            Verdict::Doomed(doomed) => doomed,
            Verdict::AskAge(at) => panic!("the age of {at} was asked for"),
        }
    }

    #[test]
    fn size_never_goes_below_its_bound() {
        let segments = log(&[(100, 0), (100, 0), (100, 0), (50, 0)]);
        let at = |bytes| {
            let limits = RetentionLimits { retention_bytes: bytes, ..FOR_EVER };
            doomed(&segments, limits, NOW).by_size
        };
        assert_eq!(
            [351, 350, 251, 250, 249, 151, 150, 50, 49].map(at),
            [0, 0, 0, 1, 1, 1, 2, 3, 3]
        );
        assert_eq!(at(0), 4, "the active one too");
        let compacted = RetentionLimits { deletes: false, retention_bytes: 0, retention_ms: 0 };
        assert_eq!(doomed(&segments, compacted, NOW).count(), 0);
    }

    #[test]
    fn age_is_strict_and_stops_at_the_first_that_stays() {
        let limits = RetentionLimits { retention_ms: 1000, ..FOR_EVER };
        let old = NOW.now - 1001;
        let of = |times: [i64; 3]| doomed(&log(&times.map(|time| (1, time))), limits, NOW).by_age;
        assert_eq!(of([old, old, old]), 3);
        assert_eq!(of([old, old + 1, old]), 1);
        assert_eq!(of([NOW.now + FUTURE_MS, old, old]), 0, "a lead that is allowed is a time");
    }

    #[test]
    fn r43_no_time_and_a_future_one_ask_for_the_files_age() {
        let limits = RetentionLimits { retention_ms: 1000, ..FOR_EVER };
        for newest in [-1, NOW.now + FUTURE_MS + 1, i64::MAX] {
            let mut segments = log(&[(1, newest), (1, NOW.now)]);
            let verdict = judge(2, |at| segments[at], &limits, &NOW);
            assert_eq!(verdict, Verdict::AskAge(0), "{newest}");
            segments[0].modified = Some(NOW.now - 1001);
            assert_eq!(doomed(&segments, limits, NOW).by_age, 1, "{newest}");
            segments[0].modified = Some(NOW.now - 1000);
            assert_eq!(doomed(&segments, limits, NOW).by_age, 0, "{newest}");
        }
    }

    #[test]
    fn below_the_start_goes_whatever_the_policy_says_and_never_the_last() {
        let limits = RetentionLimits { deletes: false, ..FOR_EVER };
        let segments = log(&[(1, 0), (1, 0), (1, 0)]);
        let at = |start| doomed(&segments, limits, LogState { start, ..NOW }).by_start;
        assert_eq!([9, 10, 20, 29, 30, 99].map(at), [0, 1, 2, 2, 2, 2]);
    }

    #[test]
    fn nothing_goes_that_readers_may_not_see_yet_nor_an_empty_last_one() {
        let limits = RetentionLimits { retention_ms: 0, retention_bytes: 0, ..FOR_EVER };
        let segments = log(&[(1, 0), (1, 0), (1, 0)]);
        let at = |high_watermark| {
            doomed(&segments, limits, LogState { start: 99, high_watermark, ..NOW }).count()
        };
        assert_eq!([9, 10, 29, 30].map(at), [0, 1, 2, 3]);
        assert_eq!(doomed(&log(&[(1, 0), (0, -1)]), limits, NOW).count(), 1);
        assert_eq!(doomed(&log(&[(0, -1)]), limits, NOW).count(), 0);
    }
}
