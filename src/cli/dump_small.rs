//! Files that are read as a whole: snapshots, aborted transactions, checkpoints.
//!
//! Owns: their lines; how much of a file is in memory. Never does: more than 64 MiB.
//! Left: `format`, [`super::dump_json`]. Right: [`super::dump`].

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::dump_json;
use super::output::Output;
use crate::format::checkpoint::{EpochCache, parse_offsets};
use crate::format::dump;
use crate::format::index::IndexFault;
use crate::format::name::FileKind;
use crate::format::{snapshot, txn_index};

/// None of these files is larger.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Prints a file; what is wrong with it.
pub fn print(
    path: &Path,
    name: &str,
    kind: Option<FileKind>,
    json: bool,
    out: &mut Output,
) -> Vec<String> {
    let bytes = match read(path) {
        Ok(bytes) => bytes,
        Err(fault) => return vec![fault],
    };
    match kind {
        Some(FileKind::TxnIndex) => return transactions(&bytes, json, out),
        Some(_) => snapshot(&bytes, json, out),
        None if name == "leader-epoch-checkpoint" => epochs(&bytes, json, out),
        None => offsets(&bytes, json, out),
    }
    .err()
    .into_iter()
    .collect()
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|error| error.to_string())?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("longer than {FILE_BYTES_MAX} bytes, as no such file is"));
    }
    Ok(bytes)
}

fn snapshot(bytes: &[u8], json: bool, out: &mut Output) -> Result<(), String> {
    for entry in snapshot::parse(bytes).map_err(|error| error.to_string())? {
        match json {
            true => dump_json::producer(out, &entry),
            false => out.line(dump::snapshot_line(&entry).as_bytes()),
        }
    }
    Ok(())
}

fn transactions(bytes: &[u8], json: bool, out: &mut Output) -> Vec<String> {
    let mut faults = Vec::new();
    for (entry, txn) in txn_index::entries(bytes).enumerate() {
        match txn {
            Ok(txn) if json => dump_json::aborted(out, &txn),
            Ok(txn) => out.line(dump::txn_line(&txn).as_bytes()),
            Err(error) => faults.push(format!("entry {entry}: {error}")),
        }
    }
    let (len, entry_len) = (bytes.len(), txn_index::TXN_ENTRY_LEN);
    if !len.is_multiple_of(entry_len) {
        faults.push(IndexFault::Length { len, entry_len }.to_string());
    }
    faults
}

fn offsets(bytes: &[u8], json: bool, out: &mut Output) -> Result<(), String> {
    for row in parse_offsets(bytes).map_err(|error| error.to_string())? {
        let (topic, partition, offset) = (&row.topic, row.partition, row.offset);
        match json {
            true => dump_json::checkpoint(out, &row),
            false => {
                let line = format!("topic: {topic} partition: {partition} offset: {offset}");
                out.line(line.as_bytes());
            }
        }
    }
    Ok(())
}

fn epochs(bytes: &[u8], json: bool, out: &mut Output) -> Result<(), String> {
    for entry in EpochCache::parse(bytes).map_err(|error| error.to_string())?.entries() {
        let (epoch, start) = (entry.epoch, entry.start_offset);
        match json {
            true => dump_json::epoch(out, epoch, start),
            false => out.line(format!("epoch: {epoch} startOffset: {start}").as_bytes()),
        }
    }
    Ok(())
}
