//! Lines out of a file or a pipe, read ahead by a thread, at several hundred MB/s.
//!
//! Owns: the reading thread, its few buffers (recycled, so a steady stream allocates nothing), a
//! line that lies across two of them. Never does: look at what a line says, hold a line longer
//! than the bound.
//! Left: nothing. Right: [`super::produce`].

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::Instant;

/// Bytes a read may bring.
const CHUNK_BYTES: usize = 256 << 10;
/// Buffers in all: one is being read into, one is being cut into lines, two wait.
const CHUNKS: usize = 4;

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub enum Next<'a> {
    /// Without its newline.
    Line(&'a [u8]),
    /// Nothing more came before the deadline.
    Waiting,
    End,
}

#[derive(Debug, thiserror::Error)]
pub enum LineError {
    #[error("line {number} is longer than {max} bytes, which is the most that a batch may hold")]
    TooLong { number: u64, max: usize },
    #[error("reading after line {number}: {source}")]
    Read { number: u64, source: io::Error },
}

type Chunk = io::Result<Vec<u8>>;

pub struct Lines {
    full: Receiver<Chunk>,
    empty: Sender<Vec<u8>>,
    chunk: Vec<u8>,
    /// Where in the chunk the next line begins.
    at: usize,
    /// The front of a line that began in an earlier chunk.
    carry: Vec<u8>,
    /// The carry was handed out as a line.
    carry_used: bool,
    /// Lines handed out.
    number: u64,
    /// Lines before this one are passed over, however long they are.
    first: u64,
    bytes_passed: u64,
    line_bytes_max: usize,
    ended: bool,
}

impl Lines {
    /// Reads `from` in a thread of its own, which ends with it or with this. The lines begin with
    /// number `first`, counted from 1.
    pub fn new(from: impl Read + Send + 'static, line_bytes_max: usize, first: u64) -> Lines {
        let (full_sender, full) = sync_channel(CHUNKS);
        let (empty, empty_receiver) = channel();
        for _ in 1..CHUNKS {
            let _ = empty.send(vec![0; CHUNK_BYTES]); // the receiver is in this frame
        }
        thread::spawn(move || read_ahead(from, &empty_receiver, &full_sender));
        Lines {
            full,
            empty,
            chunk: Vec::new(),
            at: 0,
            carry: Vec::new(),
            carry_used: false,
            number: 0,
            first,
            bytes_passed: 0,
            line_bytes_max,
            ended: false,
        }
    }

    /// Bytes in front of the first line.
    pub fn bytes_passed(&self) -> u64 {
        self.bytes_passed
    }

    /// The next line. Waits for input up to `deadline`, and looks at the clock only when it has
    /// to ask for more; without a deadline it waits for ever. A last line needs no newline.
    pub fn next(&mut self, deadline: Option<Instant>) -> Result<Next<'_>, LineError> {
        if self.carry_used {
            self.carry.clear();
            self.carry_used = false;
        }
        loop {
            self.pass_over();
            let rest = &self.chunk[self.at..];
            if let Some(len) = memchr::memchr(b'\n', rest) {
                let line = self.at..self.at + len;
                self.check_len(len)?;
                self.at = line.end + 1;
                self.number += 1;
                if self.carry.is_empty() {
                    return Ok(Next::Line(&self.chunk[line]));
                }
                self.carry.extend_from_slice(&self.chunk[line]);
                self.carry_used = true;
                return Ok(Next::Line(&self.carry));
            }
            self.check_len(rest.len())?;
            self.carry.extend_from_slice(rest);
            self.at = self.chunk.len();
            match self.refill(deadline)? {
                Refilled::More => {}
                Refilled::Later => return Ok(Next::Waiting),
                Refilled::Never if self.carry.is_empty() => return Ok(Next::End),
                Refilled::Never => {
                    self.carry_used = true;
                    self.number += 1;
                    return Ok(Next::Line(&self.carry));
                }
            }
        }
    }

    /// Drops what the chunk holds of lines before the first.
    fn pass_over(&mut self) {
        while self.number + 1 < self.first && self.at < self.chunk.len() {
            let rest = &self.chunk[self.at..];
            let newline = memchr::memchr(b'\n', rest);
            let len = newline.map_or(rest.len(), |at| at + 1);
            self.number += u64::from(newline.is_some());
            self.at += len;
            self.bytes_passed += len as u64;
        }
    }

    /// `more` bytes on top of the carry must still be a line that can be sent.
    fn check_len(&self, more: usize) -> Result<(), LineError> {
        if self.carry.len() + more > self.line_bytes_max {
            let (number, max) = (self.number + 1, self.line_bytes_max);
            return Err(LineError::TooLong { number, max });
        }
        Ok(())
    }

    fn refill(&mut self, deadline: Option<Instant>) -> Result<Refilled, LineError> {
        if self.ended {
            return Ok(Refilled::Never);
        }
        let received = match deadline {
            None => self.full.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(at) => {
                let wait = at.saturating_duration_since(Instant::now());
                if wait.is_zero() {
                    return Ok(Refilled::Later);
                }
                self.full.recv_timeout(wait)
            }
        };
        match received {
            Ok(Ok(chunk)) => {
                let used = std::mem::replace(&mut self.chunk, chunk);
                self.at = 0;
                if used.capacity() > 0 {
                    let _ = self.empty.send(used); // the thread may have ended
                }
                Ok(Refilled::More)
            }
            Ok(Err(source)) => {
                self.ended = true;
                Err(LineError::Read { number: self.number, source })
            }
            Err(RecvTimeoutError::Timeout) => Ok(Refilled::Later),
            Err(RecvTimeoutError::Disconnected) => {
                self.ended = true;
                Ok(Refilled::Never)
            }
        }
    }
}

