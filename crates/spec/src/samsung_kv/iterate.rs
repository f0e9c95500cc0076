//! The buffer of Iterate Read: a count, then records, all of it little-endian.
//!
//! | type of the iterator | record |
//! |---|---|
//! | key | key length (32 bits), key, zeroes up to a multiple of four |
//! | key and value | the same, then value length (32 bits), value, zeroes up to a multiple of four |
//!
//! No public document gives the second layout; it is the first one continued. The length is that of the whole
//! value. A value that does not fit even in a buffer of its own is cut off at the end of the buffer: its pair
//! is the only one there, and Retrieve gets the rest.

use super::ITERATE_HEADER_BYTES;

const LENGTH_BYTES: usize = 4;
const ALIGNMENT: usize = 4;

/// Bytes that a key or a value takes with its length and padding.
const fn field_bytes(bytes: usize) -> usize {
    LENGTH_BYTES.saturating_add(bytes.saturating_add(ALIGNMENT - 1) & !(ALIGNMENT - 1))
}

/// Writes what Iterate Read returns.
#[derive(Debug)]
pub struct IterateWriter<'a> {
    buffer: &'a mut [u8],
    used: usize,
    records: u32,
}

impl<'a> IterateWriter<'a> {
    /// No records yet; `None` when the buffer has no room for their number.
    pub fn new(buffer: &'a mut [u8]) -> Option<Self> {
        buffer.get_mut(..ITERATE_HEADER_BYTES)?.fill(0);
        Some(Self { buffer, used: ITERATE_HEADER_BYTES, records: 0 })
    }

    /// Records so far.
    pub const fn records(&self) -> u32 {
        self.records
    }

    /// Bytes that are left for records.
    pub const fn room(&self) -> usize {
        self.buffer.len().saturating_sub(self.used)
    }

    /// Adds a key; false, and nothing added, when it does not fit.
    pub fn push_key(&mut self, key: &[u8]) -> bool {
        if field_bytes(key.len()) > self.room() {
            return false;
        }
        self.put(key, key.len());
        self.records += 1;
        true
    }

    /// Adds a key and as much of its value as is wanted, and returns the place for that; `None`, and nothing
    /// added, when it does not fit and is not the first. A value of which a part is left out fills the
    /// buffer.
    pub fn push_pair(&mut self, key: &[u8], value_bytes: usize) -> Option<&mut [u8]> {
        let whole = field_bytes(key.len()).saturating_add(field_bytes(value_bytes));
        let least = field_bytes(key.len()).saturating_add(LENGTH_BYTES);
        if least > self.room() || (whole > self.room() && self.records > 0) {
            return None;
        }
        self.put(key, key.len());
        self.put(&[], value_bytes);
        let start = self.used;
        let end = start.saturating_add(field_bytes(value_bytes) - LENGTH_BYTES).min(self.buffer.len());
        self.used = end;
        self.records += 1;
        let place = self.buffer.get_mut(start..end)?;
        place.fill(0);
        let bytes = value_bytes.min(place.len());
        place.get_mut(..bytes)
    }

    /// A length and bytes, with padding; the caller has seen that there is room.
    fn put(&mut self, bytes: &[u8], length: usize) {
        let Some(rest) = self.buffer.get_mut(self.used..) else { return };
        let Some((head, rest)) = rest.split_first_chunk_mut::<LENGTH_BYTES>() else { return };
        *head = (length as u32).to_le_bytes();
        let padded = field_bytes(bytes.len()) - LENGTH_BYTES;
        if let Some(field) = rest.get_mut(..padded) {
            let (body, padding) = field.split_at_mut(bytes.len());
            body.copy_from_slice(bytes);
            padding.fill(0);
        }
        self.used += LENGTH_BYTES + padded;
    }

    /// Writes the number of records; returns the bytes that are used.
    pub fn finish(self) -> usize {
        if let Some(header) = self.buffer.get_mut(..ITERATE_HEADER_BYTES) {
            header.copy_from_slice(&self.records.to_le_bytes());
        }
        self.used
    }
}

/// A key and its value, as an iterator over both returns them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value, or its beginning.
    pub value: &'a [u8],
    /// Bytes of the whole value.
    pub value_bytes: u32,
}

/// Reads the keys of an iterator over keys. It ends early when a device says that there are more than bytes.
#[derive(Clone, Debug)]
pub struct IterateKeys<'a>(Fields<'a>);

impl<'a> IterateKeys<'a> {
    /// The keys in `data`, the bytes that were transferred.
    pub fn new(data: &'a [u8]) -> Self {
        Self(Fields::new(data))
    }
}

impl<'a> Iterator for IterateKeys<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.0.start_record()?;
        let (key, length) = self.0.field()?;
        (key.len() == length as usize).then_some(key)
    }
}

/// Reads the pairs of an iterator over keys and values. It ends early when a device says that there are more
/// than bytes.
#[derive(Clone, Debug)]
pub struct IteratePairs<'a>(Fields<'a>);

impl<'a> IteratePairs<'a> {
    /// The pairs in `data`, the bytes that were transferred.
    pub fn new(data: &'a [u8]) -> Self {
        Self(Fields::new(data))
    }
}

impl<'a> Iterator for IteratePairs<'a> {
    type Item = Pair<'a>;

    fn next(&mut self) -> Option<Pair<'a>> {
        self.0.start_record()?;
        let (key, length) = self.0.field()?;
        if key.len() != length as usize {
            return None;
        }
        let (value, value_bytes) = self.0.field()?;
        Some(Pair { key, value, value_bytes })
    }
}

/// Lengths and the bytes behind them.
#[derive(Clone, Debug)]
struct Fields<'a> {
    rest: &'a [u8],
    records: u32,
}

impl<'a> Fields<'a> {
    fn new(data: &'a [u8]) -> Self {
        match data.split_first_chunk::<ITERATE_HEADER_BYTES>() {
            Some((header, rest)) => Self { rest, records: u32::from_le_bytes(*header) },
            None => Self { rest: &[], records: 0 },
        }
    }

    fn start_record(&mut self) -> Option<()> {
        self.records = self.records.checked_sub(1)?;
        Some(())
    }

    /// The next field: as many of its bytes as there are, and its length.
    fn field(&mut self) -> Option<(&'a [u8], u32)> {
        let (head, rest) = self.rest.split_first_chunk::<LENGTH_BYTES>()?;
        let length = u32::from_le_bytes(*head);
        let bytes = rest.get(..length as usize).unwrap_or(rest);
        // The padding of the last field may be missing.
        self.rest = self.rest.get(field_bytes(length as usize)..).unwrap_or(&[]);
        Some((bytes, length))
    }
}
