//! Who reads a file in order gets more than was asked for.

use super::FileSettings;
use crate::layout::BLOCK;

/// What a file's readers have missed lately. Only misses count: whoever reads in order misses behind each
/// read-ahead, at its end.
#[derive(Default)]
pub(crate) struct Ahead {
    /// Where a miss would go on with what was read before.
    next: u64,
    /// Bytes that were read in order until there.
    in_order: u64,
    /// Bytes of the last read-ahead.
    window: u64,
}

impl Ahead {
    /// A read misses the pages of `bytes` bytes from `offset` on: how many bytes to read there.
    pub(crate) fn miss(&mut self, offset: u64, bytes: u64, settings: &FileSettings) -> u64 {
        if offset == self.next {
            self.in_order += bytes;
        } else {
            (self.in_order, self.window) = (bytes, 0);
        }
        let read = if settings.read_ahead > 0 && self.in_order >= settings.read_ahead_threshold {
            let first = settings.read_ahead_threshold.min(settings.read_ahead);
            self.window = (self.window * 2).clamp(first, settings.read_ahead);
            bytes.max(self.window)
        } else {
            bytes
        };
        let end = (offset + read).next_multiple_of(BLOCK as u64);
        self.in_order += end - offset - bytes.min(end - offset);
        self.next = end;
        end - offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_in_order_reads_ahead_and_reading_here_and_there_does_not() {
        let settings = FileSettings::default();
        let mut ahead = Ahead::default();
        let mut at = 0;
        let mut sizes = Vec::new();
        for _ in 0..40 {
            let read = ahead.miss(at, 4096, &settings);
            sizes.push(read);
            at += read;
        }
        assert_eq!(sizes[..31], [4096; 31]);
        assert_eq!(sizes[31..35], [128 << 10, 256 << 10, 512 << 10, 512 << 10]);
        assert_eq!(ahead.miss(1 << 30, 4096, &settings), 4096);
        let none = FileSettings { read_ahead: 0, ..settings };
        assert_eq!(ahead.miss((1 << 30) + 4096, 1 << 20, &none), 1 << 20);
    }
}
