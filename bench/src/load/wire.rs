//! Frames of the load: requests made before the clock starts, responses cut from the stream.
//!
//! Owns: produce frames, the fetch cursor, and the answers of the minimal loops, which speak the
//! server's own protocol so that one client measures both. Never does: I/O.
//! Left: `ringlog::protocol`, `batches`. Right: `produce`, `fetch`, `ceiling`.

use std::io;

use ringlog::format::batch;
use ringlog::protocol::api::{BODY_AT, Message, encode_request};
use ringlog::protocol::fetch::{
    FRAME_HEAD, FetchPart, FetchRequest, FetchResponse, Isolation, PART_HEAD, PartHead, Parts,
    frame_head, part_head,
};
use ringlog::protocol::produce::{
    BATCHES_AT, ProduceResponse, RESPONSE_FRAME, request_head, response_frame,
};
use ringlog::types::{AckLevel, Handle, Offset};

use super::batches::Batches;

/// Bytes before the body, in requests and in responses.
pub const HEAD_LEN: usize = BODY_AT;
/// Where a produce frame's batches begin.
pub const BATCH_AT: usize = BATCHES_AT;
const CORRELATION: std::ops::Range<usize> = 8..12;

/// Most payload of one fetch.
pub const FETCH_BYTES: usize = 1 << 20;
/// Largest response that a client of this load takes: more than a fetch and its heads.
pub const RESPONSE_LEN_MAX: usize = 2 * FETCH_BYTES;
/// How long a server may hold a fetch back: it never should, there are bytes.
const FETCH_WAIT_MS: u32 = 1000;

/// Produce requests of one shape; the client patches the correlation into a copy of the head.
pub struct Frames {
    /// Whole frames, all of one length.
    pub all: Vec<Vec<u8>>,
    pub records_each: u64,
    /// Payload of each frame: its batch.
    pub bytes_each: usize,
}

impl Frames {
    pub fn new(handle: Handle, batches: &Batches) -> Frames {
        let frame = |batch: &Vec<u8>| {
            let mut frame = request_head(handle, AckLevel::Policy, 0, batch.len()).to_vec();
            frame.extend_from_slice(batch);
            frame
        };
        Frames {
            all: batches.all.iter().map(frame).collect(),
            records_each: batches.records_each,
            bytes_each: batches.bytes_each,
        }
    }

    pub fn frame_len(&self) -> usize {
        self.all[0].len()
    }
}

/// The handle that the minimal loops answer to: any.
pub const ANY_HANDLE: Handle = Handle(1);

/// The head of `frame` with its correlation replaced.
pub fn head_with(frame: &[u8], correlation: u32) -> [u8; HEAD_LEN] {
    let mut head = [0; HEAD_LEN];
    head.copy_from_slice(&frame[..HEAD_LEN]);
    head[CORRELATION].copy_from_slice(&correlation.to_be_bytes());
    head
}

/// The correlation of a frame that is at least a head long.
pub fn correlation(frame: &[u8]) -> u32 {
    let mut raw = [0; 4];
    raw.copy_from_slice(&frame[CORRELATION]);
    u32::from_be_bytes(raw)
}

/// The produce response of the minimal loops.
pub fn bare_ack(request: &[u8]) -> [u8; RESPONSE_FRAME] {
    let response = ProduceResponse {
        base: Offset::ZERO,
        append_time: -1,
        level_met: AckLevel::Written,
        log_start: Offset::ZERO,
    };
    response_frame(correlation(request), &response)
}

/// Bytes of the fetch request that [`Cursor`] makes.
pub const FETCH_LEN: usize = HEAD_LEN + 4 + 4 + 4 + 1 + 1 + 2 + 20;
/// Bytes of a fetch response before its payload.
pub const FETCHED_HEAD_LEN: usize = FRAME_HEAD + PART_HEAD;

/// What stands before `len` bytes of payload in a fetch response of the minimal loops.
pub fn bare_fetched(request: &[u8], len: usize) -> [u8; FETCHED_HEAD_LEN] {
    let part = PartHead {
        handle: ANY_HANDLE,
        error: 0,
        start: 0,
        high_watermark: i64::MAX,
        len: u32::try_from(len).expect("a fetch is far below 4 GiB"),
    };
    let mut head = [0; FETCHED_HEAD_LEN];
    head[..FRAME_HEAD].copy_from_slice(&frame_head(correlation(request), 1, PART_HEAD + len));
    head[FRAME_HEAD..].copy_from_slice(&part_head(&part));
    head
}

/// Walks a log by fetches: asks at an offset, moves behind the whole batches that came.
pub struct Cursor {
    handle: Handle,
    next: i64,
    /// Where to begin again when the end of the range is reached; `None` to count all bytes and
    /// leave the position to the server, as the minimal loops do.
    range: Option<std::ops::Range<i64>>,
}

impl Cursor {
    /// Over offsets `range` of a partition, round and round.
    pub fn over(handle: Handle, range: std::ops::Range<i64>) -> Cursor {
        Cursor { handle, next: range.start, range: Some(range) }
    }

    /// Takes whatever a minimal loop sends.
    pub fn anything() -> Cursor {
        Cursor { handle: ANY_HANDLE, next: 0, range: None }
    }

