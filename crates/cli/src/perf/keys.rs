//! The keys of a key-value namespace that is measured.

use std::sync::atomic::{AtomicU64, Ordering};

use unvme::random;

/// Bytes of a key that number it, where it is long enough: hexadecimal digits.
const DIGITS: usize = 16;

/// Keys that are there, all threads together.
#[derive(Debug)]
pub(super) struct Keys {
    /// Those before the first point.
    pub(super) loaded: u64,
    /// Those that are there.
    count: AtomicU64,
    /// Bytes of each.
    pub(super) bytes: u8,
    /// Keys of a list at most.
    pub(super) scan_max: u32,
}

impl Keys {
    pub(super) fn new(loaded: u64, bytes: u8, scan_max: u32) -> Self {
        Self { loaded, count: AtomicU64::new(loaded), bytes, scan_max }
    }

    /// The number of a key that is not there yet.
    pub(super) fn insert(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed)
    }

    /// The number of the key that was inserted `ago` before the last one.
    pub(super) fn latest(&self, ago: u64) -> u64 {
        self.count.load(Ordering::Relaxed).saturating_sub(ago + 1)
    }

    /// Most keys of so many bytes.
    pub(super) fn most(bytes: u8) -> u64 {
        if bytes < 8 { (1 << (8 * u32::from(bytes))) - 1 } else { u64::MAX }
    }

    /// Bytes of a list's entry of such a key: its length and the key, in whole words.
    pub(super) fn entry_bytes(&self) -> usize {
        (2 + usize::from(self.bytes)).next_multiple_of(4)
    }

    /// Writes the key of that number: keys that follow each other are apart, as hashes are. `out` has the
    /// bytes of a key.
    pub(super) fn write(&self, number: u64, out: &mut [u8]) {
        // Both ways of `mix` are there for each number: no two have one key.
        let mixed = random::mix(number);
        let length = out.len();
        if length >= DIGITS {
            let (front, digits) = out.split_at_mut(length - DIGITS);
            front.fill(b'k');
            for (index, digit) in digits.iter_mut().enumerate() {
                *digit = b"0123456789abcdef"[(mixed >> (60 - 4 * index) & 15) as usize];
            }
        } else if length >= 8 {
            let (front, end) = out.split_at_mut(length - 8);
            front.fill(b'k');
            end.copy_from_slice(&mixed.to_be_bytes());
        } else {
            out.copy_from_slice(&number.to_be_bytes()[8 - length..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_number_has_a_key_of_its_own() {
        for bytes in [2, 4, 7, 8, 12, 16, 20, 255] {
            let keys = Keys::new(0, bytes, 1);
            let mut seen = HashSet::new();
            for number in 0..10_000 {
                let mut key = vec![0; bytes.into()];
                keys.write(number, &mut key);
                assert!(seen.insert(key), "{number} of {bytes} bytes");
            }
        }
        assert_eq!((Keys::most(2), Keys::most(8)), (65_535, u64::MAX));
    }

    #[test]
    fn long_keys_can_be_read() {
        let mut key = [0; 20];
        Keys::new(0, 20, 1).write(7, &mut key);
        let text = str::from_utf8(&key).expect("text");
        assert!(
            text.starts_with("kkkk") && text[4..].chars().all(|digit| digit.is_ascii_hexdigit()),
            "{text}"
        );
    }

    #[test]
    fn the_latest_keys_are_those_inserted_last() {
        let keys = Keys::new(100, 16, 1);
        assert_eq!((keys.latest(0), keys.insert(), keys.latest(0), keys.latest(99)), (99, 100, 100, 1));
        assert_eq!(keys.latest(1000), 0);
    }
}
