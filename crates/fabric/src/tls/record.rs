//! A record's worth of bytes on its way between the caller and OpenSSL.

/// Most bytes of one record, and of what is copied at a time.
pub(super) const RECORD_BYTES: usize = 16 << 10;

/// Memory for one record, which is there from its first use until it is released, and is not cleared in
/// between.
#[derive(Default)]
pub(super) struct Record {
    /// Empty or [`RECORD_BYTES`] long.
    bytes: Vec<u8>,
    /// What is of use: `bytes[taken..filled]`.
    taken: usize,
    filled: usize,
}

impl Record {
    /// All of the memory, to be filled from its start on; what was in it is gone.
    pub(super) fn room(&mut self) -> &mut [u8] {
        (self.taken, self.filled) = (0, 0);
        self.bytes.resize(RECORD_BYTES, 0);
        &mut self.bytes
    }

    /// The first `bytes` of the room are of use now.
    pub(super) fn fill(&mut self, bytes: usize) {
        (self.taken, self.filled) = (0, bytes.min(self.bytes.len()));
    }

    /// What is of use.
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.taken..self.filled]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.taken == self.filled
    }

    /// The first `bytes` of what is of use are not any more.
    pub(super) fn take(&mut self, bytes: usize) {
        self.taken = (self.taken + bytes).min(self.filled);
    }

    /// Gives the memory back when nothing of use is in it.
    pub(super) fn release(&mut self) {
        if self.is_empty() {
            *self = Self::default();
        }
    }

    #[cfg(test)]
    pub(super) fn has_memory(&self) -> bool {
        self.bytes.capacity() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_kept_as_it_is_from_record_to_record() {
        let mut record = Record::default();
        assert!(record.is_empty() && !record.has_memory());
        record.room().fill(7);
        record.fill(5);
        assert_eq!(record.rest(), [7; 5]);
        record.take(3);
        assert_eq!(record.rest(), [7; 2]);
        record.take(9);
        assert!(record.is_empty() && record.rest().is_empty());
        assert_eq!(record.room(), [7; RECORD_BYTES], "nobody has cleared it");
    }

    #[test]
    fn memory_is_given_back_unless_something_of_use_is_in_it() {
        let mut record = Record::default();
        record.room();
        record.fill(1);
        record.release();
        assert_eq!(record.rest(), [0]);
        record.take(1);
        record.release();
        assert!(!record.has_memory());
    }
}
