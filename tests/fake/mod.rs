//! A server of the protocol on blocking sockets that does what a test tells it.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use ringlog::errors::ErrorCode;
use ringlog::format::batch;
use ringlog::protocol::Message;
use ringlog::protocol::api::{self, Api, RequestHeader};
use ringlog::protocol::error::{Detail, encode_error};
use ringlog::protocol::fetch::{FetchRequest, FetchResponse, PartData, PartHead};
use ringlog::protocol::frame::{self, Scan};
use ringlog::protocol::hello::{HelloResponse, Limits, ShardAddress};
use ringlog::protocol::metadata::{MetadataRequest, MetadataResponse, PartitionMeta, TopicMeta};
use ringlog::protocol::offsets::{FlushResponse, ListOffsetsRequest, ListOffsetsResponse, special};
use ringlog::protocol::produce::{ProduceRequest, ProduceResponse};
use ringlog::types::{AckLevel, Handle, Offset, ShardId};

/// One accepted connection.
pub struct Peer {
    pub stream: TcpStream,
    pub shard: u16,
    pub ports: Vec<u16>,
    pub in_flight_max: u32,
    buffer: Vec<u8>,
}

/// The address of shard 0. Each connection gets its own thread: its number and its peer.
pub fn start(handler: impl Fn(usize, Peer) + Send + Sync + 'static) -> String {
    start_shards(1, handler).remove(0)
}

pub fn start_shards(
    shards: u16,
    handler: impl Fn(usize, Peer) + Send + Sync + 'static,
) -> Vec<String> {
    let listeners: Vec<_> =
        (0..shards).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let addresses: Vec<SocketAddr> = listeners.iter().map(|l| l.local_addr().unwrap()).collect();
    let ports: Vec<u16> = addresses.iter().map(SocketAddr::port).collect();
    let handler = Arc::new(handler);
    for (shard, listener) in listeners.into_iter().enumerate() {
        let (handler, ports) = (Arc::clone(&handler), ports.clone());
        thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let peer = Peer {
                    stream: stream.unwrap(),
                    shard: shard as u16,
                    ports: ports.clone(),
                    in_flight_max: 1000,
                    buffer: Vec::new(),
                };
                let handler = Arc::clone(&handler);
                thread::spawn(move || handler(number, peer));
            }
        });
    }
    addresses.iter().map(SocketAddr::to_string).collect()
}

impl Peer {
    /// The next request; `None` when the client has closed.
    pub fn next(&mut self) -> Option<(RequestHeader, Vec<u8>)> {
        loop {
            if let Scan::Frame(found) = frame::scan_request(&self.buffer, 1 << 28).unwrap() {
                let (header, body) = RequestHeader::split(&found).unwrap();
                let (body, len) = (body.to_vec(), found.wire_len());
                self.buffer.drain(..len);
                return Some((header, body));
            }
            let mut some = [0; 65_536];
            let len = self.stream.read(&mut some).ok().filter(|&len| len > 0)?;
            self.buffer.extend_from_slice(&some[..len]);
        }
    }

    /// The next request, hello answered on the way.
    pub fn next_after_hello(&mut self) -> Option<(RequestHeader, Vec<u8>)> {
        loop {
            let (header, body) = self.next()?;
            if header.api != Api::Hello.to_wire() {
                return Some((header, body));
            }
            let ports = self.ports.clone();
            let shards = ports.iter().map(|&port| ShardAddress { host: "0.0.0.0", port });
            let hello = HelloResponse {
                server: "fake 1",
                features: 0,
                limits: Limits {
                    frame_bytes_max: 64 << 20,
                    in_flight_max: self.in_flight_max,
                    fetch_bytes_max: 1 << 20,
                },
                engine: "syscall",
                flush_policy: "group",
                policy_level: AckLevel::Durable,
                promise: "nothing",
                shard: ShardId(self.shard),
                shards: shards.collect(),
            };
            self.answer(&header, &hello);
        }
    }

    /// A whole answer as bytes.
    pub fn encoded<'a, M: Message<'a>>(header: &RequestHeader, message: &M) -> Vec<u8> {
        let mut out = Vec::new();
        let api = Api::from_wire(header.api).unwrap();
        api::encode_response(api, header.correlation, message, &mut out).unwrap();
        out
    }

    pub fn answer<'a, M: Message<'a>>(&mut self, header: &RequestHeader, message: &M) {
        self.raw(&Peer::encoded(header, message));
    }

    pub fn refuse(&mut self, header: &RequestHeader, code: ErrorCode, detail: Detail) {
        let mut out = Vec::new();
        encode_error(header.api, 0, code, header.correlation, "no", detail, &mut out);
        self.raw(&out);
    }

    /// The client may be gone: then nobody reads it.
    pub fn raw(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }
}

/// A log of one topic `t` with one partition per shard, answering as a server does.
#[derive(Default)]
pub struct Log {
    /// Batches with their offsets, back to back, by shard.
    pub bytes: HashMap<u16, Vec<u8>>,
    pub start: i64,
    /// Of the topic: a test deletes and makes anew by raising it.
    pub generation: u32,
    /// Which shard owns the first partition.
    pub owner: u16,
    pub handles_wrong: u32,
}

