//! The saved state as text: JSON, one object, nothing unknown in it.
//!
//! It is read back from a file that anybody may have edited: every number is checked before it is used.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use unvme_spec::Nsid;

use super::{Counters, Restored};
use crate::admin::features::FeaturesState;
use crate::admin::firmware::FirmwareState;
use crate::admin::logs::SmartState;
use crate::admin::namespaces::{CREATED_MAX, NewNamespace};
use crate::config::NAMESPACES_MAX;
use crate::namespace::{BadBlocks, Namespace, NamespaceTable};

/// Version of the format; any other is refused.
const VERSION: u32 = 1;

/// What is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SavedState {
    version: u32,
    namespaces_created: u64,
    namespaces: Vec<SavedNamespace>,
    features: FeaturesState,
    firmware: FirmwareState,
    smart: SmartState,
    error_count: u64,
}

/// The one field that every version has.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedNamespace {
    nsid: u32,
    block_bytes: u32,
    blocks: u64,
    attached: bool,
    /// Hexadecimal digits, most significant first.
    nguid: String,
    eui64: String,
    /// Runs of chunks of the media, in the order of the namespace.
    chunks: Vec<Run>,
    /// Marked blocks: the first, and the one behind the last.
    uncorrectable: Vec<(u64, u64)>,
}

/// `count` chunks from `first` on.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Run {
    first: u32,
    count: u32,
}

impl SavedState {
    pub(super) fn new(
        namespaces: &NamespaceTable,
        features: FeaturesState,
        firmware: FirmwareState,
        counters: &Counters,
    ) -> Self {
        Self {
            version: VERSION,
            namespaces_created: namespaces.created,
            namespaces: namespaces.iter().map(|namespace| SavedNamespace::new(namespace)).collect(),
            features,
            firmware,
            smart: counters.smart,
            error_count: counters.error_count,
        }
    }

    /// Reads the text. What is wrong is told with line and column.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        // The version first: a later one may have fields that are unknown here.
        let Versioned { version } = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if version != VERSION {
            return Err(format!("version {version} of the format is not known; this is version {VERSION}"));
        }
        serde_json::from_slice(bytes).map_err(|error| error.to_string())
    }

    /// Checks everything against a device with `total` chunks.
    pub(super) fn restore(self, total: u64) -> Result<Restored, String> {
        self.firmware.check()?;
        let (created, there) = (self.namespaces_created, self.namespaces.len() as u64);
        if !(there..=CREATED_MAX).contains(&created) {
            return Err(format!(
                "namespaces_created is {created}, which is not possible with {there} namespaces"
            ));
        }
        let mut table = NamespaceTable::default();
        table.created = created;
        let mut owned = vec![false; total as usize];
        for saved in self.namespaces {
            let nsid = saved.nsid;
            if !(1..=NAMESPACES_MAX).contains(&nsid) {
                return Err(format!("nsid {nsid} is not one of 1 to {NAMESPACES_MAX}"));
            }
            if table.get(Nsid(nsid)).is_some() {
                return Err(format!("namespace {nsid} is there twice"));
            }
            let namespace =
                saved.restore(&mut owned).map_err(|reason| format!("namespace {nsid}: {reason}"))?;
            table.put(namespace);
        }
        Ok(Restored {
            namespaces: table,
            features: self.features,
            firmware: self.firmware,
            smart: self.smart,
            error_count: self.error_count,
        })
    }
}

impl SavedNamespace {
    fn new(namespace: &Namespace) -> Self {
        Self {
            nsid: namespace.nsid.0,
            block_bytes: namespace.bytes(1) as u32,
            blocks: namespace.blocks,
            attached: namespace.attached,
            nguid: hexadecimal(&namespace.nguid),
            eui64: hexadecimal(&namespace.eui64),
            chunks: runs(&namespace.chunks),
            uncorrectable: namespace.bad.ranges(),
        }
    }

    /// Checks the namespace and takes its chunks, which nobody else may have.
    fn restore(self, owned: &mut [bool]) -> Result<Namespace, String> {
        let block_shift = match self.block_bytes {
            512 => 9,
            4096 => 12,
            other => return Err(format!("block_bytes is {other}, not 512 or 4096")),
        };
        let nsid = Nsid(self.nsid);
        let shape = NewNamespace { nsid, block_shift, blocks: self.blocks, attached: self.attached };
        let expected = shape.chunks().filter(|&chunks| chunks > 0);
        let chunks = take(&self.chunks, owned)?;
        if expected != Some(chunks.len() as u64) {
            return Err(format!(
                "{} chunks cannot be what {} blocks of {} bytes need",
                chunks.len(),
                self.blocks,
                self.block_bytes
            ));
        }
        check_ranges(&self.uncorrectable, self.blocks)?;
        Ok(Namespace {
            nsid,
            block_shift,
            blocks: self.blocks,
            attached: self.attached,
            busy: false,
            nguid: bytes_of(&self.nguid).ok_or("nguid is not 32 hexadecimal digits")?,
            eui64: bytes_of(&self.eui64).ok_or("eui64 is not 16 hexadecimal digits")?,
            chunks,
            bad: Arc::new(BadBlocks::new(self.uncorrectable)),
        })
    }
}

/// Consecutive chunk numbers, put together.
fn runs(chunks: &[u32]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for &chunk in chunks {
        match runs.last_mut() {
            Some(run) if run.first.checked_add(run.count) == Some(chunk) => {
                run.count = run.count.saturating_add(1)
            }
            _ => runs.push(Run { first: chunk, count: 1 }),
        }
    }
    runs
}

/// The chunks of `runs`, marked as owned.
fn take(runs: &[Run], owned: &mut [bool]) -> Result<Arc<[u32]>, String> {
    let mut chunks = Vec::new();
    for &Run { first, count } in runs {
        let end = first.checked_add(count).filter(|&end| end as usize <= owned.len() && count > 0);
        let end = end.ok_or_else(|| format!("{count} chunks from {first} on are not within the device"))?;
        for chunk in first..end {
            match owned.get_mut(chunk as usize) {
                Some(flag) if !*flag => *flag = true,
                _ => return Err(format!("chunk {chunk} belongs to two places")),
            }
            chunks.push(chunk);
        }
    }
    Ok(chunks.into())
}

fn check_ranges(ranges: &[(u64, u64)], blocks: u64) -> Result<(), String> {
    let mut before = 0;
    for &(start, end) in ranges {
        if start < before || start >= end || end > blocks {
            return Err(format!("uncorrectable blocks {start} to {end} are out of order or out of range"));
        }
        before = end;
    }
    Ok(())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes_of<const N: usize>(digits: &str) -> Option<[u8; N]> {
    let digits = digits.as_bytes();
    if digits.len() != N.checked_mul(2)? || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}
