//! Starting and stopping: the order in which threads, engines and files come and go.
//!
//! Owns: the threads. Never does: requests. Left: `config`, `control`, `shard`, `io`. Right: `cli`
//! (`run`), tests and the benchmark (`start`).
//!
//! Start: settings, engine, lock and scan of the data directories, shards with their listeners,
//! recovery, then connections. Stop: as `control` says; the locks go last.

use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::config::{
    Config, ConfigError, EngineFlag, FetchPathFlag, Flags, ValidateFlag, WritePathFlag,
};
use super::control::{Control, ControlError, Phase};
use super::homes::Homes;
use super::limits::Shares;
use crate::format::validate::Depth;
use crate::io::blocking::Blocking;
use crate::io::buffers::Pool;
use crate::io::engine::{self, Chosen, EngineKind};
use crate::io::lock::{DirLock, WithoutLocks};
use crate::io::op::Waker;
use crate::io::probe::{DirFacts, Features};
use crate::io::syscall::{SyscallIo, SyscallOptions};
use crate::io::uring::{UringIo, UringOptions, WritePath};
use crate::io::{Errno, FileId, Io, affinity, kernel, signal};
use crate::shard::mailbox::{ControlBox, FromShard, MAILBOX_MESSAGES_MAX, ShardBox, ToShard};
use crate::shard::{FetchPath, Hello, Shard, ShardConfig};
use crate::types::{AckLevel, Micros, ShardId};

/// What one compressed batch may expand to while it is checked (R88).
const DECOMPRESSED_BYTES_MAX: u64 = 256 << 20;

/// Buffer memory a ring registers, where the locked-memory limit allows it: a quarter of the limit
/// most systems set (8 MiB), which all processes of a user share.
const ARENA_BYTES: usize = 2 << 20;

/// How long, and how often, an address that is in use is tried again.
const LISTEN_TRIES_FOR: Duration = Duration::from_secs(2);
const LISTEN_TRY_EVERY: Duration = Duration::from_millis(50);

/// Why a server did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error("engine: {0}")]
    Engine(String),
    #[error("listening on {addr}: {why}; choose another address with --listen")]
    Listen { addr: SocketAddr, why: String },
    #[error("{0}")]
    Failed(String),
}

/// A server that serves.
pub struct Running {
    /// Where each shard listens, in order.
    pub addresses: Vec<SocketAddr>,
    control: SyncSender<FromShard>,
    thread: JoinHandle<Result<(), RunError>>,
}

impl Running {
    /// Stops gracefully and waits for the end.
    pub fn stop(self) -> Result<(), RunError> {
        // A control thread that has ended already takes no message and needs none.
        let _ = self.control.send(FromShard::StopAsked);
        self.wait()
    }

    /// Waits for the end.
    pub fn wait(self) -> Result<(), RunError> {
        match self.thread.join() {
            Ok(ended) => ended,
            Err(_) => Err(RunError::Failed("the control thread panicked".to_string())),
        }
    }
}

/// Serves until SIGTERM or SIGINT; prints where it listens on standard output.
pub fn run(flags: Flags) -> Result<(), RunError> {
    let running = start(flags)?;
    for address in &running.addresses {
        println!("listening on {address}");
    }
    let control = running.control.clone();
    signal::on_stop(move |stop| {
        tracing::info!("stopping: {stop:?}");
        // A control thread that has ended already takes no message and needs none.
        let _ = control.send(FromShard::StopAsked);
    })
    .map_err(|errno| RunError::Failed(format!("watching for SIGTERM: {errno}")))?;
    running.wait()
}

/// Starts a server on threads of its own; returns once it takes connections.
pub fn start(flags: Flags) -> Result<Running, RunError> {
    let cores = affinity::allowed_cores().map_err(|e| RunError::Failed(e.to_string()))?;
    let config = Config::resolve(flags, &cores)?;
    for line in config.lines() {
        tracing::info!("setting {line}");
    }
    match signal::raise_nofile() {
        Ok(_) => {}
        Err(errno) => tracing::warn!("open files: the limit stays as it is: {errno}"),
    }
    let (to_control, from_shards) = sync_channel(MAILBOX_MESSAGES_MAX);
    let (ready, is_ready) = sync_channel(1);
    let sender = to_control.clone();
    let thread = std::thread::Builder::new()
        .name("control".to_string())
        .spawn(move || serve(config, sender, &from_shards, &ready))
        .map_err(|e| RunError::Failed(format!("starting the control thread: {e}")))?;
    match is_ready.recv() {
        Ok(addresses) => Ok(Running { addresses, control: to_control, thread }),
        Err(_) => Err(match thread.join() {
            Ok(Err(error)) => error,
            _ => RunError::Failed("the control thread ended before it served".to_string()),
        }),
    }
}

