//! Bounds-checked reading and writing of the wire's primitive shapes.
//!
//! Owns: [`Reader`] (borrows), [`Writer`] (appends), [`Head`] (fixed size, no heap), and the error
//! that names the field. Never does: know a message.
//! Left: [`crate::types`]. Right: every other file of `protocol`.
//!
//! Integers are big-endian. A string is a u16 length and UTF-8; bytes are a u32 length and bytes;
//! a list is a u32 count and its elements.

use crate::types::{AckLevel, Offset};

/// What is wrong with a body, and where.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("{field}: {want} bytes wanted, {got} left")]
    Truncated { field: &'static str, want: usize, got: usize },
    #[error("{field}: a count of {count} cannot fit into the {left} bytes left")]
    Count { field: &'static str, count: u32, left: usize },
    #[error("{field}: not UTF-8")]
    Utf8 { field: &'static str },
    #[error("{field}: {got} is not a value it can have")]
    Value { field: &'static str, got: u64 },
    #[error("{bytes} bytes behind the last field of {message}")]
    Trailing { message: &'static str, bytes: usize },
    #[error("{field}: {len} is more than the wire can carry ({max})")]
    TooLong { field: &'static str, len: usize, max: usize },
}

/// Reads fields off the front of a borrowed slice.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    pub fn left(&self) -> usize {
        self.rest.len()
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], WireError> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(WireError::Truncated {
            field,
            want: N,
            got: self.rest.len(),
        })?;
        self.rest = rest;
        Ok(*head)
    }

    pub fn take(&mut self, field: &'static str, len: usize) -> Result<&'a [u8], WireError> {
        let (head, rest) = self.rest.split_at_checked(len).ok_or(WireError::Truncated {
            field,
            want: len,
            got: self.rest.len(),
        })?;
        self.rest = rest;
        Ok(head)
    }

    /// All that is left: a body whose last field runs to the frame's end.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    pub fn u8(&mut self, field: &'static str) -> Result<u8, WireError> {
        self.array::<1>(field).map(|[byte]| byte)
    }

    pub fn u16(&mut self, field: &'static str) -> Result<u16, WireError> {
        self.array(field).map(u16::from_be_bytes)
    }

    pub fn i16(&mut self, field: &'static str) -> Result<i16, WireError> {
        self.array(field).map(i16::from_be_bytes)
    }

    pub fn u32(&mut self, field: &'static str) -> Result<u32, WireError> {
        self.array(field).map(u32::from_be_bytes)
    }

    pub fn i32(&mut self, field: &'static str) -> Result<i32, WireError> {
        self.array(field).map(i32::from_be_bytes)
    }

    pub fn u64(&mut self, field: &'static str) -> Result<u64, WireError> {
        self.array(field).map(u64::from_be_bytes)
    }

    pub fn i64(&mut self, field: &'static str) -> Result<i64, WireError> {
        self.array(field).map(i64::from_be_bytes)
    }

    pub fn id(&mut self, field: &'static str) -> Result<[u8; 16], WireError> {
        self.array(field)
    }

    /// 0 or 1; anything else is an error, so that a later version can use the other values.
    pub fn bool(&mut self, field: &'static str) -> Result<bool, WireError> {
        match self.u8(field)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(WireError::Value { field, got: u64::from(other) }),
        }
    }

    /// Bytes kept for later versions: they must be zero today.
    pub fn reserved<const N: usize>(&mut self, field: &'static str) -> Result<(), WireError> {
        match self.array::<N>(field)?.into_iter().find(|&byte| byte != 0) {
            None => Ok(()),
            Some(byte) => Err(WireError::Value { field, got: u64::from(byte) }),
        }
    }

    pub fn ack_level(&mut self, field: &'static str) -> Result<AckLevel, WireError> {
        let raw = self.u8(field)?;
        AckLevel::from_wire(raw).ok_or(WireError::Value { field, got: u64::from(raw) })
    }

    /// An offset that cannot be negative.
    pub fn offset(&mut self, field: &'static str) -> Result<Offset, WireError> {
        let raw = self.i64(field)?;
        Offset::new(raw).ok_or(WireError::Value { field, got: raw.cast_unsigned() })
    }

    pub fn string(&mut self, field: &'static str) -> Result<&'a str, WireError> {
        let len = self.u16(field)?;
        let bytes = self.take(field, usize::from(len))?;
        std::str::from_utf8(bytes).map_err(|_| WireError::Utf8 { field })
    }

    /// A bool, then the string if it is 1.
    pub fn option_string(&mut self, field: &'static str) -> Result<Option<&'a str>, WireError> {
        match self.bool(field)? {
            true => self.string(field).map(Some),
            false => Ok(None),
        }
    }

    pub fn bytes(&mut self, field: &'static str) -> Result<&'a [u8], WireError> {
        let len = self.u32(field)?;
        self.take(field, usize::try_from(len).unwrap_or(usize::MAX))
    }

    /// A list whose elements take at least `bytes_min` each: a count that could not fit is an
    /// error before anything is allocated (R85).
    pub fn list<T>(
        &mut self,
        field: &'static str,
        bytes_min: usize,
        mut one: impl FnMut(&mut Reader<'a>) -> Result<T, WireError>,
    ) -> Result<Vec<T>, WireError> {
        let count = self.u32(field)?;
        let len = self.fits(field, count, bytes_min)?;
        let mut list = Vec::with_capacity(len);
        for _ in 0..len {
            list.push(one(self)?);
        }
        Ok(list)
    }

    /// `count` elements of at least `bytes_min` can still come; their number as a usize.
    pub fn fits(
        &self,
        field: &'static str,
        count: u32,
        bytes_min: usize,
    ) -> Result<usize, WireError> {
        let room = self.left() / bytes_min.max(1);
        match usize::try_from(count) {
            Ok(len) if len <= room => Ok(len),
            _ => Err(WireError::Count { field, count, left: self.left() }),
        }
    }

    /// The body must end here: bytes behind the last field mean that the two sides disagree.
    pub fn end(self, message: &'static str) -> Result<(), WireError> {
        match self.rest.len() {
            0 => Ok(()),
            bytes => Err(WireError::Trailing { message, bytes }),
        }
    }
}

/// Appends fields to a buffer.
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> Writer<'a> {
    pub fn new(out: &'a mut Vec<u8>) -> Writer<'a> {
        Writer { out }
    }

    pub fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    pub fn u8(&mut self, value: u8) {
        self.raw(&[value]);
    }

    pub fn u16(&mut self, value: u16) {
        self.raw(&value.to_be_bytes());
    }

    pub fn i16(&mut self, value: i16) {
        self.raw(&value.to_be_bytes());
    }

    pub fn u32(&mut self, value: u32) {
        self.raw(&value.to_be_bytes());
    }

    pub fn i32(&mut self, value: i32) {
        self.raw(&value.to_be_bytes());
    }

    pub fn u64(&mut self, value: u64) {
        self.raw(&value.to_be_bytes());
    }

    pub fn i64(&mut self, value: i64) {
        self.raw(&value.to_be_bytes());
    }

    pub fn bool(&mut self, value: bool) {
        self.u8(u8::from(value));
    }

    pub fn string(&mut self, field: &'static str, value: &str) -> Result<(), WireError> {
        let max = usize::from(u16::MAX);
        let len = value.len();
        let short = u16::try_from(len).map_err(|_| WireError::TooLong { field, len, max })?;
        self.u16(short);
        self.raw(value.as_bytes());
        Ok(())
    }

    pub fn option_string(
        &mut self,
        field: &'static str,
        value: Option<&str>,
    ) -> Result<(), WireError> {
        self.bool(value.is_some());
        value.map_or(Ok(()), |text| self.string(field, text))
    }

    pub fn bytes(&mut self, field: &'static str, value: &[u8]) -> Result<(), WireError> {
        self.count(field, value.len())?;
        self.raw(value);
        Ok(())
    }

    pub fn list<T>(
        &mut self,
        field: &'static str,
        list: &[T],
        mut one: impl FnMut(&mut Writer<'_>, &T) -> Result<(), WireError>,
    ) -> Result<(), WireError> {
        self.count(field, list.len())?;
        list.iter().try_for_each(|item| one(self, item))
    }

    fn count(&mut self, field: &'static str, len: usize) -> Result<(), WireError> {
        let max = u32::MAX as usize;
        self.u32(u32::try_from(len).map_err(|_| WireError::TooLong { field, len, max })?);
        Ok(())
    }
}

/// A fixed-size piece of a message, built on the stack: the hot responses allocate nothing.
pub struct Head<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Head<N> {
    pub fn new() -> Head<N> {
        Head { bytes: [0; N], len: 0 }
    }

    #[must_use]
    pub fn put<const M: usize>(mut self, field: [u8; M]) -> Head<N> {
        assert!(self.len + M <= N, "a head of {N} bytes takes {M} more behind {}", self.len);
        if let Some(room) = self.bytes.get_mut(self.len..self.len + M) {
            room.copy_from_slice(&field);
        }
        self.len += M;
        self
    }

    /// # Panics
    /// When the fields do not add up to `N`: the layout is wrong, not the input.
    pub fn done(self) -> [u8; N] {
        assert!(self.len == N, "a head of {N} bytes was given {}", self.len);
        self.bytes
    }
}

impl<const N: usize> Default for Head<N> {
    fn default() -> Self {
        Head::new()
    }
}