enum Refilled {
    More,
    Later,
    Never,
}

/// Hands on what each read brings, so that a slow pipe is not waited for.
fn read_ahead(mut from: impl Read, empty: &Receiver<Vec<u8>>, full: &SyncSender<Chunk>) {
    while let Ok(mut chunk) = empty.recv() {
        chunk.resize(CHUNK_BYTES, 0);
        let sent = match from.read(&mut chunk) {
            Ok(0) => return,
            Ok(len) => {
                chunk.truncate(len);
                full.send(Ok(chunk))
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                chunk.clear();
                full.send(Ok(chunk))
            }
            Err(error) => full.send(Err(error)),
        };
        if sent.is_err() {
            return; // nobody listens any more
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    /// Reads as many bytes at once as the list says, round and round.
    struct Dribble {
        bytes: Vec<u8>,
        at: usize,
        steps: Vec<usize>,
        turn: usize,
    }

    impl Read for Dribble {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let step = self.steps[self.turn % self.steps.len()];
            self.turn += 1;
            let len = step.min(out.len()).min(self.bytes.len() - self.at);
            out[..len].copy_from_slice(&self.bytes[self.at..self.at + len]);
            self.at += len;
            Ok(len)
        }
    }

    fn collect(bytes: &[u8], steps: Vec<usize>, max: usize) -> Result<Vec<Vec<u8>>, LineError> {
        let from = Dribble { bytes: bytes.to_vec(), at: 0, steps, turn: 0 };
        let mut lines = Lines::new(from, max, 1);
        let mut all = Vec::new();
        loop {
            match lines.next(None)? {
                Next::Line(line) => all.push(line.to_vec()),
                Next::Waiting => panic!("without a deadline"),
                Next::End => break,
            }
        }
        Ok(all)
    }

    /// What the lines of `bytes` are, the plain way.
    fn expected(bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut all: Vec<Vec<u8>> =
            bytes.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        if all.last().is_some_and(Vec::is_empty) {
            all.pop();
        }
        all
    }

    proptest! {
        #[test]
        fn lines_are_the_same_however_they_come(
            bytes in prop::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..400),
            steps in prop::collection::vec(1usize..50, 1..5),
        ) {
            prop_assert_eq!(collect(&bytes, steps, 1000).expect("short lines"), expected(&bytes));
        }
    }

    #[test]
    fn lines_before_the_first_are_passed_over_however_long() {
        for steps in [vec![1], vec![3], vec![1000]] {
            for (first, wanted) in [(1, None), (3, Some("c d")), (4, Some("d")), (6, Some(""))] {
                let bytes = format!("a\n{}\nc\nd", "b".repeat(200)).into_bytes();
                let from = Dribble { bytes, at: 0, steps: steps.clone(), turn: 0 };
                let mut lines = Lines::new(from, 10, first);
                let mut got = Vec::new();
                let ended = loop {
                    match lines.next(None) {
                        Ok(Next::Line(line)) => {
                            got.push(String::from_utf8_lossy(line).into_owned())
                        }
                        Ok(_) => break Some(got.join(" ")),
                        Err(_) => break None,
                    }
                };
                assert_eq!(ended.as_deref(), wanted, "first {first}, steps {steps:?}");
            }
        }
    }

    #[test]
    fn a_line_may_be_longer_than_a_chunk() {
        let mut bytes = vec![b'a'; 3 * CHUNK_BYTES + 5];
        bytes.extend_from_slice(b"\nshort\n");
        let all = collect(&bytes, vec![usize::MAX], 4 * CHUNK_BYTES).expect("within the bound");
        assert_eq!(all, [vec![b'a'; 3 * CHUNK_BYTES + 5], b"short".to_vec()]);
    }

    #[test]
    fn a_line_beyond_the_bound_is_named() {
        for steps in [vec![1], vec![7], vec![1000]] {
            for tail in ["", "\n", "\nmore\n"] {
                let fits = format!("one\n{}{tail}", "x".repeat(20));
                assert!(collect(fits.as_bytes(), steps.clone(), 20).is_ok());
                let long = format!("one\n{}{tail}", "x".repeat(21));
                let error = collect(long.as_bytes(), steps.clone(), 20).expect_err("too long");
                assert!(error.to_string().starts_with("line 2 is longer than 20 bytes"), "{error}");
            }
        }
    }

    #[test]
    fn a_quiet_pipe_keeps_to_the_deadline_and_loses_nothing() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        let mut lines = Lines::new(reader, 100, 1);
        io::Write::write_all(&mut writer, b"whole\nhal").expect("room");
        let soon = || Some(Instant::now() + Duration::from_millis(20));
        let mut waits = 0;
        loop {
            match lines.next(soon()).expect("reads") {
                Next::Line(line) => break assert_eq!(line, b"whole"),
                Next::Waiting => waits += 1,
                Next::End => panic!("the pipe is open"),
            }
            assert!(waits < 1000);
        }
        assert_eq!(lines.next(soon()).expect("reads"), Next::Waiting);
        io::Write::write_all(&mut writer, b"f").expect("room");
        drop(writer);
        assert_eq!(lines.next(None).expect("reads"), Next::Line(b"half"));
        assert_eq!(lines.next(None).expect("reads"), Next::End);
    }
}