/// The control thread, from start to end.
fn serve(
    config: Config,
    sender: SyncSender<FromShard>,
    messages: &Receiver<FromShard>,
    ready: &SyncSender<Vec<SocketAddr>>,
) -> Result<(), RunError> {
    let mut chosen = choose_engine(&config)?;
    let mut io = SyscallIo::new(SyscallOptions::inline())
        .map_err(|e| RunError::Engine(format!("the control thread's engine: {e}")))?;
    let mut blocking = Blocking::new(&mut io, Pool::new(64 << 20));
    let without_locks =
        if config.allow_unlocked { WithoutLocks::Proceed } else { WithoutLocks::Refuse };
    let mut lock = |dir: &Path| DirLock::acquire(dir, without_locks).map(Some);
    let (homes, topics) = Homes::open(&mut blocking, &config.data_dirs, &mut lock)?;
    let write_path = write_path(&config, &chosen, &probe(&homes));
    let started = Threads::start(&config, &chosen, write_path, &sender);
    let mut threads = match started {
        // R60: one ring worked, as many as there are shards do not.
        Err(RunError::Engine(why)) if may_fall_back(&config, &chosen) => {
            tracing::warn!("engine syscall: running on plain system calls, which is slower: {why}");
            chosen = Chosen { kind: EngineKind::Syscall, why, is_fallback: true };
            Threads::start(&config, &chosen, write_path, &sender)?
        }
        started => started?,
    };
    let addresses = threads.addresses.clone();
    let boxes = threads.boxes.clone();
    threads.introduce(hello(&config, &chosen, &homes, &addresses));
    tracing::info!("{}", shares(&config).line(homes.found().count()));
    let interval = config.checkpoint_interval;
    let mut control = Control::new(io, config, homes, topics, boxes)?;
    control.open_all();
    let mut told = false;
    let mut next = Instant::now() + interval;
    while control.phase() != Phase::Ended {
        let left = next.saturating_duration_since(Instant::now());
        let wait = control.removal_due().map_or(left, |due| due.min(left));
        match messages.recv_timeout(wait) {
            Ok(message) => control.handle_all(message, messages.try_iter()),
            Err(RecvTimeoutError::Timeout) if Instant::now() >= next => {
                control.checkpoint();
                next = Instant::now() + interval;
            }
            Err(RecvTimeoutError::Timeout) => control.remove_some(),
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if control.phase() == Phase::Serving && !told {
            told = true;
            tracing::info!("serving {addresses:?}");
            let _ = ready.send(addresses.clone());
        }
    }
    threads.join();
    // The locks of the data directories go with `control`, behind everything else.
    control.failure().map_or(Ok(()), |why| Err(RunError::Failed(why)))
}

fn choose_engine(config: &Config) -> Result<Chosen, RunError> {
    let kind = match config.engine {
        EngineFlag::Auto => EngineKind::Auto,
        EngineFlag::Uring => EngineKind::Uring,
        EngineFlag::Syscall => EngineKind::Syscall,
    };
    let chosen = engine::choose(kind, &Features::probe());
    let chosen = chosen.map_err(|e| RunError::Engine(e.to_string()))?;
    match chosen.is_fallback {
        true => tracing::warn!("engine {}: {}", chosen.kind, chosen.why),
        false => tracing::info!("engine {}: {}", chosen.kind, chosen.why),
    }
    Ok(chosen)
}

fn may_fall_back(config: &Config, chosen: &Chosen) -> bool {
    config.engine == EngineFlag::Auto && chosen.kind != EngineKind::Syscall
}

/// What each directory that is online is good for.
fn probe(homes: &Homes) -> Vec<DirFacts> {
    let mut all = Vec::new();
    for dir in homes.dirs().iter().filter(|dir| dir.failure().is_none()) {
        match DirFacts::probe(&dir.path) {
            Ok(facts) => {
                let device = facts.device.as_ref().map_or("no known device", |one| &one.name);
                tracing::info!(
                    "data directory {}: {} on {device}, {} partitions",
                    dir.path.display(),
                    facts.fs,
                    dir.partitions()
                );
                all.push(facts);
            }
            // A full disk, say: what is there can be served (R21).
            Err(errno) => tracing::warn!("data directory {}: {errno}", dir.path.display()),
        }
    }
    all
}

/// Where buffered writes go, and the start lines that say what the directories are good for (D15).
fn write_path(config: &Config, chosen: &Chosen, dirs: &[DirFacts]) -> WritePath {
    tracing::info!("flush policy {}: {}", config.flush, config.flush.promise());
    for facts in dirs.iter().filter(|facts| !facts.durable.holds) {
        tracing::warn!(
            "flush policy {}: {} - but not in {}: {}",
            config.flush,
            config.flush.promise(),
            facts.path.display(),
            facts.durable.why
        );
    }
    // One ring serves all directories: it writes inline only where that is so in each of them.
    let slowest = dirs.iter().find(|facts| !facts.inline_writes.inline).or(dirs.first());
    let (path, why) = match config.write_path {
        WritePathFlag::Ring => (WritePath::Ring, "asked for"),
        WritePathFlag::Direct => (WritePath::Direct, "asked for"),
        WritePathFlag::Auto => match slowest {
            Some(facts) => (facts.write_path(), facts.inline_writes.why.as_str()),
            None => (WritePath::Direct, "no directory could be tried"),
        },
    };
    if chosen.kind != EngineKind::Syscall {
        tracing::info!("buffered writes: {path:?} ({why})");
    }
    path
}

fn hello(config: &Config, chosen: &Chosen, homes: &Homes, at: &[SocketAddr]) -> Hello {
    let host = |address: &SocketAddr| match &config.advertise {
        Some(host) => host.clone(),
        None if address.ip().is_unspecified() => String::new(),
        None => address.ip().to_string(),
    };
    Hello {
        server: format!("ringlog {}", env!("CARGO_PKG_VERSION")),
        cluster_id: homes.cluster_id().to_string(),
        node_id: homes.node_id(),
        engine: chosen.kind.to_string(),
        flush_policy: config.flush.to_string(),
        policy_level: match config.flush.promises_durable() {
            true => AckLevel::Durable,
            false => AckLevel::Written,
        },
        promise: config.flush.promise(),
        shards: at.iter().map(|address| (host(address), address.port())).collect(),
    }
}

/// What a shard's thread tells once its engine and its listener exist.
struct Born {
    waker: Waker,
    address: SocketAddr,
}

type Introduction = (Hello, Receiver<ToShard>);

/// The shards' threads.
struct Threads {
    handles: Vec<JoinHandle<()>>,
    boxes: Vec<ShardBox>,
    inboxes: Vec<Receiver<ToShard>>,
    introductions: Vec<SyncSender<Introduction>>,
    addresses: Vec<SocketAddr>,
}

impl Threads {
    fn start(
        config: &Config,
        chosen: &Chosen,
        write_path: WritePath,
        control: &SyncSender<FromShard>,
    ) -> Result<Threads, RunError> {
        let mut threads = Threads {
            handles: Vec::new(),
            boxes: Vec::new(),
            inboxes: Vec::new(),
            introductions: Vec::new(),
            addresses: Vec::new(),
        };
        for (shard, &core) in config.cores.iter().enumerate() {
            let id = ShardId(shard as u16);
            let (born, is_born) = sync_channel(1);
            let (introduce, introduction) = sync_channel(1);
            let seed = Seed {
                id,
                core,
                config: config.clone(),
                kind: chosen.kind,
                write_path,
                control: control.clone(),
                born,
                introduction,
            };
            let handle = std::thread::Builder::new()
                .name(format!("shard-{shard}"))
                .spawn(move || seed.grow())
                .map_err(|e| RunError::Failed(format!("starting shard {shard}: {e}")))?;
            let Born { waker, address } = is_born
                .recv()
                .unwrap_or_else(|_| Err(RunError::Failed(format!("shard {shard} died"))))?;
            let (mailbox, inbox) = ShardBox::new(waker);
            threads.handles.push(handle);
            threads.boxes.push(mailbox);
            threads.inboxes.push(inbox);
            threads.introductions.push(introduce);
            threads.addresses.push(address);
        }
        Ok(threads)
    }

    /// Every address is known: the shards begin to turn.
    fn introduce(&mut self, hello: Hello) {
        let inboxes = self.inboxes.drain(..);
        for (inbox, introduce) in inboxes.zip(self.introductions.drain(..)) {
            let _ = introduce.send((hello.clone(), inbox));
        }
    }

    fn join(self) {
        for handle in self.handles {
            // A panic was reported by the shard itself.
            let _ = handle.join();
        }
    }
}

/// All a shard's thread is born with.
struct Seed {
    id: ShardId,
    core: usize,
    config: Config,
    kind: EngineKind,
    write_path: WritePath,
    control: SyncSender<FromShard>,
    born: SyncSender<Result<Born, RunError>>,
    introduction: Receiver<Introduction>,
}

impl Seed {
    /// The whole life of a shard's thread.
    fn grow(self) {
        if let Err(errno) = affinity::pin(self.core) {
            tracing::warn!("shard {} is not pinned to core {}: {errno}", self.id, self.core);
        }
        let (id, control) = (self.id, self.control.clone());
        let lived = std::panic::catch_unwind(AssertUnwindSafe(|| match self.kind {
            EngineKind::Syscall => self.on_calls(),
            EngineKind::Auto | EngineKind::Uring => self.on_ring(),
        }));
        let why = match lived {
            Ok(Ok(())) => return,
            Ok(Err(why)) => why,
            Err(_) => "it panicked; the lines above say where".to_string(),
        };
        let _ = control.send(FromShard::Failed { shard: id, why });
    }

    fn on_calls(self) -> Result<(), String> {
        let pool = Pool::new(self.config.shard_memory_bytes);
        match SyscallIo::new(SyscallOptions::default()) {
            Ok(io) => self.live(io, pool),
            Err(errno) => self.stillborn(&format!("system calls: {errno}")),
        }
    }

    fn on_ring(self) -> Result<(), String> {
        let pool = Pool::with_arena(self.config.shard_memory_bytes, ARENA_BYTES);
        let write_path = self.write_path;
        let mut io = match UringIo::new(UringOptions { write_path, ..UringOptions::default() }) {
            Ok(io) => io,
            Err(error) => return self.stillborn(&error.to_string()),
        };
        if let Some(arena) = pool.arena()
            && let Err(why) = io.register_arena(&arena)
        {
            tracing::info!("shard {}: {why}", self.id);
        }
        self.live(io, pool)
    }

    fn stillborn(self, why: &str) -> Result<(), String> {
        let _ = self.born.send(Err(RunError::Engine(why.to_string())));
        Ok(())
    }

    fn live<I: Io>(self, mut io: I, pool: Pool) -> Result<(), String> {
        let mut addr = self.config.listen;
        if addr.port() != 0 {
            addr.set_port(addr.port().saturating_add(self.id.0));
        }
        let (listener, address) = match listen(&mut io, addr) {
            Ok(listening) => listening,
            Err(errno) => {
                let _ = self.born.send(Err(RunError::Listen { addr, why: errno.to_string() }));
                return Ok(());
            }
        };
        let _ = self.born.send(Ok(Born { waker: io.waker(), address }));
        // The start failed elsewhere: nothing to do.
        let Ok((hello, inbox)) = self.introduction.recv() else { return Ok(()) };
        let config = shard_config(self.id, &self.config, hello);
        let control = ControlBox::new(self.control.clone());
        let mut shard = Shard::new(io, pool, config, listener, inbox, control);
        while !shard.is_ended() {
            shard.tick().map_err(|errno| format!("its engine: {errno}"))?;
        }
        Ok(())
    }
}

/// A killed server's ring may hold its listeners for a moment longer: an address in use is tried
/// again for a while.
fn listen<I: Io>(io: &mut I, addr: SocketAddr) -> Result<(FileId, SocketAddr), Errno> {
    let until = Instant::now() + LISTEN_TRIES_FOR;
    loop {
        match io.listen(addr) {
            Err(Errno(libc::EADDRINUSE)) if Instant::now() < until => {
                std::thread::sleep(LISTEN_TRY_EVERY);
            }
            result => return result,
        }
    }
}

/// Of the limit that holds now: it was raised at the start.
fn shares(config: &Config) -> Shares {
    let limit = kernel::nofile().soft;
    Shares::new(limit, u64::from(config.shards), config.connections_max as u64)
}

fn shard_config(id: ShardId, config: &Config, hello: Hello) -> ShardConfig {
    ShardConfig {
        id,
        fetch_path: match config.fetch_path {
            FetchPathFlag::Send => FetchPath::Send,
            FetchPathFlag::Sendfile => FetchPath::Sendfile,
        },
        depth: match config.validate {
            ValidateFlag::Deep => Depth::Deep,
            ValidateFlag::Records => Depth::Records,
        },
        decompressed_bytes_max: DECOMPRESSED_BYTES_MAX,
        frame_bytes_max: config.frame_bytes_max as u32,
        fetch_bytes_max: config.fetch_bytes_max,
        in_flight_max: config.in_flight_max,
        connections_max: config.connections_max,
        stop_timeout: Micros(config.stop_timeout.min(Duration::from_secs(3600)).as_micros() as u64),
        retention_interval: Micros(config.retention_check_interval.as_micros() as u64),
        files_max: shares(config).files_per_shard,
        hello,
    }
}
