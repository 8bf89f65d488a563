//! The error numbers a client may see: Kafka's where Kafka has one, ringlog's own from 1000 up.
//!
//! Owns numbers, names and one short line each. Never says when an error is raised:
//! `format::validate` and the shards decide that; `protocol` only carries the number.

macro_rules! error_codes {
    ($($(#[$doc:meta])* $variant:ident = $code:literal, $name:literal, $message:literal;)+) => {
        /// One error, as numbered on the wire.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(i16)]
        pub enum ErrorCode {
            $($(#[$doc])* $variant = $code,)+
        }

        impl ErrorCode {
            /// Every code, in ascending order.
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$variant,)+];

            /// The name Kafka's documentation uses (or ours, from 1000 up).
            pub const fn name(self) -> &'static str {
                match self { $(ErrorCode::$variant => $name,)+ }
            }

            /// One line for a human.
            pub const fn message(self) -> &'static str {
                match self { $(ErrorCode::$variant => $message,)+ }
            }

            /// The code with this number, if there is one.
            pub const fn from_code(code: i16) -> Option<ErrorCode> {
                match code { $($code => Some(ErrorCode::$variant),)+ _ => None }
            }
        }
    };
}

error_codes! {
    UnknownServerError = -1, "UNKNOWN_SERVER_ERROR",
        "the server failed in a way it has no name for";
    None = 0, "NONE", "no error";
    OffsetOutOfRange = 1, "OFFSET_OUT_OF_RANGE", "the offset is outside the log";
    CorruptMessage = 2, "CORRUPT_MESSAGE", "a batch fails its checksum or size check";
    UnknownTopicOrPartition = 3, "UNKNOWN_TOPIC_OR_PARTITION", "no such topic or partition here";
    NotLeaderOrFollower = 6, "NOT_LEADER_OR_FOLLOWER", "this server does not lead the partition";
    RequestTimedOut = 7, "REQUEST_TIMED_OUT", "the request took longer than it allowed";
    MessageTooLarge = 10, "MESSAGE_TOO_LARGE", "the batch is larger than max.message.bytes allows";
    InvalidTopicException = 17, "INVALID_TOPIC_EXCEPTION", "the topic name is not legal";
    RecordListTooLarge = 18, "RECORD_LIST_TOO_LARGE", "the records do not fit in one segment";
    NotEnoughReplicas = 19, "NOT_ENOUGH_REPLICAS", "too few replicas are in sync";
    TopicAuthorizationFailed = 29, "TOPIC_AUTHORIZATION_FAILED", "no permission for the topic";
    InvalidTimestamp = 32, "INVALID_TIMESTAMP", "a record's timestamp is out of range";
    UnsupportedVersion = 35, "UNSUPPORTED_VERSION", "the version of this api is not supported";
    TopicAlreadyExists = 36, "TOPIC_ALREADY_EXISTS", "a topic of that name exists";
    InvalidPartitions = 37, "INVALID_PARTITIONS", "the number of partitions is not legal";
    InvalidConfig = 40, "INVALID_CONFIG", "a configuration value is not legal";
    NotController = 41, "NOT_CONTROLLER", "this server is not the controller";
    InvalidRequest = 42, "INVALID_REQUEST", "the request cannot be read or contradicts itself";
    UnsupportedForMessageFormat = 43, "UNSUPPORTED_FOR_MESSAGE_FORMAT",
        "the stored message format cannot hold this batch";
    PolicyViolation = 44, "POLICY_VIOLATION", "the request breaks a policy";
    OutOfOrderSequenceNumber = 45, "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "the producer's sequence does not continue";
    DuplicateSequenceNumber = 46, "DUPLICATE_SEQUENCE_NUMBER", "the batch was appended before";
    InvalidProducerEpoch = 47, "INVALID_PRODUCER_EPOCH", "a newer producer holds this producer id";
    InvalidTxnState = 48, "INVALID_TXN_STATE", "the transaction is not in a state for this";
    InvalidProducerIdMapping = 49, "INVALID_PRODUCER_ID_MAPPING",
        "the producer id is not one that was handed out";
    TransactionCoordinatorFenced = 52, "TRANSACTION_COORDINATOR_FENCED",
        "a newer transaction coordinator has written";
    KafkaStorageError = 56, "KAFKA_STORAGE_ERROR", "the partition's storage failed";
    FencedLeaderEpoch = 74, "FENCED_LEADER_EPOCH", "the leader epoch is older than the partition's";
    UnknownLeaderEpoch = 75, "UNKNOWN_LEADER_EPOCH", "the partition does not know the leader epoch";
    UnsupportedCompressionType = 76, "UNSUPPORTED_COMPRESSION_TYPE",
        "the codec is unknown or not allowed here";
    OffsetNotAvailable = 78, "OFFSET_NOT_AVAILABLE", "the offset is not known yet";
    InvalidRecord = 87, "INVALID_RECORD", "a record or batch breaks the format's rules";
    ThrottlingQuotaExceeded = 89, "THROTTLING_QUOTA_EXCEEDED", "a quota is used up";
    UnknownTopicId = 100, "UNKNOWN_TOPIC_ID", "no topic has this id";
    InconsistentTopicId = 103, "INCONSISTENT_TOPIC_ID", "the topic id differs from the stored one";
    /// Another shard owns the partition: metadata names its address.
    NotOwner = 1000, "NOT_OWNER", "another shard owns the partition";
    /// A partition handle from before the topic was deleted or made anew.
    StaleHandle = 1001, "STALE_HANDLE", "the partition handle is no longer valid";
    ShuttingDown = 1002, "SHUTTING_DOWN", "the server is stopping";
    Overloaded = 1003, "OVERLOADED", "a bound of the server is reached";
}

impl ErrorCode {
    /// The number on the wire.
    pub const fn code(self) -> i16 {
        self as i16
    }
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}({})", self.name(), self.code())
    }
}

#[cfg(test)]
mod tests {
    use super::ErrorCode;

    #[test]
    fn numbers_are_kafkas_and_lead_back() {
        assert_eq!(ErrorCode::InvalidRecord.code(), 87);
        assert_eq!(ErrorCode::UnknownServerError.code(), -1);
        assert_eq!(ErrorCode::CorruptMessage.to_string(), "CORRUPT_MESSAGE(2)");
        for pair in ErrorCode::ALL.windows(2) {
            assert!(pair[0].code() < pair[1].code(), "{} before {}", pair[0], pair[1]);
        }
        for &code in ErrorCode::ALL {
            assert_eq!(ErrorCode::from_code(code.code()), Some(code));
        }
        assert_eq!(ErrorCode::from_code(999), Option::None);
    }
}
