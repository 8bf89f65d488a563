//! Small text files that say whose a directory is, and how it was left: `partition.metadata`,
//! `meta.properties`, `.kafka_cleanshutdown`.
//!
//! Owns their text. Never reads or replaces the files: `log` and `server` do.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use uuid::Uuid;

use super::checkpoint::{TextError, TextFault, utf8};

/// A uuid as Kafka prints it: 22 characters of URL-safe base64.
pub fn render_uuid(id: Uuid) -> String {
    URL_SAFE_NO_PAD.encode(id.as_bytes())
}

pub fn parse_uuid(text: &str) -> Option<Uuid> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    Some(Uuid::from_bytes(bytes.try_into().ok()?))
}

/// The topic id in a `partition.metadata`.
pub fn parse_partition_metadata(bytes: &[u8]) -> Result<Uuid, TextError> {
    let mut lines = utf8(bytes)?.lines();
    let version = keyed(lines.next(), "version").map_err(|fault| fault.at(1))?;
    if version.parse::<u32>().is_err() {
        return Err(TextFault::Value { name: "version", found: version.into() }.at(1));
    }
    let id = keyed(lines.next(), "topic_id").map_err(|fault| fault.at(2))?;
    parse_uuid(id)
        .filter(|id| !id.is_nil())
        .ok_or(TextFault::Value { name: "topic_id", found: id.into() }.at(2))
}

/// The value of a line `name: value`.
fn keyed<'a>(line: Option<&'a str>, name: &'static str) -> Result<&'a str, TextFault> {
    let value = line.and_then(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.map(str::trim).ok_or(TextFault::Missing { name })
}

/// Two lines, and no newline behind the second.
pub fn render_partition_metadata(topic_id: Uuid) -> String {
    format!("version: 0\ntopic_id: {}", render_uuid(topic_id))
}

/// What `meta.properties` says. Version 1 has a node id and a cluster id, version 0 may have them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MetaProperties {
    pub version: i32,
    /// `node.id`, in version 0 `broker.id`.
    pub node_id: Option<i32>,
    pub cluster_id: Option<String>,
    pub directory_id: Option<Uuid>,
}

impl MetaProperties {
    pub fn parse(bytes: &[u8]) -> Result<MetaProperties, TextError> {
        let properties = Properties::parse(bytes);
        let version = properties.number("version")?.unwrap_or(0);
        let node_key = match version {
            0 => "broker.id",
            1 => "node.id",
            _ => return Err(properties.refuse("version")),
        };
        let node_id = properties.number(node_key)?;
        let cluster_id = properties.get("cluster.id").map(str::to_owned);
        let directory_id = match properties.get("directory.id") {
            None => None,
            Some(text) => Some(parse_uuid(text).ok_or_else(|| properties.refuse("directory.id"))?),
        };
        if version == 1 && node_id.is_none() {
            return Err(TextFault::Missing { name: "node.id" }.at(properties.lines));
        }
        if version == 1 && cluster_id.is_none() {
            return Err(TextFault::Missing { name: "cluster.id" }.at(properties.lines));
        }
        Ok(MetaProperties { version, node_id, cluster_id, directory_id })
    }

    /// `comment` is the file's second line; Kafka puts the date there.
    pub fn render(&self, comment: &str) -> String {
        let comment: String =
            comment.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let mut text = format!("#\n#{comment}\n");
        let mut put = |key: &str, value: &str| {
            text.push_str(key);
            text.push('=');
            escape(value, &mut text);
            text.push('\n');
        };
        put("version", &self.version.to_string());
        if let Some(id) = self.node_id {
            put(if self.version == 0 { "broker.id" } else { "node.id" }, &id.to_string());
        }
        if let Some(id) = &self.cluster_id {
            put("cluster.id", id);
        }
        if let Some(id) = self.directory_id {
            put("directory.id", &render_uuid(id));
        }
        text
    }
}

