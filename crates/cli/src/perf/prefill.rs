//! Data to read, before the first point.

use std::io::Write;

use anyhow::{Context, Result};
use unvme::Size;

use super::data;
use super::progress::Progress;
use super::session::Session;
use crate::exit::Interrupted;

/// Written with one call.
const STEP_BYTES: usize = 2 << 20;
/// Generation of what is written here.
const GENERATION: u8 = 1;

/// The error of a run that Ctrl-C has ended before there was anything to print.
pub(super) fn stopped() -> anyhow::Error {
    Interrupted("stopped before the first measurement".to_owned()).into()
}

/// Writes the namespaces that are to be filled, and says so where nobody has asked for it and it leaves
/// traces. Errors: a write fails, or Ctrl-C: there is nothing to print then.
pub(super) fn run(session: &Session, is_asked_for: bool) -> Result<()> {
    let fills = || session.namespaces.iter().filter_map(|of| of.fill.clone().map(|bytes| (of, bytes)));
    let progress = Progress::new("fill", fills().map(|(_, bytes)| bytes.end - bytes.start).sum());
    let mut done = 0;
    for (namespace, bytes) in fills() {
        // Pairs are stored where they are measured.
        if namespace.identity.block_bytes == 0 {
            continue;
        }
        let name = &namespace.identity.name;
        progress.say(name.clone());
        if !is_asked_for && !name.starts_with("mem:") {
            // With stderr gone there is nobody left to tell.
            let _ = writeln!(
                std::io::stderr(),
                "unvme: note: {name}: all {} in use are written once before the first point, which counters of \
                 the device count; --no-prefill does without",
                Size(bytes.end - bytes.start)
            );
        }
        let mut block = namespace.device.block(namespace.nsid)?;
        let block_bytes = namespace.identity.block_bytes as usize;
        let mut content = vec![0; STEP_BYTES];
        let mut offset = bytes.start;
        while offset < bytes.end {
            if session.is_stopped() {
                return Err(stopped());
            }
            let step = (bytes.end - offset).min(STEP_BYTES as u64) as usize;
            let lba = offset / block_bytes as u64;
            data::fill(&mut content[..step], block_bytes, lba, GENERATION);
            block.write_at(lba, &content[..step]).with_context(|| format!("fill {name} with data"))?;
            offset += step as u64;
            done += step as u64;
            progress.set(done);
        }
        session.filled(namespace, &bytes, GENERATION);
    }
    Ok(())
}
