//! Lines into batches, batches into lanes, and what to do when a lane is lost.
//!
//! Owns: the open batch, whose turn it is, the attempts to reconnect, the words at the end of a
//! failed run. Never does: read input, hold what is acked.
//! Left: [`super::lane`], [`super::lines`], [`super::connect`]. Right: [`super::produce`].

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use indicatif::ProgressBar;
use memchr::memmem;

use super::Failure;
use super::connect::Server;
use super::lane::{Batch, Lane, Refused};
use super::lines::{LineError, Lines, Next};
use crate::client::{Backoff, Error, Resume};
use crate::format::builder::BatchBuilder;

/// How often acks are looked for while the input is quiet.
const IDLE: Duration = Duration::from_millis(100);

#[derive(Clone, Debug)]
pub struct Settings {
    pub separator: Option<Vec<u8>>,
    /// No batch grows past it but one of a single record.
    pub batch_bytes: usize,
    pub linger: Duration,
    /// The input's first line that is sent.
    pub from_line: u64,
    /// Attempts to reconnect with nothing acked in between.
    pub retries: u32,
}

/// Why no more lines are sent.
enum Stop {
    /// What was read before can still be sent.
    Input(Failure),
    /// The server cannot be reached, or will not take what is sent.
    Gone(Failure),
}

pub struct Feed {
    settings: Settings,
    finder: Option<memmem::Finder<'static>>,
    lanes: Vec<Lane>,
    /// The lane that the open batch goes to.
    turn: usize,
    open: Batch,
    /// When the open batch must leave.
    leaves: Option<Instant>,
    /// Of the records in the open batch.
    timestamp: i64,
    /// The number of the last line taken from the input, from 1.
    line: u64,
    server: Server,
    bar: ProgressBar,
    /// In front of the first line.
    bytes_passed: u64,
    bytes_taken: u64,
    /// Attempts since `acked_then` records were acked.
    attempts: u32,
    acked_then: u64,
    /// Connections that producers made anew, as far as it was told.
    reconnects: u64,
}

impl Feed {
    /// # Panics
    /// Without lanes (a topic has a partition), or with a first line 0.
    pub fn new(settings: Settings, mut lanes: Vec<Lane>, server: Server, bar: ProgressBar) -> Feed {
        assert!(!lanes.is_empty(), "a topic has a partition");
        let open = lanes[0].empty_batch();
        let separator = settings.separator.as_deref();
        Feed {
            finder: separator.map(|separator| memmem::Finder::new(separator).into_owned()),
            line: settings.from_line - 1,
            settings,
            lanes,
            turn: 0,
            open,
            leaves: None,
            timestamp: 0,
            server,
            bar,
            bytes_passed: 0,
            bytes_taken: 0,
            attempts: 0,
            acked_then: 0,
            reconnects: 0,
        }
    }

    pub fn lanes(&self) -> &[Lane] {
        &self.lanes
    }

    /// Sends all lines and waits for their acks. What was read before wrong input is sent too.
    pub fn run(&mut self, mut lines: Lines) -> Result<(), Failure> {
        match self.pump(&mut lines) {
            Ok(()) => self.settle().map_err(into_failure),
            Err(Stop::Input(wrong)) => match self.settle() {
                Ok(()) => Err(wrong),
                Err(stop) => Err(Failure(format!("{}\n{}", wrong.0, into_failure(stop).0))),
            },
            Err(Stop::Gone(failure)) => Err(failure),
        }
    }

