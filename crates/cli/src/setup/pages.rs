//! Huge pages by number or by size.

use std::env;

use anyhow::Result;
use unvme::Size;
use unvme_setup::HUGE_PAGE_BYTES;

use crate::exit::usage;

/// The guide's environment variable for the number of huge pages.
const VARIABLE: &str = "NRHUGE";

/// A number of huge pages of 2 MiB: `2048`, or the size of them all, rounded up: `4G`.
pub(super) fn pages(text: &str) -> Result<u64, String> {
    let expected = || format!("`{text}`: expected a number of huge pages of 2 MiB, or a size such as 4G");
    if text.bytes().all(|b| b.is_ascii_digit()) {
        return text.parse().map_err(|_| expected());
    }
    let size: Size = text.parse().map_err(|_| expected())?;
    Ok(size.0.div_ceil(HUGE_PAGE_BYTES))
}

/// The number that the guide's environment variable has.
pub(super) fn from_environment() -> Result<Option<u64>> {
    let Some(value) = env::var_os(VARIABLE).filter(|value| !value.is_empty()) else { return Ok(None) };
    pages(&value.to_string_lossy()).map(Some).map_err(|e| usage(format!("{VARIABLE}={e}")))
}

#[cfg(test)]
mod tests {
    use super::pages;

    #[test]
    fn huge_pages_are_counted_or_measured() {
        for (text, count) in [("0", 0), ("2048", 2048), ("4G", 2048), ("3M", 2), ("1K", 1), ("2M", 1)] {
            assert_eq!(pages(text), Ok(count), "{text}");
        }
        for text in ["", "-1", "x", "1.5", "99999999999999999999"] {
            assert!(pages(text).is_err(), "{text}");
        }
    }
}