impl Log {
    pub fn end(&self, shard: u16) -> i64 {
        let bytes = self.bytes.get(&shard).map_or(&[][..], Vec::as_slice);
        batch::scan(bytes).last().map_or(self.start, |found| found.header.next_offset())
    }

    pub fn append(&mut self, shard: u16, batches: &[u8]) -> i64 {
        let base = self.end(shard);
        let mut next = base;
        let mut owned = batches.to_vec();
        let mut at = 0;
        while at < owned.len() {
            batch::assign(&mut owned[at..], next, 0).unwrap();
            let header = batch::parse_header(&owned[at..]).unwrap();
            next = header.next_offset();
            at += header.total_len();
        }
        self.bytes.entry(shard).or_default().extend_from_slice(&owned);
        base
    }

    fn handle(&self) -> Handle {
        Handle(self.generation << 16 | 7)
    }

    /// Answers a request as the shard of `peer`; false: not one of the log's.
    pub fn serve(&mut self, peer: &mut Peer, header: &RequestHeader, body: &[u8]) -> bool {
        match Api::from_wire(header.api).unwrap() {
            Api::Metadata => self.metadata(peer, header, body),
            Api::Produce => {
                let request = ProduceRequest::parse(body).unwrap();
                if request.handle != self.handle() {
                    peer.refuse(header, ErrorCode::StaleHandle, Detail::None);
                } else if peer.shard != self.owner {
                    let owner = Detail::Owner(ShardId(self.owner));
                    peer.refuse(header, ErrorCode::NotOwner, owner);
                } else {
                    let base = self.append(peer.shard, request.batches);
                    peer.answer(header, &produced(base));
                }
            }
            Api::Fetch => self.fetch(peer, header, body),
            Api::ListOffsets => {
                let request = ListOffsetsRequest::parse(body).unwrap();
                if request.handle != self.handle() {
                    peer.refuse(header, ErrorCode::StaleHandle, Detail::None);
                    return true;
                }
                if peer.shard != self.owner {
                    let owner = Detail::Owner(ShardId(self.owner));
                    peer.refuse(header, ErrorCode::NotOwner, owner);
                    return true;
                }
                let offset = match request.timestamp {
                    special::LATEST => self.end(peer.shard),
                    special::EARLIEST => self.start,
                    _ => -1,
                };
                peer.answer(
                    header,
                    &ListOffsetsResponse { offset, timestamp: -1, leader_epoch: 0 },
                );
            }
            Api::Flush => {
                let durable = Offset::new(self.end(peer.shard)).unwrap();
                peer.answer(header, &FlushResponse { durable });
            }
            _ => return false,
        }
        true
    }

    fn metadata(&mut self, peer: &mut Peer, header: &RequestHeader, body: &[u8]) {
        let request = MetadataRequest::parse(body).unwrap();
        let known = match &request {
            MetadataRequest::All => vec!["t"],
            MetadataRequest::Names(names) => names.clone(),
        };
        let mut handle = self.handle();
        let mut shard = self.owner;
        if self.handles_wrong > 0 {
            self.handles_wrong -= 1;
            handle = Handle(0);
            shard = 0;
        }
        let topics = known.into_iter().map(|name| TopicMeta {
            name,
            id: [self.generation as u8; 16],
            error: if name == "t" { 0 } else { ErrorCode::UnknownTopicOrPartition.code() },
            partitions: (name == "t")
                .then_some(PartitionMeta {
                    index: 0,
                    handle,
                    shard: ShardId(shard),
                    start: self.start,
                    high_watermark: self.end(self.owner),
                    error: 0,
                })
                .into_iter()
                .collect(),
        });
        let topics = topics.collect();
        peer.answer(header, &MetadataResponse { cluster_id: "c", server_id: 1, topics });
    }

    fn fetch(&mut self, peer: &mut Peer, header: &RequestHeader, body: &[u8]) {
        let request = FetchRequest::parse(body).unwrap();
        let part = request.parts.iter().next().unwrap();
        let all = self.bytes.get(&peer.shard).cloned().unwrap_or_default();
        let (start, end) = (self.start, self.end(peer.shard));
        let mut head =
            PartHead { handle: part.handle, error: 0, start, high_watermark: end, len: 0 };
        let mut bytes = &[][..];
        if part.handle != self.handle() {
            head.error = ErrorCode::StaleHandle.code();
        } else if part.offset < start || part.offset > end {
            head.error = ErrorCode::OffsetOutOfRange.code();
        } else if let Some(first) =
            batch::scan(&all).find(|found| found.header.next_offset() > part.offset)
        {
            // The first batch whole, the last one cut wherever the limit falls (R22).
            let max = (part.max_bytes as usize).max(first.bytes.len());
            bytes = &all[first.pos..all.len().min(first.pos + max)];
        }
        peer.answer(header, &FetchResponse { parts: vec![PartData { head, bytes }] });
    }
}

pub fn produced(base: i64) -> ProduceResponse {
    ProduceResponse {
        base: Offset::new(base).unwrap(),
        append_time: -1,
        level_met: AckLevel::Durable,
        log_start: Offset::ZERO,
    }
}
