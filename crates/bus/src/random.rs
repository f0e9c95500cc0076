//! Random numbers of the system, and what spreads the numbers of a series that can be repeated.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;

use rustix::io::{Errno, retry_on_intr};
use rustix::rand::{GetRandomFlags, getrandom};

/// Fills `bytes` with random numbers that keys can be made of. Errors: what the system says; a sandbox may
/// forbid the call.
pub fn fill(mut bytes: &mut [u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        // The system gives less than was asked for when there are more than 256 bytes and a signal comes.
        let given = retry_on_intr(|| getrandom(&mut *bytes, GetRandomFlags::empty()))?;
        if given == 0 {
            return Err(Errno::IO.into());
        }
        bytes = &mut bytes[given..];
    }
    Ok(())
}

/// A number that nobody can foresee, for seeds and checksums: at the price of a hash, and without an error.
pub fn number() -> u64 {
    // The standard library takes the keys of its hash maps from the system, and changes them from call to
    // call.
    RandomState::new().build_hasher().finish()
}

/// Spreads `number` over all 64 bits: the finalizer of SplitMix64 (Steele, Lea, Flood 2014).
///
/// Applied to multiples of [`STEP`] it is that generator: a series whose state is the position in it.
#[inline]
pub const fn mix(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// What SplitMix64 adds from one number to the next: 2^64 divided by the golden ratio, made odd.
pub const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::{STEP, fill, mix, number};

    #[test]
    fn the_series_is_the_published_one() {
        // The first numbers of SplitMix64 with the seed 0, of the authors' own program.
        assert_eq!(mix(STEP), 0xe220_a839_7b1d_cdaf);
        assert_eq!(mix(STEP.wrapping_mul(2)), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn every_byte_is_filled_and_no_number_comes_twice() {
        let mut bytes = [0; 1 << 10];
        fill(&mut bytes).expect("the system has random numbers");
        assert!(bytes.chunks(16).all(|sixteen| sixteen != [0; 16]), "{bytes:?}");
        assert_ne!(number(), number());
    }
}
