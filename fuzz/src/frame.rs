//! Frames and messages: what parses is written back the same, what does not is refused.

use ringlog::protocol::api::{RequestHeader, ResponseHeader};
use ringlog::protocol::fetch::{FetchRequest, FetchResponse};
use ringlog::protocol::frame::{self, Scan, scan_request, scan_response};
use ringlog::protocol::hello::{HelloRequest, HelloResponse};
use ringlog::protocol::metadata::{MetadataRequest, MetadataResponse};
use ringlog::protocol::offsets::{
    DeleteRecordsRequest, DeleteRecordsResponse, FlushRequest, FlushResponse, InitProducerRequest,
    InitProducerResponse, ListOffsetsRequest, ListOffsetsResponse,
};
use ringlog::protocol::produce::{ProduceRequest, ProduceResponse};
use ringlog::protocol::stats::{StatsRequest, StatsResponse};
use ringlog::protocol::topics::{
    AlterRequest, AlterResponse, CreateRequest, CreateResponse, DeleteRequest, DeleteResponse,
    DescribeRequest, DescribeResponse,
};
use ringlog::protocol::{Message, WireError};

const FRAME_BYTES_MAX: u32 = 1 << 16;

/// A stream of frames, as a server reads it and as a client does; each body as every message.
pub fn run(stream: &[u8]) {
    let _ = each_frame(
        stream,
        |received| scan_request(received, FRAME_BYTES_MAX),
        |frame| {
            let Ok((header, body)) = RequestHeader::split(frame) else { return };
            if let Err(refusal) = header.admit(body.len()) {
                refusal.encode(&mut Vec::new());
            }
            requests(body);
        },
    );
    let _ = each_frame(
        stream,
        |received| scan_response(received, FRAME_BYTES_MAX),
        |frame| {
            if let Ok((_, body)) = ResponseHeader::split(frame) {
                responses(body);
            }
        },
    );
}

/// Whole frames off the front; a stream says how many bytes it lacks, and lacks them.
fn each_frame<'a>(
    mut rest: &'a [u8],
    scan: impl Fn(&'a [u8]) -> Result<Scan<'a>, frame::FrameError>,
    act: impl Fn(&frame::Frame<'a>),
) -> Result<(), frame::FrameError> {
    loop {
        match scan(rest)? {
            Scan::Frame(frame) => {
                act(&frame);
                rest = &rest[frame.wire_len()..];
            }
            Scan::NeedMore(missing) => {
                assert!(missing > 0, "a whole frame is not found");
                return Ok(());
            }
        }
    }
}

fn requests(body: &[u8]) {
    same::<HelloRequest<'_>>(body);
    same::<MetadataRequest<'_>>(body);
    same::<CreateRequest<'_>>(body);
    same::<DeleteRequest<'_>>(body);
    same::<DescribeRequest<'_>>(body);
    same::<AlterRequest<'_>>(body);
    same::<ProduceRequest<'_>>(body);
    same::<FetchRequest<'_>>(body);
    same::<ListOffsetsRequest>(body);
    same::<InitProducerRequest<'_>>(body);
    same::<FlushRequest>(body);
    same::<DeleteRecordsRequest>(body);
    same::<StatsRequest>(body);
}

fn responses(body: &[u8]) {
    same::<HelloResponse<'_>>(body);
    same::<MetadataResponse<'_>>(body);
    same::<CreateResponse>(body);
    same::<DeleteResponse>(body);
    same::<DescribeResponse<'_>>(body);
    same::<AlterResponse<'_>>(body);
    same::<ProduceResponse>(body);
    same::<FetchResponse<'_>>(body);
    same::<ListOffsetsResponse>(body);
    same::<InitProducerResponse>(body);
    same::<FlushResponse>(body);
    same::<DeleteRecordsResponse>(body);
    same::<StatsResponse<'_>>(body);
}

/// What parses can be written, and what is written parses to bytes that are written the same.
fn same<'a, M: Message<'a>>(body: &'a [u8]) {
    let Ok(message) = M::parse(body) else { return };
    let written = encoded(&message).expect("what was parsed can be written");
    assert_eq!(written, body, "parsed and written, it is another message");
}

fn encoded<'a, M: Message<'a>>(message: &M) -> Result<Vec<u8>, WireError> {
    let mut out = Vec::new();
    message.encode(&mut out)?;
    Ok(out)
}