/// A value as Java's properties format wants it.
fn escape(value: &str, out: &mut String) {
    for (i, c) in value.chars().enumerate() {
        match c {
            ' ' if i > 0 => out.push(' '),
            ' ' | '\\' | ':' | '=' | '#' | '!' => out.extend(['\\', c]),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            ' '..='~' => out.push(c),
            _ => {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    out.push_str(&format!("\\u{unit:04X}"));
                }
            }
        }
    }
}

/// Java's properties format, as far as a broker's files use it: comments, `key=value`, backslashes,
/// continued lines. Bytes are ISO-8859-1, one character each.
struct Properties {
    /// Key, value, line.
    entries: Vec<(String, String, usize)>,
    lines: usize,
}

impl Properties {
    fn parse(bytes: &[u8]) -> Properties {
        let text: String = bytes.iter().copied().map(char::from).collect();
        let mut entries = Vec::new();
        let mut lines = 0;
        let mut rest = text.lines();
        while let Some(line) = rest.next() {
            lines += 1;
            let at = lines;
            let mut logical = line.trim_start().to_owned();
            if logical.is_empty() || logical.starts_with(['#', '!']) {
                continue;
            }
            while ends_in_backslash(&logical) {
                logical.pop();
                logical.push_str(rest.next().unwrap_or_default().trim_start());
                lines += 1;
            }
            let (key, value) = split_property(&logical);
            entries.push((key, value, at));
        }
        Properties { entries, lines }
    }

    /// The last value wins, as in Java.
    fn entry(&self, name: &str) -> Option<&(String, String, usize)> {
        self.entries.iter().rfind(|(key, _, _)| key == name)
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.entry(name).map(|(_, value, _)| value.as_str())
    }

    fn number(&self, name: &'static str) -> Result<Option<i32>, TextError> {
        let Some(text) = self.get(name) else { return Ok(None) };
        text.trim().parse().map(Some).map_err(|_| self.refuse(name))
    }

    fn refuse(&self, name: &'static str) -> TextError {
        let (found, line) =
            self.entry(name).map_or((String::new(), 0), |(_, value, line)| (value.clone(), *line));
        TextFault::Value { name, found }.at(line)
    }
}

fn ends_in_backslash(line: &str) -> bool {
    line.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

/// Cuts at the first `=`, `:` or blank that no backslash stands before, and unescapes both sides.
fn split_property(line: &str) -> (String, String) {
    let mut escaped = false;
    let cut = line.find(|c: char| {
        let separates = !escaped && matches!(c, '=' | ':' | ' ' | '\t');
        escaped = c == '\\' && !escaped;
        separates
    });
    let (key, rest) = line.split_at(cut.unwrap_or(line.len()));
    let rest = rest.trim_start();
    let rest = rest.strip_prefix(['=', ':']).unwrap_or(rest).trim_start();
    (unescape(key), unescape(rest))
}

fn unescape(text: &str) -> String {
    let mut units: Vec<u16> = Vec::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let c = match c {
            '\\' => match chars.next() {
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('f') => '\u{c}',
                Some('u') => {
                    let digits: String = chars.by_ref().take(4).collect();
                    units.push(u16::from_str_radix(&digits, 16).unwrap_or(0xfffd));
                    continue;
                }
                Some(other) => other,
                None => break,
            },
            other => other,
        };
        units.extend_from_slice(c.encode_utf16(&mut [0; 2]));
    }
    String::from_utf16_lossy(&units)
}

/// The broker epoch in a `.kafka_cleanshutdown`. None, for an empty or unreadable one, still means
/// that the stop was clean: only that the file exists counts.
pub fn parse_clean_shutdown(bytes: &[u8]) -> Option<i64> {
    let json: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    json.get("brokerEpoch")?.as_i64()
}

