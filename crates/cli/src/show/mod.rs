//! What devices return, as text like nvme-cli's and as JSON with its keys.
//!
//! The texts in `nvme-cli/` were printed by nvme-cli 2.3 from the bytes the tests decode; white space at the
//! ends of their lines is cut off.

pub(crate) mod descriptors;
pub(crate) mod fdp;
pub(crate) mod feature;
pub(crate) mod hex;
pub(crate) mod identify;
pub(crate) mod key_value;
pub(crate) mod log;
pub(crate) mod log_pages;
pub(crate) mod registers;
pub(crate) mod si;

/// A text without the white space at the ends of its lines.
#[cfg(test)]
fn without_padding(text: &[u8]) -> String {
    String::from_utf8_lossy(text).lines().flat_map(|line| [line.trim_end(), "\n"]).collect()
}
