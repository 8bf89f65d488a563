//! Settings: as typed (flags, environment, file), then resolved, bounded, immutable.
//!
//! Owns: every tunable of the server, its default and its bounds; the order flag, then
//! environment, then file, then default. Never does: act on a setting. Left: `units`, `policy`.
//! Right: `run`, which prints the result, and the result rows of the benchmark, which copy it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Deserializer, Serialize};

use super::topic_config::{Defaults, canonical};
use super::units::{Size, Span};
use crate::log::LogConfig;
use crate::policy::flush::FlushPolicy;

pub const DEFAULT_LISTEN: &str = "127.0.0.1:7440";

/// Which engine carries ops out.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineFlag {
    /// The ring where it works, else plain system calls with one warning
    Auto,
    /// The ring, or an error that says why not
    Uring,
    /// Plain system calls
    Syscall,
}

/// How fetched bytes reach the socket.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FetchPathFlag {
    /// Read into a buffer behind the response head, one send
    Send,
    /// Head with MSG_MORE, then sendfile(2)
    Sendfile,
}

/// How far record batches of clients are looked into before they are stored.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ValidateFlag {
    /// Header, CRC and every record, compressed batches decompressed in bounded steps (as Kafka)
    Deep,
    /// Header, CRC and every record of uncompressed batches; compressed ones by header and CRC
    Records,
}

/// Where a buffered write is carried out.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WritePathFlag {
    /// By file system: the ring where it writes inline (XFS, btrfs), else the shard's own call
    Auto,
    /// The ring, worker threads included
    Ring,
    /// pwritev2(2) on the shard's thread
    Direct,
}

