//! What an opening found, as lines of the log.
//!
//! Owns: one line a finding, none for a log that was as it should be. Never does: decide anything.
//! Left: `recovery`. Right: `open`.

use std::path::Path;

use super::OpenReport;

impl OpenReport {
    pub(super) fn log(&self, dir: &Path) {
        for cut in &self.cuts {
            let (path, pos, bytes) = (cut.path.display(), cut.pos, cut.bytes);
            let kept = match &cut.side_file {
                Some(side) => side.display().to_string(),
                None if self.aside_full => "in place: no room below cut-bytes-max".to_string(),
                None => "in place: no space".to_string(),
            };
            tracing::warn!(%path, pos, bytes, fault = %cut.fault, kept, "cut");
        }
        for damaged in &self.damage {
            let (path, fault) = (damaged.path.display(), damaged.fault);
            let damage = damaged.damage;
            let (pos, first, next) = (damage.pos, damage.first, damage.next);
            tracing::error!(
                %path, pos, %first, %next, %fault,
                "damage: these offsets are lost, all others are served; `ringlog verify` says more"
            );
        }
        let dir = dir.display();
        if self.aside_full {
            tracing::error!(
                %dir,
                "read-only: what recovery keeps aside has reached --cut-bytes-max; look at it with \
                 `ringlog cuts`, remove what is not needed, and appends go on by themselves"
            );
        }
        if self.scanned_bytes > 0 || self.read_only {
            let (scanned, of, read_only) = (self.scanned_bytes, self.log_bytes, self.read_only);
            let took_us = self.took.0;
            tracing::info!(%dir, scanned, of, took_us, read_only, "log recovered");
        }
    }
}
