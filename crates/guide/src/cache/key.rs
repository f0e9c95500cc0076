//! What a cached value is known by.

/// Longest key that is cached, in bytes: the longest there is.
const KEY_BYTES_MAX: usize = 255;

/// A pair of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryId<'a> {
    /// The device: its place in the list that [`crate::ReadCache::new`] was given.
    pub device: usize,
    /// The keyspace; for devices of the standard command set the namespace.
    pub keyspace: u8,
    /// The key.
    pub key: &'a [u8],
}

/// A key as the tree has it: the keyspace, then the key.
pub(super) struct TreeKey {
    data: [u8; 1 + KEY_BYTES_MAX],
    bytes: usize,
    hash: u64,
}

impl TreeKey {
    /// `None` for a key that no device takes.
    #[inline]
    pub(super) fn new(id: &EntryId<'_>) -> Option<Self> {
        if id.key.is_empty() {
            return None;
        }
        let mut data = [0; 1 + KEY_BYTES_MAX];
        data[0] = id.keyspace;
        data.get_mut(1..=id.key.len())?.copy_from_slice(id.key);
        // Of the caller's bytes, not of those just written: words read across several writes wait for all
        // writes before them.
        Some(Self { data, bytes: 1 + id.key.len(), hash: hash(id.keyspace, id.key) })
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[u8] {
        &self.data[..self.bytes]
    }

    #[inline]
    pub(super) fn hash(&self) -> u64 {
        self.hash
    }
}

/// Spreads keys over shards, versions and hints; the high bits are the good ones. Whoever chooses keys to
/// meet in one shard slows down himself.
#[inline]
fn hash(keyspace: u8, data: &[u8]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = (data.len() as u64) << 8 | u64::from(keyspace);
    let mut mix = |word: [u8; 8]| {
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(ODD);
        hash ^= hash >> 32;
    };
    let (words, rest) = data.as_chunks::<8>();
    words.iter().for_each(|word| mix(*word));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix(last);
    hash.wrapping_mul(ODD)
}

/// Some or all pairs of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All of them: what a format ends.
    Device,
    /// The pairs of a keyspace whose first four key bytes, taken as a big-endian number, have the bits of
    /// `prefix` where `bitmask` has ones: what an iterator that deletes ends.
    Matching {
        /// The keyspace.
        keyspace: u8,
        /// The bits to have.
        prefix: u32,
        /// Where to have them.
        bitmask: u32,
    },
}

impl Scope {
    /// Whether a key of the tree is meant. A key of less than four bytes is when those it has match: whether
    /// a device means it too is not said anywhere, and nothing is lost by dropping a pair that is still
    /// there.
    pub(super) fn covers(&self, tree_key: &[u8]) -> bool {
        let Self::Matching { keyspace, prefix, bitmask } = *self else { return true };
        let Some((key_keyspace, key)) = tree_key.split_first() else { return true };
        let key = key.iter().chain(&[0; 4]).take(4).zip(prefix.to_be_bytes()).zip(bitmask.to_be_bytes());
        let bytes = tree_key.len() - 1;
        *key_keyspace == keyspace && key.take(bytes).all(|((key, prefix), mask)| key & mask == prefix & mask)
    }

    /// What all keys of the tree that are meant start with.
    pub(super) fn common_prefix(&self) -> Vec<u8> {
        let Self::Matching { keyspace, prefix, bitmask } = *self else { return Vec::new() };
        // One byte at most: a key may be shorter than the others and is meant all the same.
        let whole = usize::from(bitmask >= 0xff00_0000);
        [&[keyspace][..], &prefix.to_be_bytes()[..whole]].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_compares_the_first_four_bytes_as_a_big_endian_number() {
        let scope = |prefix, bitmask| Scope::Matching { keyspace: 1, prefix, bitmask };
        for (scope, key, covered) in [
            (scope(0x3031_3233, 0xffff_ffff), &b"\x010123rest"[..], true),
            (scope(0x3031_3233, 0xffff_ffff), b"\x010124rest", false),
            (scope(0x3031_3233, 0xffff_ffff), b"\x000123rest", false),
            (scope(0x3031_3233, 0xff00_0000), b"\x010xyz", true),
            (scope(0x3f31_3233, 0xf000_0000), b"\x010xyz", true),
            (scope(0x4031_3233, 0xf000_0000), b"\x010xyz", false),
            (scope(0xffff_ffff, 0), b"\x01anything", true),
            (scope(0xffff_ffff, 0), b"\x02anything", false),
            (scope(0x3031_3233, 0xffff_ffff), b"\x0101", true),
            (scope(0x3031_3233, 0xffff_ffff), b"\x0102", false),
            (Scope::Device, b"\x07anything", true),
        ] {
            assert_eq!(scope.covers(key), covered, "{scope:?} {key:02x?}");
            if covered {
                assert!(key.starts_with(&scope.common_prefix()), "{scope:?} {key:02x?}");
            }
        }
    }

    #[test]
    fn keys_no_device_takes_are_not_cached() {
        let id = |key| EntryId { device: 0, keyspace: 0, key };
        assert_eq!(TreeKey::new(&id(&[7; 255])).unwrap().as_slice().len(), 256);
        assert!(TreeKey::new(&id(&[7; 256])).is_none());
        assert_eq!(TreeKey::new(&id(b"k")).unwrap().as_slice(), b"\0k");
        assert!(TreeKey::new(&id(b"")).is_none());
    }

    #[test]
    fn keys_that_differ_in_one_place_are_spread() {
        let mut shards = [0u32; 64];
        for at in 0..6400u32 {
            let key = [&b"user:000000:"[..], &at.to_be_bytes()].concat();
            let key = TreeKey::new(&EntryId { device: 0, keyspace: 0, key: &key }).unwrap();
            shards[(key.hash() >> 58) as usize] += 1;
        }
        assert!(shards.iter().all(|count| (50..=200).contains(count)), "{shards:?}");
    }
}
