//! One partition: Kafka's log as segments, from staged bytes to durable ones and back to readers.
//!
//! Sans-I/O: bytes and completions come in, operations go out; whoever owns the engine carries
//! them out. The cold path (create, open, data directory) runs over [`crate::io::blocking`]
//! instead. Owns: segments and their indexes, the watermarks, waiters, recovery. Never does: a
//! system call, a clock read, anything that knows a protocol or a socket. Left: `format`,
//! `policy`, `io` (ops and buffers only). Right: `shard`.
//!
//! A batch's way: [`Partition::append`] gives it an offset and a place (`staged`), `appender`
//! writes it with its neighbours (`written`), `flush_queue` settles it (`durable`), `watermarks`
//! says how far readers see, `locate` and `by_time` find it again.

mod appender;
mod batches;
mod by_time;
mod closing;
mod config;
mod create;
pub mod datadir;
mod descriptors;
mod filejob;
mod flush_queue;
mod held;
mod idempotence;
mod isolation;
mod lineage;
mod locate;
mod op_sink;
mod partition;
mod producers;
mod recovery;
mod removal;
mod retention;
mod roll;
mod sealing;
mod segment;
mod segments;
mod space;
mod staging;
mod step;
mod tail;
mod undo;
mod watermarks;

pub use batches::{BatchSummary, Batches, Summaries};
pub use by_time::{TimeLookup, Timed, When};
pub use config::LogConfig;
pub use create::{CreateError, METADATA_NAME, create};
pub use flush_queue::{Ack, AckError, Stamps, Waiter};
pub use held::HeldFile;
pub use isolation::View;
pub use lineage::Diverged;
pub use locate::{FileRange, Located, OffsetLookup};
pub use op_sink::{LocalTag, OpSink};
pub use partition::{LogCounters, Partition, PartitionState, Refusal, Staged};
pub use producers::REMEMBERED_MAX;
pub use recovery::{Cut, Damaged, Fault, OpenError, OpenParams, OpenReport, open};
pub use retention::DeleteRefusal;
pub use segment::Damage;
pub use step::Step;
