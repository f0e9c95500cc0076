//! Files that are read whole: up to a bound, whatever the size that the file states. A device or a pipe
//! states 0 and may never end.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result};

use crate::exit::usage;

/// Reads a file of at most `bytes_max` bytes. Errors: that of reading it; a usage error with what was
/// `expected` for a file that is longer.
pub(crate) fn read(path: &Path, bytes_max: u64, expected: &str) -> Result<Vec<u8>> {
    let name = path.display();
    let told = || format!("read {name}");
    let file = File::open(path).with_context(told)?;
    let mut bytes = Vec::new();
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes).with_context(told)?;
    if bytes.len() as u64 > bytes_max {
        let mebibytes = bytes_max >> 20;
        return Err(usage(format!("{name}: more than {mebibytes} MiB; expected {expected}")));
    }
    Ok(bytes)
}
