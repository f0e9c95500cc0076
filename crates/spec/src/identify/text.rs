//! Text fields: ASCII padded with spaces, and the NUL padded qualified name (Base 1.4.2).
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use core::fmt;

/// Writes `text` into a field and pads it with spaces. What does not fit is cut off; bytes outside 20h to 7Eh
/// become `?`, since the specification allows no others.
pub fn write(field: &mut [u8], text: &str) {
    field.fill(b' ');
    for (byte, character) in field.iter_mut().zip(text.chars()) {
        *byte = if matches!(character, ' '..='~') { character as u8 } else { b'?' };
    }
}

/// A field as text: displays without its padding, with what is not printable ASCII as `?`, so that what a
/// device says cannot carry terminal control sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text<'a>(&'a [u8]);

impl<'a> Text<'a> {
    /// The text of `field`: without trailing spaces and NULs.
    pub const fn new(field: &'a [u8]) -> Self {
        let mut rest = field;
        while let [before @ .., b' ' | 0] = rest {
            rest = before;
        }
        Self(rest)
    }

    /// The bytes without their padding.
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write as _;
        for &byte in self.0 {
            f.write_char(if matches!(byte, b' '..=b'~') { char::from(byte) } else { '?' })?;
        }
        Ok(())
    }
}

/// The qualified name in a field that NULs pad; `None` when it is not UTF-8.
pub fn nqn(field: &[u8]) -> Option<&str> {
    let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    core::str::from_utf8(field.get(..end)?).ok()
}

/// Writes a qualified name into a field and pads it with NULs. Returns false, and leaves the field alone,
/// when it does not fit together with one NUL.
#[must_use]
pub fn write_nqn(field: &mut [u8], name: &str) -> bool {
    match field.split_at_mut_checked(name.len()) {
        Some((text, padding)) if !padding.is_empty() => {
            text.copy_from_slice(name.as_bytes());
            padding.fill(0);
            true
        }
        _ => false,
    }
}
