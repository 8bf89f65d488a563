//! The client: a protocol machine without I/O, two transports, and what stands on them.
//!
//! Owns: connections, reconnecting, metadata, producing, consuming, administration. Never does:
//! see the server's inside; it knows [`crate::protocol`] and [`crate::format`] only.
//! Left: `protocol`, `format`, `types`, `errors`. Right: the command line, the load generator,
//! tests, your program.
//!
//! ```no_run
//! use std::time::Duration;
//! use ringlog::client::{Backoff, Client, Options, Transport};
//! use ringlog::client::{Consumer, ConsumerOptions, Producer, ProducerOptions, Start};
//! use ringlog::types::AckLevel;
//!
//! # fn main() -> Result<(), ringlog::client::Error> {
//! let options = Options { transport: Transport::auto(), ..Options::default() };
//! let mut client = Client::connect("127.0.0.1:7440", options, Backoff::default())?;
//! client.create_topic("readings", 1, &[("flush.policy", "group")])?;
//!
//! // Every ack says what it waited for.
//! let options = ProducerOptions { ack: AckLevel::Durable, ..ProducerOptions::default() };
//! let mut producer = Producer::new(&mut client, "readings", 0, options)?;
//! for reading in ["20.5", "20.6", "20.4"] {
//!     producer.send(Some(b"kitchen"), Some(reading.as_bytes()), &[], 1_700_000_000_000)?;
//! }
//! producer.finish()?;
//! for ack in producer.drain_acks() {
//!     match ack.result {
//!         Ok(met) => println!("{} records at {:?}", ack.sent.records, met.base),
//!         Err(error) => eprintln!("batch {} was refused: {error}", ack.sent.number),
//!     }
//! }
//!
//! // To the end of the log; leave the `break` out to follow it.
//! let options = ConsumerOptions { max_wait: Duration::from_secs(1), ..Default::default() };
//! let mut consumer = Consumer::new(&mut client, "readings", 0, Start::Earliest, options)?;
//! loop {
//!     let polled = consumer.poll_through(&mut client, |record| {
//!         println!("{}: {:?}", record.offset, record.value);
//!     })?;
//!     if polled.at_end() {
//!         break;
//!     }
//! }
//! # Ok(())
//! # }
//! ```

pub mod admin;
pub mod backoff;
pub mod batches;
pub mod blocking;
pub mod cluster;
pub mod connection;
pub mod consumer;
pub mod error;
mod idempotent;
pub mod log_dirs;
pub mod machine;
pub mod metadata;
pub mod producer;
pub mod resume;
pub mod transport;
pub mod uring;

pub use backoff::Backoff;
pub use cluster::Client;
pub use connection::{Connection, Options, ServerInfo};
pub use consumer::{Consumer, ConsumerOptions, OutOfRange, Polled, Start};
pub use error::{Error, ServerError};
pub use idempotent::IDEMPOTENT_IN_FLIGHT_MAX;
pub use producer::{Ack, Met, Producer, ProducerOptions, Sent};
pub use resume::{Resume, resume_point};
pub use transport::Transport;
