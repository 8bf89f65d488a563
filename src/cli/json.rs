//! A record as JSON that loses nothing (R57).
//!
//! Owns: the shape: bytes that are UTF-8 are a string, others `{"base64": ".."}`, null is null;
//! headers are a list, in their order. Never does: write it anywhere.
//! Left: `format`. Right: [`super::consume`], [`super::dump_json`].

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::ser::{Serialize, SerializeMap, SerializeSeq, SerializeStruct, Serializer};

use crate::format::dump::control_text;
use crate::format::record::{Headers, Record};

/// A record of a partition.
pub struct RecordJson<'a> {
    pub partition: u32,
    pub record: &'a Record<'a>,
}

impl Serialize for RecordJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let record = self.record;
        let mut object = serializer.serialize_struct("record", 6)?;
        object.serialize_field("partition", &self.partition)?;
        object.serialize_field("offset", &record.offset)?;
        object.serialize_field("timestamp", &record.timestamp)?;
        object.serialize_field("key", &Bytes(record.key))?;
        object.serialize_field("value", &Bytes(record.value))?;
        object.serialize_field("headers", &HeadersJson(record.headers))?;
        object.end()
    }
}

/// A record as it is stored.
pub struct StoredRecord<'a> {
    pub record: &'a Record<'a>,
    /// What readers are told instead of its own time.
    pub append_time: Option<i64>,
    /// Says what its batch controls.
    pub is_control: bool,
    /// The checksum of a message of the older formats, and whether it holds.
    pub own_crc: Option<(u32, bool)>,
}

impl Serialize for StoredRecord<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let record = self.record;
        let mut object = serializer.serialize_map(None)?;
        object.serialize_entry("offset", &record.offset)?;
        object.serialize_entry("timestamp", &record.timestamp)?;
        if let Some(append_time) = self.append_time {
            object.serialize_entry("append_time", &append_time)?;
        }
        object.serialize_entry("sequence", &record.sequence)?;
        object.serialize_entry("key", &Bytes(record.key))?;
        object.serialize_entry("value", &Bytes(record.value))?;
        object.serialize_entry("headers", &HeadersJson(record.headers))?;
        if let Some((crc, valid)) = self.own_crc {
            object.serialize_entry("crc", &crc)?;
            object.serialize_entry("valid", &valid)?;
        }
        if let Some(control) = self.is_control.then(|| control_text(record)) {
            object.serialize_entry("control", &control)?;
        }
        object.end()
    }
}

/// Bytes that are never text.
pub struct Base64<'a>(pub &'a [u8]);

impl Serialize for Base64<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(Some(1))?;
        object.serialize_entry("base64", &BASE64.encode(self.0))?;
        object.end()
    }
}

struct Bytes<'a>(Option<&'a [u8]>);

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(bytes) = self.0 else { return serializer.serialize_none() };
        match std::str::from_utf8(bytes) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => Base64(bytes).serialize(serializer),
        }
    }
}

struct HeadersJson<'a>(Headers<'a>);

impl Serialize for HeadersJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        for header in self.0 {
            list.serialize_element(&HeaderJson(Bytes(Some(header.key)), Bytes(header.value)))?;
        }
        list.end()
    }
}

struct HeaderJson<'a>(Bytes<'a>, Bytes<'a>);

impl Serialize for HeaderJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("header", 2)?;
        object.serialize_field("key", &self.0)?;
        object.serialize_field("value", &self.1)?;
        object.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::batch::Codec;
    use crate::format::builder::{BatchBuilder, NewHeader};
    use crate::format::{batch, record};
    use proptest::prelude::*;
    use serde_json::Value;

    /// What a program makes of the JSON.
    fn bytes(value: &Value) -> Option<Vec<u8>> {
        match value {
            Value::Null => None,
            Value::String(text) => Some(text.as_bytes().to_vec()),
            object => {
                let text = object["base64"].as_str().expect("base64");
                Some(BASE64.decode(text).expect("sound"))
            }
        }
    }

    fn anything() -> impl Strategy<Value = Option<Vec<u8>>> {
        prop_oneof![
            Just(None),
            Just(Some(Vec::new())),
            "[a-z,\\n\"\\\\]{0,8}".prop_map(|text| Some(text.into_bytes())),
            prop::collection::vec(any::<u8>(), 0..12).prop_map(Some),
        ]
    }

    proptest! {
        #[test]
        fn every_record_can_be_rebuilt(
            key in anything(),
            value in anything(),
            headers in prop::collection::vec(
                (prop::collection::vec(any::<u8>(), 0..6), anything()), 0..4),
            timestamp in any::<i32>(),
        ) {
            let named: Vec<NewHeader<'_>> =
                headers.iter().map(|(key, value)| (key.as_slice(), value.as_deref())).collect();
            let mut builder = BatchBuilder::new();
            builder.append(key.as_deref(), value.as_deref(), &named, i64::from(timestamp));
            let made = builder.finish(Codec::None, None).expect("plain").to_vec();
            let header = batch::verify(&made).expect("sound");
            let record = record::records(&made[batch::HEADER_LEN..], &header)
                .next().expect("one").expect("sound");
            let text = serde_json::to_string(&RecordJson { partition: 3, record: &record });
            let text = text.expect("a string takes all");
            prop_assert!(!text.contains('\n'), "one line a record");
            let json: Value = serde_json::from_str(&text).expect("JSON");
            prop_assert_eq!(&json["partition"], 3);
            prop_assert_eq!(json["timestamp"].as_i64(), Some(i64::from(timestamp)));
            prop_assert_eq!(bytes(&json["key"]), key);
            prop_assert_eq!(bytes(&json["value"]), value);
            let list = json["headers"].as_array().expect("a list");
            let back: Vec<_> = list
                .iter()
                .map(|one| (bytes(&one["key"]).expect("never null"), bytes(&one["value"])))
                .collect();
            prop_assert_eq!(back, headers);
        }
    }
}
