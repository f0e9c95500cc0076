//! A hash for numbers that programs have made themselves: nobody else chooses them, so it need not withstand
//! anybody.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Spreads a number over all bits.
#[inline]
pub fn spread(number: u64) -> u64 {
    let product = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ product >> 32
}

/// Spreads numbers over a table.
#[derive(Default, Debug)]
pub struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = spread(self.0 ^ value);
    }
}

/// A table by numbers.
pub type ByNumber<T> = HashMap<u64, T, BuildHasherDefault<Spread>>;