    /// The next request, whole.
    pub fn request(&self, correlation: u32) -> Vec<u8> {
        let parts = [FetchPart {
            handle: self.handle,
            offset: self.next,
            last_epoch: -1,
            max_bytes: FETCH_BYTES as u32,
        }];
        let request = FetchRequest {
            max_bytes: FETCH_BYTES as u32,
            min_bytes: 1,
            max_wait_ms: FETCH_WAIT_MS,
            isolation: Isolation::ReadUncommitted,
            parts: Parts::List(&parts),
        };
        let mut frame = Vec::with_capacity(FETCH_LEN);
        encode_request(&request, correlation, &mut frame).expect("one part always fits a frame");
        frame
    }

    /// Payload bytes of a response's body; moves behind the whole batches in it. A cut last batch
    /// came over the wire and will come again: it is not payload.
    pub fn response(&mut self, body: &[u8]) -> io::Result<usize> {
        let response = FetchResponse::parse(body).map_err(io::Error::other)?;
        let part = match response.parts.as_slice() {
            [part] if part.head.error == 0 => part,
            [part] => return Err(io::Error::other(format!("fetch error {}", part.head.error))),
            parts => return Err(io::Error::other(format!("{} parts for one", parts.len()))),
        };
        let Some(range) = &self.range else { return Ok(part.bytes.len()) };
        let mut batches = batch::scan(part.bytes);
        for found in batches.by_ref() {
            if found.header.next_offset() <= self.next {
                return Err(io::Error::other("the server sent a batch from before the offset"));
            }
            self.next = found.header.next_offset();
        }
        if self.next >= range.end {
            self.next = range.start;
        }
        Ok(batches.pos())
    }
}

/// Total length of the response whose first bytes are `bytes`; `None` while too few are there.
/// An error code, or a length no response of this load has, is an error.
pub fn response_len(bytes: &[u8]) -> io::Result<Option<usize>> {
    if bytes.len() < HEAD_LEN {
        return Ok(None);
    }
    let length = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
    let total = length.saturating_add(4);
    if !(HEAD_LEN..=RESPONSE_LEN_MAX).contains(&total) {
        return Err(io::Error::other(format!("a response of {total} bytes")));
    }
    match i16::from_be_bytes([bytes[6], bytes[7]]) {
        0 => Ok(Some(total)),
        code => Err(io::Error::other(format!("the server answered with error {code}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::batches;
    use ringlog::format::batch::assign;
    use ringlog::protocol::fetch::PartData;

    #[test]
    fn frames_and_acks_agree_on_length_and_correlation() {
        let frames = Frames::new(ANY_HANDLE, &batches::build(1024));
        let frame = &frames.all[0];
        assert_eq!(response_len(frame).unwrap(), Some(frame.len()));
        assert_eq!(frame.len(), BATCH_AT + frames.bytes_each);
        batch::verify(&frame[BATCH_AT..]).unwrap();
        let ack = bare_ack(&head_with(frame, 77));
        assert_eq!(correlation(&ack), 77);
        assert_eq!(response_len(&ack).unwrap(), Some(ack.len()));
    }

    #[test]
    fn errors_and_absurd_lengths_are_refused() {
        let mut ack = bare_ack(&[0; HEAD_LEN]);
        assert_eq!(response_len(&ack[..11]).unwrap(), None);
        ack[7] = 3;
        assert!(response_len(&ack).unwrap_err().to_string().contains("error 3"));
        let mut long = bare_ack(&[0; HEAD_LEN]);
        long[0] = 0xff;
        assert!(response_len(&long).is_err());
        let mut short = bare_ack(&[0; HEAD_LEN]);
        short[..4].copy_from_slice(&3u32.to_be_bytes());
        assert!(response_len(&short).is_err());
    }

    /// Batches with offsets, as a log holds them.
    fn log_of(count: i64) -> (Vec<u8>, usize) {
        let batches = batches::build(4096);
        let mut log = Vec::new();
        for index in 0..count {
            let mut batch = batches.all[index as usize].clone();
            assign(&mut batch, index * batches.records_each as i64, 0).unwrap();
            log.extend_from_slice(&batch);
        }
        (log, batches.bytes_each)
    }

    fn body(bytes: &[u8]) -> Vec<u8> {
        let head = PartHead { handle: ANY_HANDLE, error: 0, start: 0, high_watermark: 9, len: 0 };
        let mut out = Vec::new();
        FetchResponse { parts: vec![PartData { head, bytes }] }.encode(&mut out).unwrap();
        out
    }

    #[test]
    fn a_cursor_counts_whole_batches_and_begins_again_at_the_end() {
        let (log, each) = log_of(3);
        let mut cursor = Cursor::over(ANY_HANDLE, 0..9);
        assert_eq!(cursor.request(5).len(), FETCH_LEN);
        // The third batch is cut: two are payload, the cursor stands at the third.
        assert_eq!(cursor.response(&body(&log[..log.len() - 1])).unwrap(), 2 * each);
        assert_eq!(cursor.next, 6);
        assert_eq!(cursor.response(&body(&log[2 * each..])).unwrap(), each);
        assert_eq!(cursor.next, 0);
    }

    #[test]
    fn a_cursor_refuses_what_was_already_read() {
        let (log, _) = log_of(2);
        let mut cursor = Cursor::over(ANY_HANDLE, 6..9);
        assert!(cursor.response(&body(&log)).is_err());
    }

    #[test]
    fn a_bare_fetch_response_parses_as_the_servers_would() {
        let mut frame = bare_fetched(&Cursor::anything().request(41), 3).to_vec();
        frame.extend_from_slice(b"abc");
        assert_eq!(correlation(&frame), 41);
        assert_eq!(response_len(&frame).unwrap(), Some(frame.len()));
        assert_eq!(Cursor::anything().response(&frame[HEAD_LEN..]).unwrap(), 3);
    }
}
