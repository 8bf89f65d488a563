//! Record batches as a fetch brings them: whole ones, and perhaps a cut last one.
//!
//! Owns: walking, checking and decoding them, and the memory that takes. Never does: fetch.
//! Left: [`crate::format`]. Right: [`super::consumer`].

use crate::format::batch::{BatchHeader, Codec, Found, MAGIC_V1, Stop};
use crate::format::record::Record;
use crate::format::stored;
use crate::format::unpack::Unpacker;

/// Where batches lead, by their headers.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Walked {
    pub batches: u64,
    /// The offset behind the last whole batch; 0 without one.
    pub next: i64,
    /// The last whole batch's leader epoch; -1 without one.
    pub epoch: i32,
    /// A part of one more batch follows.
    pub cut: bool,
}

/// What was handed out, up to the fault if there was one.
#[derive(Clone, Debug)]
pub struct HandedOut {
    pub records: u64,
    pub bytes: u64,
    /// Behind the last record handed out, or the last batch without one.
    pub position: i64,
    /// Leader epoch of the last batch that moved the position, if one did.
    pub epoch: Option<i32>,
    pub fault: Option<BadBatch>,
}

/// A batch that does not hold, and the first offset behind it if that can be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadBatch {
    pub what: String,
    pub next: Option<i64>,
}

#[derive(Debug)]
pub struct Decoder {
    check_crc: bool,
    unpacker: Unpacker,
}

impl Decoder {
    pub fn new(check_crc: bool, batch_bytes_max: u64) -> Decoder {
        Decoder { check_crc, unpacker: Unpacker::new(batch_bytes_max) }
    }

    /// Headers only.
    pub fn walk(bytes: &[u8]) -> Result<Walked, String> {
        let mut scan = stored::scan(bytes);
        let mut walked = Walked { batches: 0, next: 0, epoch: -1, cut: false };
        for found in scan.by_ref() {
            walked.batches += 1;
            walked.next = found.header.next_offset();
            walked.epoch = found.header.leader_epoch;
        }
        match scan.stop() {
            Some(Stop::Bad { error, .. }) if walked.batches == 0 => Err(error.to_string()),
            Some(Stop::Incomplete { .. }) => Ok(Walked { cut: true, ..walked }),
            _ => Ok(walked),
        }
    }

    /// Hands out the records at and above `position`. Control batches (transaction markers) hold
    /// none for a consumer; batches that compaction emptied only move the position.
    pub fn hand_out(
        &mut self,
        bytes: &[u8],
        position: i64,
        visit: &mut impl FnMut(&Record<'_>),
    ) -> HandedOut {
        let mut done = HandedOut { records: 0, bytes: 0, position, epoch: None, fault: None };
        let mut scan = stored::scan(bytes);
        while let Some(found) = scan.next() {
            if found.header.next_offset() > done.position || is_unnumbered(&found.header) {
                let header = &found.header;
                if let Err(fault) = self.one(&found, &mut done, visit) {
                    let what = format!("batch at offset {}: {fault}", header.base_offset);
                    // What lies behind it knows better where it ends than its own header.
                    // (An old message says where it ends, not where it begins.)
                    let behind = scan.next().filter(|b| b.crc_ok() && !b.header.is_legacy());
                    let next = behind.map_or(header.next_offset(), |b| b.header.base_offset);
                    let next = Some(next).filter(|next| *next > done.position);
                    done.fault = Some(BadBatch { what, next });
                    return done;
                }
                done.position = done.position.max(header.next_offset());
                done.epoch = Some(header.leader_epoch);
            }
            done.bytes += found.bytes.len() as u64;
        }
        if let Some(Stop::Bad { error, .. }) = scan.stop() {
            done.fault = Some(BadBatch { what: error.to_string(), next: None });
        }
        done
    }

    fn one(
        &mut self,
        found: &Found<'_>,
        done: &mut HandedOut,
        visit: &mut impl FnMut(&Record<'_>),
    ) -> Result<(), String> {
        if self.check_crc && !found.crc_ok() {
            return Err("its checksum does not hold".to_owned());
        }
        if found.header.is_control() {
            return Ok(());
        }
        let mut records = self.unpacker.open(found).map_err(|error| error.to_string())?;
        while let Some(unpacked) = records.next() {
            let record = unpacked.map_err(|error| error.to_string())?.record;
            if record.offset >= done.position {
                visit(&record);
                done.records += 1;
                done.position = record.offset.saturating_add(1);
            }
        }
        Ok(())
    }
}

/// A compressed set of magic 1 whose outer message has the offset 0: its producer may have left it
/// there, and the records inside go on behind it.
fn is_unnumbered(header: &BatchHeader) -> bool {
    header.magic == MAGIC_V1 && header.base_offset == 0 && header.codec() != Some(Codec::None)
}
