//! Which way each operation will go, and why.
//!
//! Owns: the table that `probe` prints. Never does: steer anything; the engines do what it says
//! (a test compares). Left: `dir`, `engine`. Right: `render`, `cli`.

use serde::Serialize;

use super::Features;
use super::dir::DirFacts;
use crate::io::engine::EngineKind;

/// The ways an operation can go.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Path {
    #[serde(rename = "ring, inline")]
    RingInline,
    #[serde(rename = "ring, worker")]
    RingWorker,
    #[serde(rename = "system call")]
    Direct,
    #[serde(rename = "worker pool")]
    Pool,
    #[serde(rename = "epoll")]
    Epoll,
    #[serde(rename = "timer heap")]
    Timer,
}

impl Path {
    pub fn name(self) -> &'static str {
        match self {
            Path::RingInline => "ring, inline",
            Path::RingWorker => "ring, worker",
            Path::Direct => "system call",
            Path::Pool => "worker pool",
            Path::Epoll => "epoll",
            Path::Timer => "timer heap",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OpPath {
    pub operation: &'static str,
    pub path: Path,
    pub why: String,
}

fn row(operation: &'static str, path: Path, why: impl Into<String>) -> OpPath {
    OpPath { operation, path, why: why.into() }
}

/// The table for the engine that will run (`Auto` counts as the ring) in a directory.
pub fn table(engine: EngineKind, features: &Features, dir: &DirFacts) -> Vec<OpPath> {
    match engine {
        EngineKind::Syscall => on_system_calls(),
        EngineKind::Auto | EngineKind::Uring => on_ring(features, dir),
    }
}

fn on_ring(features: &Features, dir: &DirFacts) -> Vec<OpPath> {
    let worker = "the kernel always hands it to a worker thread";
    let write = match dir.inline_writes.inline {
        true => row("write, buffered", Path::RingInline, &dir.inline_writes.why),
        false => {
            row("write, buffered", Path::Direct, format!("{}: {}", dir.fs, dir.inline_writes.why))
        }
    };
    let direct = match dir.direct.works {
        true => row("write, direct", Path::RingInline, "inside the file's size; else a worker"),
        false => row("write, direct", Path::Direct, format!("not here: {}", dir.direct.why)),
    };
    let truncate = match features.has_opcode("FTRUNCATE") {
        true => row("truncate", Path::RingWorker, worker),
        false => row("truncate", Path::Direct, "this kernel has no FTRUNCATE entry (6.9)"),
    };
    vec![
        row("accept", Path::RingInline, "the ring polls the listener"),
        row("receive, send", Path::RingInline, "the ring polls the socket when it would wait"),
        row("sendfile", Path::Direct, "there is no entry; a full socket is polled by the ring"),
        row("read", Path::RingInline, "a page that is not cached is awaited without a worker"),
        write,
        direct,
        row("flush (fdatasync)", Path::RingWorker, worker),
        row("start write-back", Path::RingWorker, worker),
        row("open, existing", Path::RingInline, "when its name is cached; else a worker"),
        row("open, creating", Path::RingWorker, worker),
        row("close, file", Path::RingWorker, "asked for: the last close may free blocks"),
        row("close, socket", Path::Direct, "short"),
        truncate,
        row("drop cache", Path::RingWorker, worker),
        row("rename, unlink, mkdir", Path::RingWorker, worker),
        row("sync directory", Path::RingWorker, worker),
        row("stat", Path::RingWorker, worker),
        row("list, file length", Path::Direct, "there is no entry"),
        row("timeout", Path::Timer, "one wait serves them all"),
    ]
}

fn on_system_calls() -> Vec<OpPath> {
    let blocks = "it blocks for long: a few threads take it";
    vec![
        row("accept", Path::Epoll, "tried at once, then on an edge"),
        row("receive, send", Path::Epoll, "tried at once, then on an edge"),
        row("sendfile", Path::Epoll, "tried at once, then on an edge"),
        row("read", Path::Direct, "blocks while a page is fetched"),
        row("write, buffered", Path::Direct, "blocks while dirty pages are throttled"),
        row("write, direct", Path::Direct, "blocks for the device"),
        row("flush (fdatasync)", Path::Pool, blocks),
        row("start write-back", Path::Pool, blocks),
        row("open, existing", Path::Direct, "short when its name is cached"),
        row("open, creating", Path::Pool, blocks),
        row("close, file", Path::Pool, "the last close may free blocks"),
        row("close, socket", Path::Direct, "short"),
        row("truncate", Path::Pool, blocks),
        row("drop cache", Path::Pool, blocks),
        row("rename, unlink, mkdir", Path::Pool, blocks),
        row("sync directory", Path::Pool, blocks),
        row("stat, list", Path::Pool, blocks),
        row("file length", Path::Direct, "short"),
        row("timeout", Path::Timer, "one wait serves them all"),
    ]
}
