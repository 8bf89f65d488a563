//! An open file that more than one may hold: it is closed when the last of them has let go.
//!
//! Owns: who still holds it. Never does: I/O, deciding that a file should go (`descriptors` does).
//! Left: `io::FileId`. Right: `segment`, lookups, and whoever sends the bytes of a range.

use std::sync::Arc;

use crate::io::FileId;

/// A clone is a hold. Whoever reads by its id keeps one until the read has been submitted; the
/// engine keeps the file for the rest.
#[derive(Clone, Debug)]
pub struct HeldFile {
    id: FileId,
    holds: Arc<()>,
}

impl HeldFile {
    pub fn new(id: FileId) -> HeldFile {
        HeldFile { id, holds: Arc::new(()) }
    }

    pub fn id(&self) -> FileId {
        self.id
    }

    /// Somebody else has a hold on it.
    pub(super) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.holds) > 1
    }
}

impl PartialEq for HeldFile {
    fn eq(&self, other: &HeldFile) -> bool {
        self.id == other.id
    }
}

impl Eq for HeldFile {}
