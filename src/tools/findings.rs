//! What may be wrong in a data directory, said so that an operator can act (R59): what, where,
//! what it does, what to do next.
//!
//! Owns: the shape of a finding and the words for effect and next step. Never does: look.
//! Left: nobody. Right: `verify`, the CLI.

use std::path::PathBuf;

/// The kinds of findings: each has one effect and one next step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The last bytes of the last segment are no whole, sound batch.
    TornTail,
    /// Bytes in the log that are no sound batch.
    Damage,
    /// A sound batch whose offsets cannot follow what stands before it.
    Order,
    /// A sound batch whose records cannot be read.
    Records,
    Index,
    TimeIndex,
    TxnIndex,
    Snapshot,
    Epochs,
    Metadata,
    Checkpoint,
    /// The log ends before what was flushed or shown to readers.
    LogEnd,
    /// A file without the log that it belongs to.
    Orphan,
    /// What an interrupted compaction left.
    Unfinished,
    Foreign,
    Unreadable,
}

impl Kind {
    pub const fn name(self) -> &'static str {
        match self {
            Kind::TornTail => "torn tail",
            Kind::Damage => "damage",
            Kind::Order => "offset order",
            Kind::Records => "records",
            Kind::Index => "offset index",
            Kind::TimeIndex => "time index",
            Kind::TxnIndex => "transaction index",
            Kind::Snapshot => "producer snapshot",
            Kind::Epochs => "leader epochs",
            Kind::Metadata => "partition metadata",
            Kind::Checkpoint => "checkpoint",
            Kind::LogEnd => "log end",
            Kind::Orphan => "orphan",
            Kind::Unfinished => "unfinished compaction",
            Kind::Foreign => "foreign file",
            Kind::Unreadable => "unreadable",
        }
    }

    pub const fn effect(self) -> &'static str {
        match self {
            Kind::TornTail => {
                "not served; the next start of the server cuts these bytes off the log and keeps \
                 them beside it in a file that `ringlog cuts` lists"
            }
            Kind::Damage => {
                "these offsets are lost: a fetch of them answers with an error; what lies before \
                 and behind is served"
            }
            Kind::Order => "readers may see an offset twice or out of order",
            Kind::Records => "consumers that read this batch fail on it",
            Kind::Index => {
                "lookups by offset in this segment may miss, or read more than they need"
            }
            Kind::TimeIndex => "lookups by time and retention by time may go wrong here",
            Kind::TxnIndex => "readers of committed records may be shown aborted ones",
            Kind::Snapshot => {
                "not used: the state of idempotent producers is read from an older snapshot and \
                 the log"
            }
            Kind::Epochs => "readers may not be told of a cut; the next start repairs the file",
            Kind::Metadata => "a broker takes this directory for stray and does not serve it",
            Kind::Checkpoint => {
                "taken for empty: the next start checks more of the logs, and readers may see \
                 deleted records again"
            }
            Kind::LogEnd => {
                "what lay there was flushed or shown to readers, and is not in the log any more"
            }
            Kind::Orphan => "none: the next start removes it",
            Kind::Unfinished => "records may stand in two files until the next start",
            Kind::Foreign => "none on the log; a broker may refuse a directory with foreign ones",
            Kind::Unreadable => "what it holds could not be checked",
        }
    }

    /// `dir` is the directory that a command would be given.
    pub fn next_step(self, dir: &str) -> String {
        match self {
            Kind::TornTail => {
                "none if a server is running here (a batch may be on its way: run this again); \
                 else start it, then see `ringlog cuts list`"
                    .to_owned()
            }
            Kind::Damage | Kind::Records => {
                "restore the file from a copy; else let consumers skip these offsets".to_owned()
            }
            Kind::Order => {
                "look at the batches with `ringlog dump`; restore the file from a copy".to_owned()
            }
            Kind::Index | Kind::TimeIndex | Kind::TxnIndex | Kind::Snapshot => {
                format!("stop the server and run `ringlog index-rebuild {dir}`")
            }
            Kind::LogEnd => {
                "look for the missing bytes before the server starts: it goes on at the log's end"
                    .to_owned()
            }
            Kind::Epochs | Kind::Orphan => {
                "none: the server sees to it when it starts after an unclean stop".to_owned()
            }
            Kind::Metadata => "write it anew with the topic's id, or create the topic".to_owned(),
            Kind::Checkpoint => {
                "none if this is no surprise: the server writes it anew at its next stop".to_owned()
            }
            Kind::Unfinished => "start the server: it finishes or undoes the swap".to_owned(),
            Kind::Foreign => "move it out of the directory".to_owned(),
            Kind::Unreadable => "see to its permissions and to the device".to_owned(),
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    pub kind: Kind,
    pub path: PathBuf,
    /// The byte where it begins.
    pub pos: Option<u64>,
    /// The offsets that it concerns: the first, and the one behind the last if that is known.
    pub offsets: Option<(i64, Option<i64>)>,
    /// What is wrong.
    pub fault: String,
}

impl Finding {
    pub fn new(kind: Kind, path: impl Into<PathBuf>, fault: impl ToString) -> Finding {
        Finding { kind, path: path.into(), pos: None, offsets: None, fault: fault.to_string() }
    }

    #[must_use]
    pub fn at(mut self, pos: u64) -> Finding {
        self.pos = Some(pos);
        self
    }

    #[must_use]
    pub fn offsets(mut self, first: i64, next: Option<i64>) -> Finding {
        self.offsets = Some((first, next));
        self
    }
}

/// Who is told while a directory is looked through.
pub trait Watch {
    fn finding(&mut self, finding: Finding);
    /// What is sound, if unusual.
    fn note(&mut self, path: &std::path::Path, text: String);
    /// This many bytes of logs have been read since the last call.
    fn progress(&mut self, bytes: u64);
}
