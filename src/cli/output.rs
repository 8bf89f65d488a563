//! Standard output in large writes, for what may be gigabytes.
//!
//! Owns: the buffer, and what a closed pipe means: the reader has enough, which is no failure.
//! Never does: format.
//! Left: `cli`. Right: `consume`, `dump`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;

use super::Failure;

/// Bytes a write.
const BUFFER_BYTES: usize = 256 << 10;

/// Errors are kept until [`Output::finish`], so that inner loops need not look.
pub struct Output {
    to: BufWriter<File>,
    error: Option<io::Error>,
}

impl Output {
    /// Standard output without the line buffer of `std::io::stdout`.
    pub fn stdout() -> Result<Output, Failure> {
        let descriptor = io::stdout().as_fd().try_clone_to_owned();
        let file = File::from(descriptor.map_err(|e| Failure(format!("standard output: {e}")))?);
        Ok(Output { to: BufWriter::with_capacity(BUFFER_BYTES, file), error: None })
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        if self.error.is_none() {
            self.error = self.to.write_all(bytes).err();
        }
    }

    pub fn line(&mut self, line: &[u8]) {
        self.bytes(line);
        self.bytes(b"\n");
    }

    /// A value as JSON, on one line, without the newline.
    pub fn json(&mut self, value: &impl serde::Serialize) {
        if self.error.is_none() {
            self.error = serde_json::to_writer(&mut self.to, value).err().map(io::Error::from);
        }
    }

    /// Hands on what is buffered: before a wait, before standard error gets a line.
    pub fn flush(&mut self) {
        if self.error.is_none() {
            self.error = self.to.flush().err();
        }
    }

    /// Nothing that is put from now on arrives anywhere.
    pub fn is_closed(&self) -> bool {
        self.error.is_some()
    }

    /// Writes the rest. A closed pipe is a quiet end.
    pub fn finish(mut self) -> Result<(), Failure> {
        self.flush();
        let error = self.error.take();
        let (_, _unwritten) = self.to.into_parts(); // without a second attempt
        match error {
            Some(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(Failure(format!("standard output: {error}")))
            }
            _ => Ok(()),
        }
    }
}

/// One line on standard output, for commands that print few. A closed pipe is no failure.
pub fn print_line(line: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{line}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}
