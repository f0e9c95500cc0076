//! Sizes as people type them.

use std::fmt;
use std::str::FromStr;

/// A number of bytes. Parses `4096`, `512K`, `512M`, `4G`, `1T` and the spelled-out `4GiB`; the letters are
/// powers of
/// 1024. Displays the shortest exact form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub u64);

/// The text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotASize {
    /// It is no number followed by a known unit.
    #[error(
        "`{0}` is not a size; write bytes, or a number with K, M, G, T or P (powers of 1024), such as 4G"
    )]
    Syntax(String),
    /// It does not fit in 64 bits.
    #[error("`{0}` is more than 2^64 bytes")]
    Overflow(String),
    /// Units of 1000, which a block count cannot use.
    #[error(
        "`{0}` is in powers of 1000; write it with K, M, G, T or P, which are powers of 1024, such as 4G"
    )]
    Decimal(String),
}

const UNITS: [(char, u32); 5] = [('K', 10), ('M', 20), ('G', 30), ('T', 40), ('P', 50)];

impl FromStr for Size {
    type Err = NotASize;

    fn from_str(text: &str) -> Result<Self, NotASize> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        if number.is_empty() {
            return Err(NotASize::Syntax(text.into()));
        }
        let number: u64 = number.parse().map_err(|_| NotASize::Overflow(text.into()))?;
        let shift = match unit.to_ascii_uppercase().as_str() {
            "" | "B" => 0,
            "KB" | "MB" | "GB" | "TB" | "PB" => return Err(NotASize::Decimal(text.into())),
            unit => {
                let letter = unit.strip_suffix("IB").unwrap_or(unit);
                UNITS
                    .iter()
                    .find(|(name, _)| letter.len() == 1 && letter.starts_with(*name))
                    .map(|(_, shift)| *shift)
                    .ok_or_else(|| NotASize::Syntax(text.into()))?
            }
        };
        let bytes = number.checked_mul(1 << shift).ok_or_else(|| NotASize::Overflow(text.into()))?;
        Ok(Self(bytes))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS.iter().rev().find(|(_, shift)| self.0 != 0 && self.0.is_multiple_of(1 << shift));
        match unit {
            Some((letter, shift)) => f.pad(&format!("{}{letter}", self.0 >> shift)),
            None => f.pad(&self.0.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_parse_and_display() {
        for (text, bytes, shown) in [
            ("0", 0, "0"),
            ("4096", 4096, "4K"),
            ("4097", 4097, "4097"),
            ("512B", 512, "512"),
            ("512m", 512 << 20, "512M"),
            ("4G", 4 << 30, "4G"),
            ("4GiB", 4 << 30, "4G"),
            ("1T", 1 << 40, "1T"),
            ("1536M", 1536 << 20, "1536M"),
            ("2048G", 2 << 40, "2T"),
        ] {
            let size = text.parse::<Size>().unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!((size.0, size.to_string().as_str()), (bytes, shown), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_size_says_what_is() {
        for text in ["", "G", "-1", "4X", "4 G", "4Gi", "4GG", "1.5G", "0x100", "4é"] {
            assert_eq!(text.parse::<Size>(), Err(NotASize::Syntax(text.into())), "{text}");
        }
        for text in ["16384P", "18446744073709551616"] {
            assert_eq!(text.parse::<Size>(), Err(NotASize::Overflow(text.into())), "{text}");
        }
        assert_eq!("4GB".parse::<Size>(), Err(NotASize::Decimal("4GB".into())));
    }
}