pub fn render_clean_shutdown(broker_epoch: i64) -> String {
    format!("{{\"version\":0,\"brokerEpoch\":{broker_epoch}}}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn partition_metadata() {
        let text = "version: 0\ntopic_id: k59jxnGyQUSnX3nlVeqYQg";
        let id = parse_partition_metadata(text.as_bytes()).expect("sound");
        assert_eq!(render_partition_metadata(id), text);
        let nil = render_partition_metadata(Uuid::nil());
        assert!(nil.ends_with("AAAAAAAAAAAAAAAAAAAAAA"));
        for (text, line) in [
            ("", 1),
            ("version: 0", 2),
            ("version: -1\ntopic_id: k59jxnGyQUSnX3nlVeqYQg", 1),
            ("version: 0\ntopic_id: short", 2),
            ("version: 0\nid: k59jxnGyQUSnX3nlVeqYQg", 2),
            (&nil, 2),
        ] {
            let error = parse_partition_metadata(text.as_bytes()).expect_err("refused");
            assert_eq!(error.line, line, "{text:?}: {error}");
        }
    }

    #[test]
    fn meta_properties() {
        let text = "#\n#Mon Nov 30 20:32:25 UTC 2026\nnode.id=1\n\
                    directory.id=no_quP3iReu5zOszLTd55A\nversion=1\n\
                    cluster.id=V6K0UaspRrWT6NQD32q7Uw\n";
        let meta = MetaProperties::parse(text.as_bytes()).expect("sound");
        assert_eq!((meta.version, meta.node_id), (1, Some(1)));
        assert_eq!(meta.cluster_id.as_deref(), Some("V6K0UaspRrWT6NQD32q7Uw"));
        assert_eq!(meta.directory_id.map(render_uuid).as_deref(), Some("no_quP3iReu5zOszLTd55A"));
        let again = meta.render("Mon Nov 30 20:32:25 UTC 2026");
        let mut lines: Vec<_> = again.lines().collect();
        let mut kafkas: Vec<_> = text.lines().collect();
        lines.sort_unstable();
        kafkas.sort_unstable();
        assert_eq!(lines, kafkas);

        let old = MetaProperties::parse(b"broker.id : 7\n! note\n\n").expect("version 0");
        assert_eq!((old.version, old.node_id, old.cluster_id), (0, Some(7), None));
        let continued =
            MetaProperties::parse(b"version=1\nnode.id 3\ncluster.id=a\\\n   b\\:\\u00e4");
        assert_eq!(continued.expect("sound").cluster_id.as_deref(), Some("ab:\u{e4}"));
        for (text, line) in [
            ("version=2\n", 1),
            ("#\nversion=x\n", 2),
            ("version=1\ncluster.id=c\n", 2),
            ("version=1\nnode.id=1\n", 2),
            ("version=1\nnode.id=1\ncluster.id=c\ndirectory.id=%\n", 4),
        ] {
            assert_eq!(MetaProperties::parse(text.as_bytes()).expect_err("refused").line, line);
        }
    }

    #[test]
    fn the_clean_marker() {
        assert_eq!(render_clean_shutdown(490), "{\"version\":0,\"brokerEpoch\":490}");
        assert_eq!(parse_clean_shutdown(render_clean_shutdown(-1).as_bytes()), Some(-1));
        assert_eq!(parse_clean_shutdown(br#"{"new":[], "brokerEpoch": 7, "version": 3}"#), Some(7));
        for unreadable in [&b""[..], b"{", b"[]", b"{\"brokerEpoch\":\"x\"}", b"\xff"] {
            assert_eq!(parse_clean_shutdown(unreadable), None);
        }
    }

    proptest! {
        #[test]
        fn any_cluster_id_comes_back(id in "\\PC*|[\\x00-\\x7f]{0,20}", node in any::<i32>()) {
            let meta = MetaProperties {
                version: 1, node_id: Some(node), cluster_id: Some(id.clone()), directory_id: None,
            };
            let read = MetaProperties::parse(meta.render("now").as_bytes());
            prop_assert_eq!(read, Ok(meta));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = MetaProperties::parse(&bytes);
            let _ = (parse_partition_metadata(&bytes), parse_clean_shutdown(&bytes));
        }
    }
}
