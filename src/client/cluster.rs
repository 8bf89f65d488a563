//! A server as a whole: one connection a shard, opened when needed, and its metadata.
//!
//! Owns: [`Client`], reconnecting, sending a request to the partition's owner. Never does:
//! repeat a request that may have changed something, pipeline.
//! Left: [`super::connection`], [`super::metadata`], [`super::backoff`].
//! Right: `admin`, `producer`, `consumer`, users.

use std::thread;

use super::backoff::Backoff;
use super::connection::{Connection, Options, ServerInfo};
use super::error::Error;
use super::metadata::Metadata;
use crate::protocol::Request;
use crate::protocol::metadata::{MetadataRequest, MetadataResponse, PartitionMeta};
use crate::types::ShardId;

/// A client of one server. Not `Send`: a tokio-uring transport lives on its thread.
pub struct Client {
    dialled: String,
    options: Options,
    backoff: Backoff,
    info: ServerInfo,
    /// By shard; a broken one is opened anew at its next use.
    connections: Vec<Option<Connection>>,
    metadata: Metadata,
}

impl Client {
    /// Connects to any shard of the server, trying as long as the back-off says.
    pub fn connect(server: &str, options: Options, backoff: Backoff) -> Result<Client, Error> {
        let connection = open(server, &options, &backoff)?;
        let info = connection.info().clone();
        let mut client = Client {
            dialled: server.to_owned(),
            options,
            backoff,
            info,
            connections: Vec::new(),
            metadata: Metadata::default(),
        };
        client.keep(connection);
        Ok(client)
    }

    pub fn info(&self) -> &ServerInfo {
        &self.info
    }

    /// The address that was dialled first.
    pub fn dialled(&self) -> &str {
        &self.dialled
    }

    pub fn options(&self) -> &Options {
        &self.options
    }

    /// As of the last refresh.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn keep(&mut self, connection: Connection) {
        self.info = connection.info().clone();
        let shard = usize::from(self.info.shard.0);
        let len = self.connections.len().max(shard + 1).max(self.info.shards.len());
        self.connections.resize_with(len, || None);
        self.connections[shard] = Some(connection);
    }

    /// A connection of the caller's own, for pipelining.
    pub fn open(&mut self, shard: ShardId) -> Result<Connection, Error> {
        let address = self.address(shard);
        match Connection::open(&address, &self.options) {
            Ok(connection) if connection.info().shard == shard => Ok(connection),
            // Restarted on other ports, or refusing: the dialled address tells the new ones.
            _ => {
                let connection = open(&self.dialled, &self.options, &self.backoff)?;
                self.keep(connection);
                open(&self.address(shard), &self.options, &self.backoff)
            }
        }
    }

    fn address(&self, shard: ShardId) -> String {
        self.info.shards.get(usize::from(shard.0)).unwrap_or(&self.dialled).clone()
    }

    /// The shared connection to a shard, opened if need be.
    fn connection(&mut self, shard: ShardId) -> Result<&mut Connection, Error> {
        let at = usize::from(shard.0);
        let usable =
            self.connections.get(at).and_then(Option::as_ref).is_some_and(|c| !c.is_broken());
        if !usable {
            let connection = self.open(shard)?;
            self.keep(connection);
        }
        let address = self.dialled.clone();
        let kept = self.connections.get_mut(at).and_then(Option::as_mut);
        kept.ok_or(Error::Closed { address, unanswered: 0 })
    }

    /// Asks a shard; the answer is then in that connection.
    pub fn call<'a, R: Request<'a>>(
        &mut self,
        shard: ShardId,
        request: &R,
    ) -> Result<&Connection, Error> {
        let connection = self.connection(shard)?;
        connection.call(request)?;
        Ok(connection)
    }

    /// Asks any shard; which one. A request that changes nothing (`repeatable`) is asked again,
    /// once, when a kept connection turns out to be dead.
    fn ask_any<'a, R: Request<'a>>(
        &mut self,
        request: &R,
        repeatable: bool,
    ) -> Result<ShardId, Error> {
        let shard = self.info.shard;
        match self.connection(shard)?.call(request) {
            Err(error) if repeatable && error.is_disconnect() => {
                self.connection(shard)?.call(request)?;
            }
            done => done?,
        }
        Ok(shard)
    }

    pub(super) fn call_any<'a, R: Request<'a>>(
        &mut self,
        request: &R,
        repeatable: bool,
    ) -> Result<&Connection, Error> {
        let shard = self.ask_any(request, repeatable)?;
        Ok(self.connection(shard)?)
    }

    /// Asks the owner of a partition; `request` is made anew for each handle. On NOT_OWNER and
    /// STALE_HANDLE, which both mean that nothing was done, the metadata is read again; after a
    /// lost connection or from a stopping server it is asked again only if it is `repeatable`. The
    /// back-off paces and bounds all of it.
    pub fn call_owner<'a, R: Request<'a>>(
        &mut self,
        topic: &str,
        partition: u32,
        repeatable: bool,
        request: impl Fn(PartitionMeta) -> R,
    ) -> Result<&Connection, Error> {
        let mut asks = 0;
        loop {
            let owner = self.partition(topic, partition)?;
            let asked = self.connection(owner.shard)?.call(&request(owner));
            match asked {
                Ok(()) => return Ok(self.connection(owner.shard)?),
                Err(error) if error.is_moved() && self.pause(asks) => self.metadata.forget(topic),
                Err(error) if repeatable && error.may_pass() && self.pause(asks) => {}
                Err(error) => return Err(error),
            }
            asks += 1;
        }
    }

    /// Where a partition is, from the cache or from the server.
    pub fn partition(&mut self, topic: &str, partition: u32) -> Result<PartitionMeta, Error> {
        if self.metadata.partition(topic, partition).is_none() {
            self.refresh(Some(&[topic]))?;
        }
        self.metadata
            .partition(topic, partition)
            .ok_or_else(|| Error::NoPartition { topic: topic.to_owned(), partition })
    }

    /// Reads metadata of the named topics, or of all.
    pub fn refresh(&mut self, topics: Option<&[&str]>) -> Result<&Metadata, Error> {
        let request = match topics {
            Some(names) => MetadataRequest::Names(names.to_vec()),
            None => MetadataRequest::All,
        };
        let shard = self.ask_any(&request, true)?;
        if let Some(Some(connection)) = self.connections.get(usize::from(shard.0)) {
            let response: MetadataResponse<'_> = connection.response()?;
            match topics {
                Some(_) => self.metadata.update(&response),
                None => self.metadata.replace(&response),
            }
        }
        Ok(&self.metadata)
    }

    /// Waits as the back-off says before going on for the `attempt`-th time (from 0); false: give
    /// up.
    pub(super) fn pause(&self, attempt: u32) -> bool {
        let delay = self.backoff.delay(attempt);
        delay.inspect(|&delay| thread::sleep(delay)).is_some()
    }

    pub(super) fn forget(&mut self, topic: &str) {
        self.metadata.forget(topic);
    }
}

/// Opens a connection, again and again as the back-off says.
fn open(address: &str, options: &Options, backoff: &Backoff) -> Result<Connection, Error> {
    let mut attempt = 0;
    loop {
        let result = Connection::open(address, options);
        attempt += 1;
        match result {
            Err(error) if error.is_disconnect() => match backoff.delay(attempt) {
                Some(delay) => thread::sleep(delay),
                None => return Err(error),
            },
            done => return done,
        }
    }
}
