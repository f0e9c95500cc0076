//! Numbers as nvme-cli takes them: decimal, `0x` hexadecimal, and sizes with a unit.

use unvme::Size;

/// A number of at most 64 bits, decimal or with `0x`.
pub(crate) fn u64(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        // from_str_radix takes a sign; a number on the command line has none.
        Some(digits) if digits.starts_with('+') => None,
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None if text.starts_with('+') => None,
        None => text.parse().ok(),
    };
    parsed.ok_or_else(|| "expected a number, decimal or hexadecimal with 0x".to_owned())
}

fn narrow<T: TryFrom<u64>>(text: &str, max: u64) -> Result<T, String> {
    T::try_from(u64(text)?).map_err(|_| format!("expected a number up to {max} ({max:#x})"))
}

/// A number of at most 32 bits.
pub(crate) fn u32(text: &str) -> Result<u32, String> {
    narrow(text, u32::MAX.into())
}

/// A number of at most 32 bits that is not 0.
pub(crate) fn above_zero(text: &str) -> Result<u32, String> {
    match u32(text)? {
        0 => Err("expected a number above 0".to_owned()),
        number => Ok(number),
    }
}

/// A number of at most 16 bits.
pub(crate) fn u16(text: &str) -> Result<u16, String> {
    narrow(text, u16::MAX.into())
}

/// A number of at most 8 bits.
pub(crate) fn u8(text: &str) -> Result<u8, String> {
    narrow(text, u8::MAX.into())
}

/// A number of bytes: as [`u64`], or with a unit such as `4K`.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    u64(text).or_else(|_| text.parse::<Size>().map(|size| size.0).map_err(|e| e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal_or_hexadecimal() {
        assert_eq!(u64("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(u32("0x10"), Ok(16));
        assert_eq!(u16("0XfFfF"), Ok(0xffff));
        assert_eq!(u8("255"), Ok(255));
        assert_eq!(bytes("4K"), Ok(4096));
        assert_eq!(bytes("0x200"), Ok(512));
    }

    #[test]
    fn anything_else_says_what_was_expected() {
        for text in ["", "-1", "+1", "0x", "0x+1", "1.5", "ten", "1 "] {
            assert!(u64(text).is_err_and(|e| e.contains("decimal or hexadecimal")), "{text:?}");
        }
        assert_eq!((above_zero("1"), above_zero("0x0")), (Ok(1), Err("expected a number above 0".into())));
        assert_eq!(u8("256"), Err("expected a number up to 255 (0xff)".into()));
        assert!(bytes("4Q").is_err_and(|e| e.contains("`4Q` is not a size")));
    }
}
