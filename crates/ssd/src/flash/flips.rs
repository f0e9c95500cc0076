//! What 32 bytes with a checksum were before a bit or two of them flipped.

/// Bits of what is looked at.
const BITS: usize = 256;

/// What `accept` makes of the words that become intact when one bit is flipped back, or two. It is asked up
/// to 32896 times.
#[cold]
pub(super) fn undone<T>(words: [u64; 4], mut accept: impl FnMut([u64; 4]) -> Option<T>) -> Option<T> {
    let flip = |mut words: [u64; 4], bit: usize| {
        words[bit / 64] ^= 1 << (bit % 64);
        words
    };
    // One is more likely than two.
    let one = (0..BITS).find_map(|bit| accept(flip(words, bit)));
    one.or_else(|| {
        (0..BITS).find_map(|first| {
            let words = flip(words, first);
            (0..first).find_map(|second| accept(flip(words, second)))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_and_two_flipped_bits_are_undone_and_three_are_not() {
        let intact = [1, 2, 3, 4];
        let accept = |words: [u64; 4]| (words == intact).then_some(words);
        assert_eq!(undone([1, 2, 3, 4 | 1 << 63], accept), Some(intact));
        assert_eq!(undone([0, 2, 3, 4 | 1 << 63], accept), Some(intact));
        assert_eq!(undone([1, 2 | 0xc0, 3, 4], accept), Some(intact));
        assert_eq!(undone([0, 0, 3, 4 | 1 << 63], accept), None);
    }
}
