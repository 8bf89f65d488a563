//! Holds the house rules that no compiler checks: layers, sizes, words, headers.
//!
//! Owns: the table of allowed edges between modules. Never does: anything at run time.
//! Left: the source tree as text. Right: nobody.

use std::fs;
use std::path::{Path, PathBuf};

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;
const COLUMNS_MAX: usize = 100;

/// module -> the crate modules it may name. A module may always name itself.
const LAYERS: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("errors", &[]),
    ("format", &["types", "errors"]),
    ("policy", &["types"]),
    ("io", &["types"]),
    ("log", &["types", "errors", "format", "policy", "io"]),
    ("protocol", &["types", "errors"]),
    ("client", &["types", "errors", "format", "protocol"]),
    ("shard", &["types", "errors", "format", "policy", "io", "log", "protocol"]),
    ("server", &["types", "errors", "format", "policy", "io", "log", "protocol", "shard"]),
    ("tools", &["types", "errors", "format"]),
    (
        "cli",
        &["types", "errors", "format", "policy", "io", "client", "protocol", "server", "tools"],
    ),
    ("main", &["cli"]),
];

/// Files outside `src/io/` that may hold `unsafe`, each for a reason stated in its header.
const UNSAFE_ELSEWHERE: &[&str] = &["bench/src/sys.rs", "tests/support/counting.rs"];

struct Source {
    path: String,
    text: String,
}

impl Source {
    /// The lines before the file's own test module.
    fn code(&self) -> &str {
        match self.text.find("\n#[cfg(test)]\nmod tests {") {
            Some(end) => &self.text[..end],
            None => &self.text,
        }
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn collect(dir: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, found);
        } else {
            found.push(path);
        }
    }
}

fn files(dirs: &[&str], extension: &str) -> Vec<Source> {
    let mut found = Vec::new();
    for dir in dirs {
        collect(&root().join(dir), &mut found);
    }
    found.retain(|path| path.extension().is_some_and(|e| e == extension));
    found.sort();
    found
        .into_iter()
        .map(|path| Source {
            text: fs::read_to_string(&path).expect("source is UTF-8"),
            path: path.strip_prefix(root()).expect("under the root").display().to_string(),
        })
        .collect()
}

fn rust() -> Vec<Source> {
    files(&["src", "bench", "tests", "fuzz", "examples"], "rs")
        .into_iter()
        .filter(|s| !s.path.contains("/target/"))
        .collect()
}

fn report(what: &str, faults: Vec<String>) {
    assert!(faults.is_empty(), "{what}:\n  {}", faults.join("\n  "));
}

/// `src/log/recovery/scan.rs` -> `log`; `src/main.rs` -> `main`.
fn module_of(path: &str) -> Option<&str> {
    let inner = path.strip_prefix("src/")?;
    let first = inner.split('/').next()?;
    match first.strip_suffix(".rs").unwrap_or(first) {
        "lib" => None,
        module => Some(module),
    }
}

