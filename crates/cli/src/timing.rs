//! `--timing`: a preset, with parameters, or a file of them.

use std::fs::File;
use std::io::Read;

use unvme_flash::timing::TimingSpec;

/// Bytes that a file of parameters can have.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Parses `tlc`, `tlc,dies=64,prog=700us`, or `@FILE` with a line for each. Errors: a sentence that names the
/// parameter or the file, and what was expected.
pub(crate) fn timing(text: &str) -> Result<TimingSpec, String> {
    let Some(path) = text.strip_prefix('@') else { return text.parse() };
    let mut lines = String::new();
    File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut lines))
        .map_err(|error| format!("read {path}: {error}"))?;
    if lines.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("{path}: more than {FILE_BYTES_MAX} bytes; these are no parameters of a timing"));
    }
    TimingSpec::from_lines(&lines).map_err(|error| format!("{path}: {error}"))
}