    fn pump(&mut self, lines: &mut Lines) -> Result<(), Stop> {
        loop {
            self.bytes_passed = lines.bytes_passed();
            let deadline = self.deadline();
            match lines.next(deadline) {
                Ok(Next::Line(line)) => self.take(line)?,
                Ok(Next::Waiting) => self.idle()?,
                Ok(Next::End) => return Ok(()),
                Err(error) => {
                    let next = match &error {
                        LineError::TooLong { number, .. } => number + 1,
                        LineError::Read { number, .. } => number + 1,
                    };
                    return Err(Stop::Input(Failure(format!(
                        "{error}; resume with --from-line {next}"
                    ))));
                }
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let pending = || self.lanes.iter().any(Lane::has_pending);
        self.leaves.or_else(|| pending().then(|| Instant::now() + IDLE))
    }

    fn idle(&mut self) -> Result<(), Stop> {
        if self.leaves.is_some_and(|at| at <= Instant::now()) {
            self.ship()?;
        }
        for lane in 0..self.lanes.len() {
            if self.lanes[lane].has_pending() {
                self.carry_out(lane, Lane::poll)?;
            }
        }
        Ok(())
    }

    /// One line into the open batch.
    fn take(&mut self, line: &[u8]) -> Result<(), Stop> {
        self.line += 1;
        self.bytes_taken += line.len() as u64 + 1;
        let (key, value) = self.split(line).map_err(Stop::Input)?;
        let more = BatchBuilder::record_len_max(key, Some(value), &[]);
        if self.open.builder.plain_len() + more > self.settings.batch_bytes {
            self.ship()?;
        }
        if self.open.builder.is_empty() {
            self.open.first_line = self.line;
            self.leaves = Some(Instant::now() + self.settings.linger);
            self.timestamp = now_ms();
        }
        self.open.bytes += (key.map_or(0, <[u8]>::len) + value.len()) as u64;
        self.open.builder.append(key, Some(value), &[], self.timestamp);
        Ok(())
    }

    fn split<'l>(&self, line: &'l [u8]) -> Result<(Option<&'l [u8]>, &'l [u8]), Failure> {
        let Some(finder) = &self.finder else { return Ok((None, line)) };
        match finder.find(line) {
            Some(at) => Ok((line.get(..at), line.get(at + finder.needle().len()..).unwrap_or(&[]))),
            None => Err(Failure(format!(
                "line {} has no key: the separator {:?} is not in it; resume behind it with \
                 --from-line {}",
                self.line,
                String::from_utf8_lossy(finder.needle()),
                self.line + 1
            ))),
        }
    }

    /// The open batch leaves to the lane whose turn it is.
    fn ship(&mut self) -> Result<(), Stop> {
        self.bar.set_position(self.bytes_passed + self.bytes_taken);
        self.leaves = None;
        if self.open.builder.is_empty() {
            return Ok(());
        }
        let lane = self.turn;
        self.turn = (self.turn + 1) % self.lanes.len();
        let next = self.lanes[self.turn].empty_batch();
        let batch = std::mem::replace(&mut self.open, next);
        match self.lanes[lane].send(batch) {
            Err(error) if error.is_disconnect() => self.recover(lane, error)?,
            Err(error) => return Err(self.gone(&error)),
            Ok(()) => {}
        }
        self.check(lane)
    }

    /// Sends what is open and waits for every ack.
    fn settle(&mut self) -> Result<(), Stop> {
        self.ship()?;
        for lane in 0..self.lanes.len() {
            while self.lanes[lane].has_pending() {
                self.carry_out(lane, Lane::finish)?;
            }
        }
        Ok(())
    }

    fn carry_out(
        &mut self,
        lane: usize,
        step: fn(&mut Lane) -> Result<(), Error>,
    ) -> Result<(), Stop> {
        match step(&mut self.lanes[lane]) {
            Err(error) if error.is_disconnect() => self.recover(lane, error)?,
            Err(error) => return Err(self.gone(&error)),
            Ok(()) => {}
        }
        self.check(lane)
    }

    /// A refused batch ends the run, once what was sent behind it has its answers.
    fn check(&mut self, lane: usize) -> Result<(), Stop> {
        let reconnects: u64 = self.lanes.iter().map(Lane::reconnects).sum();
        if reconnects > self.reconnects {
            self.reconnects = reconnects;
            let lost = self.lanes[lane].partition;
            self.bar.suspend(|| {
                eprintln!("connected again for partition {lost}: what was unacked is sent again");
            });
        }
        if self.lanes[lane].refused.is_none() {
            return Ok(());
        }
        let rest = self.lanes[lane].finish();
        let lane = &self.lanes[lane];
        let Some((refused, batches)) = &lane.refused else { return Ok(()) };
        let Refused { first_line, records, error } = refused;
        let last_line = first_line + u64::from(*records) - 1;
        let mut text = format!("lines {first_line} to {last_line} were refused: {error}");
        if *batches > 1 {
            text.push_str(&format!("; so were {} batches behind them", batches - 1));
        }
        if let Err(error) = rest {
            text.push_str(&format!("; then {error}"));
        }
        if lane.acked_behind > 0 {
            text.push_str(&format!(
                "; {} records behind them are in the log: resume with care",
                lane.acked_behind
            ));
        } else {
            text.push_str(&format!("; resume with --from-line {first_line}"));
        }
        Err(Stop::Gone(Failure(text)))
    }

    /// Connects anew and goes on where the log ends, or says why not.
    fn recover(&mut self, lane: usize, mut error: Error) -> Result<(), Stop> {
        // An idempotent producer has tried already.
        let lone = self.lanes.len() == 1 && self.lanes[lane].begin_if_alone().is_some();
        if self.lanes[lane].is_idempotent() || !lone {
            return Err(self.gone(&error));
        }
        let acked = self.lanes[lane].acked.records;
        if acked > self.acked_then {
            (self.attempts, self.acked_then) = (0, acked);
        }
        let backoff = Backoff { attempts_max: u32::MAX, ..Backoff::default() };
        while self.attempts < self.settings.retries {
            self.attempts += 1;
            thread::sleep(backoff.delay(self.attempts).unwrap_or(backoff.cap));
            let once = Backoff { attempts_max: 1, ..backoff.clone() };
            let resumed =
                self.server.dial(once).and_then(|mut client| self.lanes[lane].resume(&mut client));
            match resumed {
                Ok(Resume::From { end, .. }) => {
                    let line = self.lanes[lane].first_pending_line().unwrap_or(self.line + 1);
                    self.bar.suspend(|| {
                        eprintln!(
                            "connected again: the log ends at {end}; going on with line {line}"
                        );
                    });
                    return Ok(());
                }
                Ok(other) => return Err(self.cannot_resume(lane, &other)),
                Err(again) if again.is_disconnect() => error = again,
                Err(fatal) => return Err(self.gone(&fatal)),
            }
        }
        Err(self.gone(&error))
    }

    fn cannot_resume(&self, lane: usize, found: &Resume) -> Stop {
        let line = self.first_uncertain_line();
        let partition = self.lanes[lane].partition;
        Stop::Gone(Failure(match found {
            Resume::AckedLost { expected, end } => format!(
                "partition {partition} ends at {end}, before what was acked ({expected}): either \
                 the level of those acks did not hold, or another log answers. The first line that \
                 is missing is {}",
                line.saturating_sub(expected.abs_diff(*end))
            ),
            Resume::NotAlone { expected, end } => format!(
                "partition {partition} ends at {end}, which is no boundary of what was sent behind \
                 {expected}: somebody else writes there too. Every line before {line} is in the \
                 log; look which of the others are, and resume with --from-line"
            ),
            Resume::From { .. } => unreachable!("that is no failure"),
        }))
    }

    /// All lines before it are in the log.
    fn first_uncertain_line(&self) -> u64 {
        let unsent =
            if self.open.builder.is_empty() { self.line + 1 } else { self.open.first_line };
        let pending = self.lanes.iter().filter_map(Lane::first_pending_line).min();
        pending.map_or(unsent, |line| line.min(unsent))
    }

    fn gone(&self, error: &Error) -> Stop {
        let line = self.first_uncertain_line();
        let begin = match self.lanes.as_slice() {
            [lane] => lane.begin_if_alone(),
            _ => None,
        };
        let resume = match begin {
            Some(begin) => format!(
                "perhaps some from there on: if nobody else writes there, resume with --from-line \
                 N, where N is the log's end (`ringlog offsets`) {}",
                plus(self.settings.from_line, begin)
            ),
            None => format!(
                "of the others some may be: resume with --from-line {line}, which may repeat them"
            ),
        };
        Stop::Gone(Failure(format!("{error}\nEvery line before {line} is in the log, {resume}")))
    }
}

/// `from_line - begin` as something to add.
fn plus(from_line: u64, begin: i64) -> String {
    let difference = i128::from(from_line) - i128::from(begin);
    if difference < 0 { format!("- {}", -difference) } else { format!("+ {difference}") }
}

fn into_failure(stop: Stop) -> Failure {
    match stop {
        Stop::Input(failure) | Stop::Gone(failure) => failure,
    }
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
