//! Which partitions of a topic a command is about.
//!
//! Owns: the choice, and the message when there is none. Never does: place anything.
//! Left: `client`. Right: `produce`, `consume`, `offsets`.

use super::Failure;
use crate::client::Client;
use crate::errors::ErrorCode;

/// The one named, or all of the topic's in order.
pub fn chosen(
    client: &mut Client,
    topic: &str,
    partition: Option<u32>,
) -> Result<Vec<u32>, Failure> {
    let metadata = client.refresh(Some(&[topic]))?;
    let Some(known) = metadata.topic(topic) else {
        return Err(Failure(format!(
            "topic {topic}: there is none of this name; `ringlog topic create {topic}` makes it, \
             `ringlog topic list` shows all"
        )));
    };
    if known.error != 0 {
        let code = ErrorCode::from_code(known.error);
        let code = code.map_or(format!("error {}", known.error), |code| code.name().to_owned());
        return Err(Failure(format!("topic {topic}: {code}")));
    }
    let all: Vec<u32> = known.partitions.iter().map(|partition| partition.index).collect();
    match partition {
        None => Ok(all),
        Some(one) if all.contains(&one) => Ok(vec![one]),
        Some(one) => Err(Failure(format!(
            "topic {topic} has no partition {one}: it has {}, counted from 0",
            all.len()
        ))),
    }
}
