//! Which engine carries ops out: what was asked for, what the machine allows, and why.
//!
//! Owns: the setting `auto|uring|syscall` and the choice (R61, R71). Never does: build an engine.
//! Left: `probe`. Right: `server`, `cli`, the benchmark.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use super::probe::Features;

/// What the user asks for.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineKind {
    /// The ring where it works, else system calls.
    #[default]
    Auto,
    Uring,
    Syscall,
}

impl EngineKind {
    pub fn name(self) -> &'static str {
        match self {
            EngineKind::Auto => "auto",
            EngineKind::Uring => "uring",
            EngineKind::Syscall => "syscall",
        }
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A setting that names no engine.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("unknown engine '{0}': auto, uring or syscall")]
pub struct UnknownEngine(pub String);

impl FromStr for EngineKind {
    type Err = UnknownEngine;

    fn from_str(text: &str) -> Result<EngineKind, UnknownEngine> {
        [EngineKind::Auto, EngineKind::Uring, EngineKind::Syscall]
            .into_iter()
            .find(|kind| kind.name() == text)
            .ok_or_else(|| UnknownEngine(text.to_string()))
    }
}

/// The engine that will run: never [`EngineKind::Auto`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Chosen {
    pub kind: EngineKind,
    pub why: String,
    /// `auto` wanted the ring and could not have it: `why` is then a warning with the remedy.
    pub is_fallback: bool,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum EngineError {
    #[error("--engine uring: {why} (--engine auto or syscall runs on plain system calls)")]
    NoUring { why: String },
}

pub fn choose(kind: EngineKind, features: &Features) -> Result<Chosen, EngineError> {
    let chosen = |kind, why: String| Chosen { kind, why, is_fallback: false };
    match (kind, &features.io_uring.refused) {
        (EngineKind::Syscall, _) => Ok(chosen(EngineKind::Syscall, "asked for".to_string())),
        (EngineKind::Uring, None) => Ok(chosen(EngineKind::Uring, "asked for".to_string())),
        (EngineKind::Uring, Some(why)) => Err(EngineError::NoUring { why: why.clone() }),
        (EngineKind::Auto, None) => {
            let why = format!("io_uring works on Linux {}", features.kernel);
            Ok(chosen(EngineKind::Uring, why))
        }
        (EngineKind::Auto, Some(why)) => Ok(Chosen {
            kind: EngineKind::Syscall,
            why: format!("running on plain system calls, which is slower: {why}"),
            is_fallback: true,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_others_refused() {
        for kind in [EngineKind::Auto, EngineKind::Uring, EngineKind::Syscall] {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        let error = "iouring".parse::<EngineKind>().unwrap_err().to_string();
        assert!(error.contains("iouring") && error.contains("auto, uring or syscall"), "{error}");
    }

    #[test]
    fn auto_falls_back_with_the_reason_and_uring_does_not() {
        let mut features = Features::probe();
        features.io_uring.refused = Some("the sysctl says no".to_string());
        let auto = choose(EngineKind::Auto, &features).unwrap();
        assert_eq!((auto.kind, auto.is_fallback), (EngineKind::Syscall, true));
        assert!(auto.why.contains("the sysctl says no"), "{}", auto.why);
        let error = choose(EngineKind::Uring, &features).unwrap_err().to_string();
        assert!(error.contains("the sysctl says no"), "{error}");
        let forced = choose(EngineKind::Syscall, &features).unwrap();
        assert_eq!((forced.kind, forced.is_fallback), (EngineKind::Syscall, false));
        features.io_uring.refused = None;
        assert_eq!(choose(EngineKind::Auto, &features).unwrap().kind, EngineKind::Uring);
        assert_eq!(choose(EngineKind::Uring, &features).unwrap().kind, EngineKind::Uring);
    }
}