/// Names behind `crate::` (or `ringlog::` in the binary), braces expanded one level.
fn crate_names(line: &str, prefix: &str) -> Vec<String> {
    let mut names = Vec::new();
    for (at, _) in line.match_indices(prefix) {
        let boundary = line[..at].chars().next_back().is_none_or(|c| !c.is_alphanumeric());
        let rest = &line[at + prefix.len()..];
        let word = |s: &str| -> String {
            s.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
        };
        match rest.strip_prefix('{') {
            _ if !boundary => {}
            Some(list) => names.extend(list.split(',').map(word)),
            None => names.push(word(rest)),
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

#[test]
fn layers_name_only_what_stands_below_them() {
    let mut faults = Vec::new();
    for source in rust() {
        let Some(module) = module_of(&source.path) else { continue };
        let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == module) else {
            faults.push(format!("{}: module {module} is not in the table", source.path));
            continue;
        };
        let code = source.code();
        for (number, line) in code.lines().enumerate() {
            if line.trim_start().starts_with("//") {
                continue;
            }
            let prefix = if module == "main" { "ringlog::" } else { "crate::" };
            for name in crate_names(line, prefix) {
                let known = LAYERS.iter().any(|(layer, _)| *layer == name);
                if known && name != module && !allowed.contains(&name.as_str()) {
                    faults.push(format!("{}:{}: {module} -> {name}", source.path, number + 1));
                }
            }
            if line.contains("super::super") {
                faults.push(format!("{}:{}: super::super", source.path, number + 1));
            }
        }
    }
    report("edges that the layer table forbids", faults);
}

#[test]
fn files_open_with_their_map_and_stay_small() {
    let mut faults = Vec::new();
    for source in rust() {
        if !source.text.starts_with("//!") {
            faults.push(format!("{}: does not open with //!", source.path));
        }
        let lines = source.code().lines().count();
        if lines > FILE_LINES_MAX && !source.path.starts_with("tests/") {
            faults.push(format!("{}: {lines} lines without tests", source.path));
        }
        for (number, line) in source.text.lines().enumerate() {
            if line.chars().count() > COLUMNS_MAX {
                faults.push(format!("{}:{}: over {COLUMNS_MAX} columns", source.path, number + 1));
            }
            if !line.is_ascii() {
                faults.push(format!("{}:{}: not ASCII", source.path, number + 1));
            }
        }
        let name = source.path.rsplit('/').next().unwrap_or_default();
        if name == "utils.rs" || name.contains("_v2") {
            faults.push(format!("{}: a name that says nothing", source.path));
        }
    }
    report("files", faults);
}

#[test]
fn functions_stay_on_one_screen() {
    let mut faults = Vec::new();
    for source in rust() {
        let mut open: Option<(usize, usize, String)> = None;
        for (number, line) in source.text.lines().enumerate() {
            let indent = line.len() - line.trim_start().len();
            let head = line.trim_start();
            let is_fn = head.starts_with("fn ") || head.contains(" fn ") && head.ends_with('{');
            if open.is_none() && is_fn && !head.starts_with("//") && !head.contains("\"") {
                open = Some((number, indent, head.to_string()));
            }
            let Some((start, at, name)) = &open else { continue };
            let closes = indent == *at && (head == "}" || head.ends_with(';') || head == "};");
            if closes || (number == *start && head.ends_with('}')) {
                let lines = number - start + 1;
                if lines > FUNCTION_LINES_MAX {
                    faults.push(format!("{}:{}: {lines} lines: {name}", source.path, start + 1));
                }
                open = None;
            }
        }
    }
    report(&format!("functions over {FUNCTION_LINES_MAX} lines"), faults);
}

#[test]
fn unsafe_stays_in_its_cage() {
    let mut faults = Vec::new();
    for source in rust() {
        let caged = source.path.starts_with("src/io/")
            || UNSAFE_ELSEWHERE.contains(&source.path.as_str())
            || source.path == "tests/tidy.rs";
        let loose = source.text.lines().any(|line| {
            let line = line.trim_start();
            !line.starts_with("//") && (line.contains("unsafe {") || line.contains("unsafe impl"))
        });
        if loose && !caged {
            faults.push(source.path);
        }
    }
    report("unsafe outside io/", faults);
}

#[test]
fn outside_bytes_are_never_indexed_or_unwrapped() {
    for module in ["src/format/mod.rs", "src/protocol/mod.rs"] {
        let text = fs::read_to_string(root().join(module)).expect("module root");
        for lint in ["clippy::indexing_slicing", "clippy::unwrap_used"] {
            assert!(text.contains(lint), "{module} does not deny {lint}");
        }
    }
}

#[test]
fn nothing_is_left_for_later() {
    let words =
        [["TO", "DO"].concat(), ["FIX", "ME"].concat(), ["XX", "X"].concat(), "todo!(".into()];
    let mut faults = Vec::new();
    for source in rust() {
        for (number, line) in source.text.lines().enumerate() {
            if source.path != "tests/tidy.rs" && words.iter().any(|word| line.contains(word)) {
                faults.push(format!("{}:{}: {}", source.path, number + 1, line.trim()));
            }
        }
    }
    report("left for later", faults);
}

#[test]
fn every_folder_has_its_paragraph_and_every_cargo_call_its_workspace() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let mut faults = Vec::new();
    for source in files(&["src", "bench"], "rs") {
        let Some((folder, _)) = source.path.rsplit_once('/') else { continue };
        if !map.contains(&format!("`{folder}/`")) {
            faults.push(format!("ARCHITECTURE.md has no paragraph on `{folder}/`"));
        }
    }
    faults.sort();
    faults.dedup();
    let mut scripts = vec![root().join("README.md"), root().join(".ci/run")];
    collect(&root().join("scripts"), &mut scripts);
    for path in scripts {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        for line in text.lines().filter(|line| !line.trim_start().starts_with('#')) {
            let call = ["cargo build", "cargo test", "cargo clippy", "cargo check", "cargo doc"]
                .iter()
                .any(|call| line.contains(call));
            if call && !line.contains("--workspace") && !line.contains("--version") {
                faults.push(format!("{}: {}", path.display(), line.trim()));
            }
        }
    }
    report("the map and the calls", faults);
}
