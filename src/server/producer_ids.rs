//! Producer ids: one number each, never handed out twice (D13).
//!
//! Owns: the reservation on disk, and the answer to init producer. Never does: knowing what a
//! producer wrote (each partition does). Left: `homes` (whose first directory holds the file),
//! `protocol::offsets`. Right: `control`, `requests`.
//!
//! Ids leave only out of a block that the file, synced with its name, has already put behind it:
//! whatever a crash takes, the next start begins above every id that may have left. It begins above
//! what partitions found on their disks, too: those a broker had given out.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::control::{Control, ControlError, fault};
use crate::errors::ErrorCode;
use crate::io::blocking::Blocking;
use crate::io::{Errno, Io};
use crate::protocol::api::Message;
use crate::protocol::offsets::{InitProducerRequest, InitProducerResponse};

/// Beside the topic file; a broker ignores it.
const FILE_NAME: &str = "ringlog-producer-ids.toml";
const FILE_BYTES_MAX: usize = 4096;
/// Ids reserved at once: the file is written once for so many.
const BLOCK: i64 = 1000;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// Every id handed out lies below it.
    next: i64,
}

#[derive(Debug, Default)]
pub(super) struct ProducerIds {
    path: PathBuf,
    next: i64,
    /// On the disk: ids below it may be handed out.
    reserved: i64,
}

impl ProducerIds {
    /// Goes on behind what was reserved; what is left of the last block is given up.
    pub fn load<I: Io>(b: &mut Blocking<'_, I>, dir: &Path) -> Result<ProducerIds, ControlError> {
        let path = dir.join(FILE_NAME);
        let read = b.read_file(&path, FILE_BYTES_MAX).map_err(|errno| fault(&path, errno))?;
        let next = match read {
            Some(bytes) => parse(&bytes).map_err(|why| {
                let help = "restore it, or write `next = N` with an N above every id in use";
                fault(&path, format!("{why}; {help}"))
            })?,
            None => 0,
        };
        Ok(ProducerIds { path, next, reserved: next })
    }

    /// A partition holds batches of this producer.
    pub fn found(&mut self, id: i64) {
        self.next = self.next.max(id.saturating_add(1));
    }

    /// A new id, reserved on disk before it is told to anybody.
    fn take<I: Io>(&mut self, b: &mut Blocking<'_, I>) -> Result<i64, Errno> {
        if self.next >= self.reserved {
            let next = self.next.checked_add(BLOCK).ok_or(Errno(libc::EOVERFLOW))?;
            b.replace_file(&self.path, format!("next = {next}\n").as_bytes())?;
            self.reserved = next;
        }
        self.next += 1;
        Ok(self.next - 1)
    }

    fn was_handed_out(&self, id: i64) -> bool {
        (0..self.next).contains(&id)
    }
}

fn parse(bytes: &[u8]) -> Result<i64, String> {
    let text = std::str::from_utf8(bytes).map_err(|e| e.to_string())?;
    let file: File = toml::from_str(text).map_err(|e| e.message().to_string())?;
    if file.next < 0 { Err(format!("next = {} is no id", file.next)) } else { Ok(file.next) }
}

impl<I: Io> Control<I> {
    /// A new id with epoch 0; for one that was handed out, the epoch behind the one given. That
    /// one is for whoever holds the id alone: asked twice, it answers the same.
    pub(super) fn init_producer(&mut self, bytes: &[u8]) -> Result<Vec<u8>, (ErrorCode, String)> {
        let invalid = |why: String| (ErrorCode::InvalidRequest, why);
        let request = InitProducerRequest::parse(bytes).map_err(|e| invalid(e.to_string()))?;
        if request.transactional_id.is_some() {
            return Err(invalid("transactions are not served: send no transactional id".into()));
        }
        let response = match (request.producer_id, request.epoch) {
            (-1, -1) => self.new_producer()?,
            (id, epoch) if id < 0 || epoch < 0 => {
                return Err(invalid(format!("producer id {id} with epoch {epoch}: both or none")));
            }
            (id, _) if !self.producer_ids.was_handed_out(id) => {
                let why = format!("producer id {id} is none of this server's: ask for a new one");
                return Err((ErrorCode::InvalidProducerIdMapping, why));
            }
            // As in Kafka, the greatest epoch is never used.
            (_, epoch) if epoch >= i16::MAX - 1 => self.new_producer()?,
            (producer_id, epoch) => InitProducerResponse { producer_id, epoch: epoch + 1 },
        };
        let mut body = Vec::new();
        response.encode(&mut body).map_err(|e| invalid(e.to_string()))?;
        Ok(body)
    }

    fn new_producer(&mut self) -> Result<InitProducerResponse, (ErrorCode, String)> {
        let mut b = Blocking::new(&mut self.io, self.pool.clone());
        match self.producer_ids.take(&mut b) {
            Ok(producer_id) => Ok(InitProducerResponse { producer_id, epoch: 0 }),
            Err(errno) => {
                let path = self.producer_ids.path.display();
                let why = format!("reserving producer ids in {path}: {errno}");
                tracing::error!("{why}");
                Err((ErrorCode::KafkaStorageError, why))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::buffers::Pool;
    use crate::io::sim::World;

    /// Loads, hands out some, and again, until the world stops or three processes have lived.
    fn live(world: &World, handed_out: &mut Vec<i64>) {
        for _ in 0..3 {
            let mut io = world.engine();
            let mut b = Blocking::new(&mut io, Pool::new(1 << 20));
            let Ok(mut ids) = ProducerIds::load(&mut b, Path::new("/d")) else { return };
            for _ in 0..BLOCK + 2 {
                let Ok(id) = ids.take(&mut b) else { return };
                handed_out.push(id);
            }
        }
    }

    #[test]
    fn d13_no_id_is_handed_out_twice_whatever_a_cut_takes() {
        for seed in 0..30 {
            for cut in 0.. {
                let world = World::new(seed);
                world.make_dir_durably("/d");
                let mut handed_out = Vec::new();
                for steps in [cut, cut / 2] {
                    world.cut_after(steps);
                    live(&world, &mut handed_out);
                    match seed % 3 {
                        0 => world.kill(),
                        _ => world.power_cut(),
                    }
                }
                let mut rest = Vec::new();
                live(&world, &mut rest);
                handed_out.extend(rest);
                let ascend = handed_out.windows(2).all(|pair| pair[0] < pair[1]);
                assert!(ascend, "seed {seed}, cut {cut}: an id twice");
                if cut > 40 {
                    break;
                }
            }
        }
    }

    #[test]
    fn ids_lie_above_those_found_and_a_garbled_file_is_named() {
        let world = World::new(1);
        world.make_dir_durably("/d");
        let mut io = world.engine();
        let mut b = Blocking::new(&mut io, Pool::new(1 << 20));
        let mut ids = ProducerIds::load(&mut b, Path::new("/d")).unwrap();
        ids.found(4000);
        assert_eq!(ids.take(&mut b), Ok(4001));
        ids.found(17);
        assert_eq!(ids.take(&mut b), Ok(4002));
        assert!(ids.was_handed_out(4002) && !ids.was_handed_out(4003));
        ids.found(i64::MAX);
        assert!(ids.take(&mut b).is_err(), "none is left");
        world.write_file_durably("/d/ringlog-producer-ids.toml", "next = -3\n");
        let error = ProducerIds::load(&mut b, Path::new("/d")).unwrap_err().to_string();
        assert!(error.contains("ringlog-producer-ids.toml") && error.contains("-3"), "{error}");
    }
}