macro_rules! flags {
    ($($(#[$meta:meta])+ $name:ident: $kind:ty, $env:literal [$($extra:tt)*];)+) => {
        /// The server's settings as typed; each may come from its flag, its `RINGLOG_*` variable
        /// or the TOML file that `--config` names, in this order.
        #[derive(clap::Args, Deserialize, Clone, Debug, Default)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
        pub struct Flags {
            $($(#[$meta])+
            #[arg(long, env = $env, $($extra)*)]
            pub $name: Option<$kind>,)+
        }

        impl Flags {
            /// Each value from here, else from `below`.
            fn or_whole(self, below: Flags) -> Flags {
                Flags { $($name: self.$name.or(below.$name),)+ }
            }
        }
    };
}

flags! {
    /// Directory of partitions, created if missing; several (repeated, or with commas between) take
    /// new partitions in turn, and the first has the topics
    #[serde(deserialize_with = "one_or_more")]
    data_dir: Vec<PathBuf>, "RINGLOG_DATA_DIR" [value_name = "DIR", value_delimiter = ','];
    /// First listening address; shard i takes port + i, with port 0 each takes a free one
    /// [default: 127.0.0.1:7440]
    listen: SocketAddr, "RINGLOG_LISTEN" [value_name = "HOST:PORT"];
    /// Host that clients are told to dial; without it they keep the host they dialled
    advertise: String, "RINGLOG_ADVERTISE" [value_name = "HOST"];
    /// Threads, each with its own core, ring and port [default: one a core, at most 64]
    shards: u16, "RINGLOG_SHARDS" [value_name = "N"];
    /// Cores of the shards, in order, such as 0,2 [default: the allowed ones in order]
    cores: String, "RINGLOG_CORES" [value_name = "LIST"];
    /// What carries operations out [default: auto]
    engine: EngineFlag, "RINGLOG_ENGINE" [];
    /// Flush policy of topics that name none: os, interval:10ms, bytes:1MiB, records:1000, each,
    /// group, group:50us [default: group]
    flush: FlushPolicy, "RINGLOG_FLUSH" [value_name = "POLICY"];
    /// How fetched bytes reach the socket [default: send]
    fetch_path: FetchPathFlag, "RINGLOG_FETCH_PATH" [];
    /// Where buffered writes are carried out [default: auto]
    write_path: WritePathFlag, "RINGLOG_WRITE_PATH" [];
    /// How far batches of clients are looked into [default: deep]
    validate: ValidateFlag, "RINGLOG_VALIDATE" [];
    /// Largest request, length prefix excluded [default: 8MiB]
    frame_max: Size, "RINGLOG_FRAME_MAX" [value_name = "SIZE"];
    /// Most bytes one fetch returns [default: 8MiB]
    fetch_max: Size, "RINGLOG_FETCH_MAX" [value_name = "SIZE"];
    /// Requests a connection may have unanswered [default: 256]
    in_flight_max: u32, "RINGLOG_IN_FLIGHT_MAX" [value_name = "N"];
    /// Connections a shard accepts [default: 4096]
    connections_max: u32, "RINGLOG_CONNECTIONS_MAX" [value_name = "N"];
    /// Buffer memory of a shard: receives, batches under write, replies [default: 256MiB]
    shard_memory: Size, "RINGLOG_SHARD_MEMORY" [value_name = "SIZE"];
    /// Partitions of the whole server [default: 65536]
    partitions_max: u32, "RINGLOG_PARTITIONS_MAX" [value_name = "N"];
    /// Segment size of topics that set none [default: 1GiB]
    segment_bytes: Size, "RINGLOG_SEGMENT_BYTES" [value_name = "SIZE"];
    /// What recovery may keep aside of cut tails in each partition's directory; past it nothing is
    /// cut and the partition is read-only [default: 8GiB]
    cut_bytes_max: Size, "RINGLOG_CUT_BYTES_MAX" [value_name = "SIZE"];
    /// A setting of topics that set none, by its name among the topics', such as
    /// retention.ms=1day; may be given many times, and as the table [topic-defaults] of the file
    #[serde(rename = "topic-defaults", deserialize_with = "defaults_table")]
    topic_default: Vec<TopicDefault>, "RINGLOG_TOPIC_DEFAULT"
        [value_name = "KEY=VALUE", value_delimiter = ';'];
    /// How often recovery points are written down [default: 60s]
    checkpoint_interval: Span, "RINGLOG_CHECKPOINT_INTERVAL" [value_name = "TIME"];
    /// How often each partition's segments are checked against its retention; the first time 30 s
    /// after the start, or this much if it is less [default: 5m]
    retention_check_interval: Span, "RINGLOG_RETENTION_CHECK_INTERVAL" [value_name = "TIME"];
    /// A producer that is silent for so long is forgotten: its next batch is taken as it comes
    /// [default: 1day]
    producer_expiration: Span, "RINGLOG_PRODUCER_EXPIRATION" [value_name = "TIME"];
    /// How often silent producers are looked for [default: 10min]
    producer_check_interval: Span, "RINGLOG_PRODUCER_CHECK_INTERVAL" [value_name = "TIME"];
    /// How long a stop may take before connections are cut [default: 10s]
    stop_timeout: Span, "RINGLOG_STOP_TIMEOUT" [value_name = "TIME"];
    /// Start although the file system cannot lock files (two servers would destroy the data)
    allow_unlocked: bool, "RINGLOG_ALLOW_UNLOCKED"
        [num_args = 0..=1, default_missing_value = "true"];
}

impl Flags {
    /// Fills what is not set here from `below`, topic defaults one by one.
    pub fn or(mut self, mut below: Flags) -> Flags {
        if let (Some(own), Some(more)) = (&mut self.topic_default, below.topic_default.take()) {
            let missing = |one: &TopicDefault| !own.iter().any(|known| known.0 == one.0);
            let missing: Vec<_> = more.into_iter().filter(missing).collect();
            own.extend(missing);
        }
        self.or_whole(below)
    }
}

/// One topic setting that the server gives a value: name and text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicDefault(pub String, pub String);

impl FromStr for TopicDefault {
    type Err = String;

    fn from_str(text: &str) -> Result<TopicDefault, String> {
        match text.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => {
                Ok(TopicDefault(key.trim().to_string(), value.trim().to_string()))
            }
            _ => Err("give KEY=VALUE, retention.ms=1day for one".to_string()),
        }
    }
}

/// The names have dots, which TOML takes for tables in tables.
fn defaults_table<'de, D>(deserializer: D) -> Result<Option<Vec<TopicDefault>>, D::Error>
where
    D: Deserializer<'de>,
{
    let mut found = Vec::new();
    flatten("", toml::Table::deserialize(deserializer)?, &mut found)
        .map_err(serde::de::Error::custom)?;
    Ok(Some(found))
}

fn flatten(prefix: &str, table: toml::Table, out: &mut Vec<TopicDefault>) -> Result<(), String> {
    for (key, value) in table {
        let name = format!("{prefix}{key}");
        let text = match value {
            toml::Value::Table(inner) => {
                flatten(&format!("{name}."), inner, out)?;
                continue;
            }
            toml::Value::String(text) => text,
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Float(number) => number.to_string(),
            toml::Value::Boolean(flag) => flag.to_string(),
            other => return Err(format!("{name}: {} is no value", other.type_str())),
        };
        out.push(TopicDefault(name, text));
    }
    Ok(())
}

/// The settings in force: every value present and within its bounds.
#[derive(Clone, Debug, Serialize)]
pub struct Config {
    /// At least one, none twice.
    pub data_dirs: Vec<PathBuf>,
    pub listen: SocketAddr,
    pub advertise: Option<String>,
    pub shards: u16,
    pub cores: Vec<usize>,
    pub engine: EngineFlag,
    #[serde(serialize_with = "as_text")]
    pub flush: FlushPolicy,
    pub fetch_path: FetchPathFlag,
    pub write_path: WritePathFlag,
    pub validate: ValidateFlag,
    pub frame_bytes_max: usize,
    pub fetch_bytes_max: usize,
    pub in_flight_max: usize,
    pub connections_max: usize,
    pub shard_memory_bytes: usize,
    pub partitions_max: usize,
    pub cut_bytes_max: u64,
    /// Of topics that set none, by their names among the topics'; --flush and --segment-bytes are
    /// among them.
    pub topic_defaults: BTreeMap<String, String>,
    #[serde(serialize_with = "as_span")]
    pub checkpoint_interval: Duration,
    /// Kafka's `log.retention.check.interval.ms`.
    #[serde(serialize_with = "as_span")]
    pub retention_check_interval: Duration,
    #[serde(serialize_with = "as_span")]
    pub producer_expiration: Duration,
    #[serde(serialize_with = "as_span")]
    pub producer_check_interval: Duration,
    #[serde(serialize_with = "as_span")]
    pub stop_timeout: Duration,
    pub allow_unlocked: bool,
}

/// A text with one path, or a list of them.
fn one_or_more<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Option<Vec<PathBuf>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Given {
        One(PathBuf),
        More(Vec<PathBuf>),
    }
    Ok(Some(match Given::deserialize(d)? {
        Given::One(path) => vec![path],
        Given::More(paths) => paths,
    }))
}

fn as_text<T: std::fmt::Display, S: serde::Serializer>(v: &T, s: S) -> Result<S::Ok, S::Error> {
    s.collect_str(v)
}

fn as_span<S: serde::Serializer>(v: &Duration, s: S) -> Result<S::Ok, S::Error> {
    s.collect_str(&Span(*v))
}

/// A setting that cannot be: which, why, and what would do.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ConfigError {
    #[error("--{name}: {given} is outside {bounds}")]
    OutOfBounds { name: &'static str, given: String, bounds: String },
    #[error("--data-dir is needed: name the directory that holds the partitions")]
    NoDataDir,
    #[error("--data-dir {} is named twice", dir.display())]
    DataDirTwice { dir: PathBuf },
    #[error("--cores {given:?}: {why}; write core numbers such as 0,1 out of {allowed:?}")]
    Cores { given: String, why: String, allowed: Vec<usize> },
    #[error("--topic-default: {0}")]
    TopicDefault(String),
    #[error("--config {path}: {why}")]
    File { path: String, why: String },
    #[error("--shard-memory {given} is below {least}: twice --frame-max plus --fetch-max")]
    Memory { given: Size, least: Size },
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// What the protocol allows a frame at most.
const FRAME_MAX: u64 = 256 * MIB;

fn bounded(
    name: &'static str,
    given: Option<Size>,
    default: u64,
    bounds: (u64, u64),
) -> Result<u64, ConfigError> {
    let value = given.map_or(default, |size| size.0);
    if (bounds.0..=bounds.1).contains(&value) {
        return Ok(value);
    }
    let (low, high) = (Size(bounds.0), Size(bounds.1));
    let bounds = format!("{low} to {high}");
    Err(ConfigError::OutOfBounds { name, given: Size(value).to_string(), bounds })
}

fn counted(
    name: &'static str,
    given: Option<u32>,
    default: u32,
    bounds: (u32, u32),
) -> Result<usize, ConfigError> {
    let value = given.unwrap_or(default);
    if (bounds.0..=bounds.1).contains(&value) {
        return Ok(value as usize);
    }
    let bounds = format!("{} to {}", bounds.0, bounds.1);
    Err(ConfigError::OutOfBounds { name, given: value.to_string(), bounds })
}

fn resolve_data_dirs(given: Vec<PathBuf>) -> Result<Vec<PathBuf>, ConfigError> {
    let given: Vec<PathBuf> = given.into_iter().filter(|dir| !dir.as_os_str().is_empty()).collect();
    if given.is_empty() {
        return Err(ConfigError::NoDataDir);
    }
    for (at, dir) in given.iter().enumerate() {
        if given[..at].contains(dir) {
            return Err(ConfigError::DataDirTwice { dir: dir.clone() });
        }
    }
    Ok(given)
}

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Kafka counts these in whole milliseconds, from 1 on.
fn at_least_ms(
    name: &'static str,
    given: Option<Span>,
    default: Duration,
) -> Result<Duration, ConfigError> {
    let value = given.map_or(default, |span| span.0);
    let most = DAY * 36_500;
    if (Duration::from_millis(1)..=most).contains(&value) {
        return Ok(value);
    }
    let bounds = format!("1ms to {}", Span(most));
    Err(ConfigError::OutOfBounds { name, given: Span(value).to_string(), bounds })
}

fn resolve_cores(
    given: Option<&str>,
    shards: Option<u16>,
    allowed: &[usize],
) -> Result<Vec<usize>, ConfigError> {
    let fault = |why: String| ConfigError::Cores {
        given: given.unwrap_or_default().to_string(),
        why,
        allowed: allowed.to_vec(),
    };
    let cores = match given {
        None => allowed.to_vec(),
        Some(list) => list
            .split(',')
            .map(|core| core.trim().parse().map_err(|_| fault(format!("{core:?} is no number"))))
            .collect::<Result<Vec<usize>, _>>()?,
    };
    if let Some(core) = cores.iter().find(|core| !allowed.contains(core)) {
        return Err(fault(format!("core {core} is not allowed to this process")));
    }
    if cores.is_empty() {
        return Err(fault("no core named".to_string()));
    }
    let shards = shards.map_or(cores.len().min(64), usize::from);
    // More shards than cores share them round: allowed, measured at one's own risk.
    Ok((0..shards).map(|shard| cores[shard % cores.len()]).collect())
}

/// The topic settings that the server gives, under whichever of its names.
fn topic_defaults(flags: &Flags) -> Result<BTreeMap<String, String>, ConfigError> {
    let twice = |name: &str, flag: &str| {
        ConfigError::TopicDefault(format!("{name} is given twice{flag}: set one of them"))
    };
    let mut defaults = BTreeMap::new();
    for TopicDefault(name, text) in flags.topic_default.iter().flatten() {
        let value = canonical(name, text).map_err(ConfigError::TopicDefault)?;
        if defaults.insert(name.clone(), value).is_some() {
            return Err(twice(name, ""));
        }
    }
    let named = [
        ("flush.policy", "--flush", flags.flush.map(|policy| policy.to_string())),
        ("segment.bytes", "--segment-bytes", flags.segment_bytes.map(|size| size.0.to_string())),
    ];
    for (name, flag, value) in named {
        let Some(value) = value else { continue };
        if defaults.insert(name.to_string(), value).is_some() {
            return Err(twice(name, &format!(", the other time as {flag}")));
        }
    }
    Ok(defaults)
}

impl Config {
    /// Checks every bound. `allowed` are the cores this process may run on.
    pub fn resolve(flags: Flags, allowed: &[usize]) -> Result<Config, ConfigError> {
        let shards = counted("shards", flags.shards.map(u32::from), 1, (1, 64))?;
        let cores =
            resolve_cores(flags.cores.as_deref(), flags.shards.map(|_| shards as u16), allowed)?;
        let frame_max = bounded("frame-max", flags.frame_max, 8 * MIB, (64 * KIB, FRAME_MAX))?;
        let fetch_max = bounded("fetch-max", flags.fetch_max, 8 * MIB, (4 * KIB, FRAME_MAX / 2))?;
        let memory = bounded("shard-memory", flags.shard_memory, 256 * MIB, (4 * MIB, 1024 * GIB))?;
        let least = 2 * frame_max + fetch_max;
        if memory < least {
            return Err(ConfigError::Memory { given: Size(memory), least: Size(least) });
        }
        bounded("segment-bytes", flags.segment_bytes, GIB, (KIB, 2 * GIB - 1))?;
        let topic_defaults = topic_defaults(&flags)?;
        let defaults = Defaults::new(LogConfig::default(), &topic_defaults);
        let defaults = defaults.map_err(ConfigError::TopicDefault)?.settings();
        Ok(Config {
            data_dirs: resolve_data_dirs(flags.data_dir.unwrap_or_default())?,
            listen: flags
                .listen
                .unwrap_or_else(|| DEFAULT_LISTEN.parse().expect("a literal address")),
            advertise: flags.advertise,
            shards: cores.len() as u16,
            cores,
            engine: flags.engine.unwrap_or(EngineFlag::Auto),
            flush: defaults.log.flush,
            fetch_path: flags.fetch_path.unwrap_or(FetchPathFlag::Send),
            write_path: flags.write_path.unwrap_or(WritePathFlag::Auto),
            validate: flags.validate.unwrap_or(ValidateFlag::Deep),
            frame_bytes_max: frame_max as usize,
            fetch_bytes_max: fetch_max as usize,
            in_flight_max: counted("in-flight-max", flags.in_flight_max, 256, (1, 65536))?,
            connections_max: counted("connections-max", flags.connections_max, 4096, (1, 65536))?,
            shard_memory_bytes: memory as usize,
            partitions_max: counted("partitions-max", flags.partitions_max, 65536, (1, 1 << 20))?,
            cut_bytes_max: flags.cut_bytes_max.map_or(8 * GIB, |size| size.0),
            topic_defaults,
            checkpoint_interval: flags
                .checkpoint_interval
                .map_or(Duration::from_secs(60), |span| span.0),
            retention_check_interval: flags
                .retention_check_interval
                .map_or(Duration::from_secs(300), |span| span.0)
                .clamp(Duration::from_millis(1), Duration::from_secs(366 * 24 * 3600)),
            producer_expiration: at_least_ms(
                "producer-expiration",
                flags.producer_expiration,
                DAY,
            )?,
            producer_check_interval: at_least_ms(
                "producer-check-interval",
                flags.producer_check_interval,
                Duration::from_secs(600),
            )?,
            stop_timeout: flags.stop_timeout.map_or(Duration::from_secs(10), |span| span.0),
            allow_unlocked: flags.allow_unlocked.unwrap_or(false),
        })
    }

    /// The settings as `name value` lines for the start of the log.
    pub fn lines(&self) -> Vec<String> {
        let value = serde_json::to_value(self).unwrap_or_default();
        let Some(map) = value.as_object() else { return Vec::new() };
        map.iter()
            .map(|(name, value)| match value.as_str() {
                Some(text) => format!("{name} {text}"),
                None => format!("{name} {value}"),
            })
            .collect()
    }
}

/// Reads the settings of a TOML file; names as the flags, without the dashes in front.
pub fn read_file(path: &Path) -> Result<Flags, ConfigError> {
    let fault = |why: String| ConfigError::File { path: path.display().to_string(), why };
    let text = std::fs::read_to_string(path).map_err(|e| fault(e.to_string()))?;
    toml::from_str(&text).map_err(|e| fault(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags() -> Flags {
        Flags { data_dir: Some(vec!["d".into()]), ..Flags::default() }
    }

    #[test]
    fn defaults_resolve_and_a_flag_wins_over_the_file() {
        let file: Flags = toml::from_str("shards = 2\nframe-max = \"1MiB\"\nflush = \"each\"")
            .expect("the file parses");
        let config = Config::resolve(Flags { shards: Some(1), ..flags() }.or(file), &[0, 1])
            .expect("in bounds");
        assert_eq!((config.shards, config.frame_bytes_max), (1, 1 << 20));
        assert_eq!(config.flush.to_string(), "each");
        assert_eq!(config.cores, [0]);
    }

    #[test]
    fn data_directories_are_one_or_a_list_and_none_twice() {
        let dirs = |text: &str| {
            let flags: Flags = toml::from_str(text).expect("the file parses");
            Config::resolve(flags, &[0]).map(|config| config.data_dirs)
        };
        assert_eq!(dirs("data-dir = \"a\""), Ok(vec!["a".into()]));
        assert_eq!(dirs("data-dir = [\"a\", \"b\"]"), Ok(vec!["a".into(), "b".into()]));
        assert_eq!(dirs("data-dir = [\"\"]"), Err(ConfigError::NoDataDir));
        let twice = dirs("data-dir = [\"a\", \"b\", \"a/\"]").expect_err("twice").to_string();
        assert_eq!(twice, "--data-dir a/ is named twice");
    }

    #[test]
    fn what_is_out_of_bounds_is_named_with_its_bounds() {
        let big = Flags { frame_max: Some(Size(2 << 30)), ..flags() };
        let error = Config::resolve(big, &[0]).expect_err("too big").to_string();
        assert_eq!(error, "--frame-max: 2GiB is outside 64KiB to 256MiB");
        let core = Flags { cores: Some("0,9".into()), ..flags() };
        let error = Config::resolve(core, &[0, 1]).expect_err("no such core").to_string();
        assert!(error.contains("core 9 is not allowed"), "{error}");
        assert!(toml::from_str::<Flags>("sharsd = 2").is_err());
    }
    #[test]
    fn topic_defaults_come_from_flags_and_the_file_one_by_one() {
        let file = "flush = \"each\"\n[topic-defaults]\nretention.ms = \"7days\"\n\
                    segment.ms = 1000\n\"compression.type\" = \"zstd\"\npreallocate = false\n";
        let file: Flags = toml::from_str(file).expect("the file parses");
        let given = vec!["retention.ms=1h".parse().expect("a pair")];
        let both = Flags { topic_default: Some(given), ..flags() }.or(file);
        let config = Config::resolve(both, &[0]).expect("in bounds");
        let of = |name: &str| config.topic_defaults.get(name).map(String::as_str);
        assert_eq!((of("retention.ms"), of("segment.ms")), (Some("3600000"), Some("1000")));
        assert_eq!((of("compression.type"), of("flush.policy")), (Some("zstd"), Some("each")));
        assert_eq!(config.flush, FlushPolicy::Each);
        for (given, hint) in [
            ("flush.policy=os", "flush.policy is given twice"),
            ("flush.ms=5", "both say when to flush"),
            ("retention.hours=5", "\"retention.ms\""),
            ("log.roll.ms=5", "\"segment.ms\""),
            ("segment.bytes=5", "1024"),
        ] {
            let topic_default = Some(vec![given.parse().expect("a pair")]);
            let wrong = Flags { topic_default, flush: Some(FlushPolicy::Each), ..flags() };
            let why = Config::resolve(wrong, &[0]).expect_err(given).to_string();
            assert!(why.contains(hint) && why.starts_with("--topic-default"), "{why}");
        }
    }
}
