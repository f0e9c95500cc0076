//! The value of `--amount`: how much data ends a point.

use std::fmt;
use std::str::FromStr;

use unvme::Size;

use crate::numbers;

/// Largest percentage: more is a matter of time.
const PERCENT_MAX: u32 = 100_000;

/// Data to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Amount {
    Bytes(u64),
    /// Of what is in use.
    Percent(u32),
}

impl FromStr for Amount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let amount = match text.strip_suffix('%') {
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits
                .parse::<u32>()
                .ok()
                .filter(|percent| (1..=PERCENT_MAX).contains(percent))
                .map(Self::Percent),
            Some(_) => None,
            None => numbers::bytes(text).ok().filter(|&bytes| bytes > 0).map(Self::Bytes),
        };
        amount.ok_or_else(|| {
            format!("expected a size such as 10G, or a percentage from 1% to {PERCENT_MAX}% such as 200%")
        })
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => Size(*bytes).fmt(f),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl Amount {
    /// Bytes, where so many are in use.
    pub(super) fn bytes(self, used: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => {
                (u128::from(used) * u128::from(percent) / 100).min(u64::MAX.into()) as u64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_sizes_or_percentages() {
        assert_eq!("10G".parse(), Ok(Amount::Bytes(10 << 30)));
        assert_eq!("200%".parse(), Ok(Amount::Percent(200)));
        assert_eq!((Amount::Percent(250).bytes(1000), Amount::Bytes(7).bytes(1000)), (2500, 7));
        assert_eq!(Amount::Percent(200).to_string(), "200%");
        for bad in ["", "%", "0", "0%", "-1%", "1.5%", "100001%", "x"] {
            assert!(bad.parse::<Amount>().is_err(), "{bad}");
        }
    }
}
