//! The saved state as text: JSON, one object, nothing unknown in it.
//!
//! It is read back from a file that anybody may have edited: every number is checked before it is used.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use unvme_spec::Nsid;

use super::{Counters, Restored, Unusable, divide};
use crate::SsdError;
use crate::config::SsdConfig;
use crate::controllers::ControllerSet;
use crate::error_log::ErrorLog;
use crate::fault::SavedFault;
use crate::fdp::{Fdp, FdpState, Handles, SavedHandles};
use crate::features::FeaturesState;
use crate::firmware::FirmwareState;
use crate::flash::Flash;
use crate::hex::{bytes_of, hexadecimal};
use crate::kv::counters::KvCounters;
use crate::kv::{KeyValue, KvStore};
use crate::limits::NAMESPACES_MAX;
use crate::media::Media;
use crate::namespace::{BadBlocks, Blocks, CREATED_MAX, Contents, Namespace, NamespaceTable, Shape};
use crate::smart::SmartState;

/// Version of the format. Version 1 knows no Key Value namespaces, version 2 no placement, faults and entries
/// of the error log, and up to version 3 a file of it has no checksum; they are read as well. Any other is
/// refused.
pub(crate) const VERSION: u32 = 4;
const VERSION_MIN: u32 = 1;

/// What is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SavedState {
    version: u32,
    namespaces_created: u64,
    namespaces: Vec<SavedNamespace>,
    features: FeaturesState,
    firmware: FirmwareState,
    smart: SmartState,
    error_count: u64,
    /// The last errors, newest first: 64 bytes each, as hexadecimal digits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    errors: Vec<String>,
    /// Flexible Data Placement, on a device with flash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fdp: Option<FdpState>,
    /// Key Value commands over the life of the device.
    #[serde(default)]
    kv_commands: KvCounters,
    /// Rules that outlive the process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    faults: Vec<SavedFault>,
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
    /// What the namespace holds: these three, or `key_value`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    block_bytes: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    blocks: Option<u64>,
    /// Marked blocks: the first, and the one behind the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uncorrectable: Option<Vec<(u64, u64)>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key_value: Option<SavedPairs>,
    /// To the controller that the device has when it starts.
    attached: bool,
    /// It may be attached to one controller at a time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    private: bool,
    /// Hexadecimal digits, most significant first.
    nguid: String,
    eui64: String,
    /// Runs of chunks of the media, in the order of the namespace.
    chunks: Vec<Run>,
    /// Placement handles, while FDP is enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    placement: Option<SavedHandles>,
}

/// Of a Key Value namespace; everything else is on the media.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedPairs {
    /// It was being erased: there may be no store on the media.
    erasing: bool,
}

/// `count` chunks from `first` on.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Run {
    first: u32,
    count: u32,
}

impl SavedState {
    pub(crate) fn new(
        (namespaces, model): (&NamespaceTable, ControllerSet),
        features: FeaturesState,
        firmware: FirmwareState,
        counters: &Counters,
        fdp: &Fdp,
        flash: Option<&Flash>,
    ) -> Self {
        Self {
            version: VERSION,
            namespaces_created: namespaces.created,
            namespaces: namespaces
                .iter()
                .map(|namespace| SavedNamespace::new(namespace, model, fdp))
                .collect(),
            features,
            firmware,
            smart: counters.smart,
            error_count: counters.error_count,
            errors: Vec::new(),
            fdp: fdp.saved(flash),
            kv_commands: counters.kv,
            faults: Vec::new(),
        }
    }

    /// The text.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec_pretty(self)
    }

    pub(crate) fn with_errors(self, errors: Vec<String>) -> Self {
        Self { errors, ..self }
    }

    pub(crate) fn with_faults(self, faults: Vec<SavedFault>) -> Self {
        Self { faults, ..self }
    }

    /// Reads the text. What is wrong is told with line and column.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Unusable> {
        // The version first: a later one may have fields that are unknown here.
        let Versioned { version } = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if version > VERSION {
            return Err(Unusable::Newer(version));
        }
        if version < VERSION_MIN {
            return Err(
                format!("version {version} of the format is not known; this is version {VERSION}").into()
            );
        }
        Ok(serde_json::from_slice(bytes).map_err(|error| error.to_string())?)
    }

    /// Checks everything against a device's media, and opens the stores that are there.
    pub(crate) fn restore(self, config: &SsdConfig, media: &Arc<Media>) -> Result<Restored, Unusable> {
        self.firmware.check()?;
        let fdp = Fdp::restore(config, self.fdp, media.flash())?;
        divide(&fdp, media, self.namespaces.is_empty())?;
        let errors = ErrorLog::restore(&self.errors).ok_or("errors are not at most 64 of 64 bytes each")?;
        let (created, there) = (self.namespaces_created, self.namespaces.len() as u64);
        if !(there..=CREATED_MAX).contains(&created) {
            return Err(format!(
                "namespaces_created is {created}, which is not possible with {there} namespaces"
            )
            .into());
        }
        let mut table = NamespaceTable::default();
        table.created = created;
        let mut owned = vec![false; media.chunks() as usize];
        for saved in self.namespaces {
            let nsid = saved.nsid;
            if !(1..=NAMESPACES_MAX).contains(&nsid) {
                return Err(format!("nsid {nsid} is not one of 1 to {NAMESPACES_MAX}").into());
            }
            if table.get(Nsid(nsid)).is_some() {
                return Err(format!("namespace {nsid} is there twice").into());
            }
            let namespace = saved.restore(&mut owned, media, &fdp).map_err(|unusable| match unusable {
                Unusable::Wrong(reason) => format!("namespace {nsid}: {reason}").into(),
                other => other,
            })?;
            table.put(namespace);
        }
        Ok(Restored {
            namespaces: table,
            features: self.features,
            firmware: self.firmware,
            smart: self.smart,
            error_count: self.error_count,
            errors,
            fdp,
            kv: self.kv_commands,
            faults: self.faults,
        })
    }
}

impl SavedNamespace {
    fn new(namespace: &Namespace, model: ControllerSet, fdp: &Fdp) -> Self {
        let mut saved = Self {
            nsid: namespace.nsid.0,
            block_bytes: None,
            blocks: None,
            uncorrectable: None,
            key_value: None,
            attached: namespace.attached.intersects(model),
            private: namespace.is_private,
            nguid: hexadecimal(&namespace.nguid),
            eui64: hexadecimal(&namespace.eui64),
            chunks: runs(namespace.chunks()),
            placement: fdp.saved_handles(&namespace.handles),
        };
        match &namespace.contents {
            Contents::Blocks(blocks) => {
                saved.block_bytes = Some(blocks.bytes(1) as u32);
                saved.blocks = Some(blocks.count);
                saved.uncorrectable = Some(blocks.bad.ranges());
            }
            Contents::KeyValue(_) => saved.key_value = Some(SavedPairs { erasing: namespace.busy }),
        }
        saved
    }

    /// Checks the namespace and takes its chunks, which nobody else may have.
    fn restore(self, owned: &mut [bool], media: &Arc<Media>, fdp: &Fdp) -> Result<Namespace, Unusable> {
        let chunks = take(&self.chunks, owned)?;
        let handles = fdp.restore_handles(self.placement)?;
        let contents = match (self.key_value, self.block_bytes, self.blocks, self.uncorrectable) {
            (Some(pairs), None, None, None) => Contents::KeyValue(pairs.restore(chunks, media, &handles)?),
            (None, Some(block_bytes), Some(count), Some(uncorrectable)) => {
                Contents::Blocks(restore_blocks(block_bytes, count, uncorrectable, chunks)?)
            }
            _ => return Err("it has to hold either blocks or key_value".into()),
        };
        Ok(Namespace {
            nsid: Nsid(self.nsid),
            attached: if self.attached { ControllerSet::first() } else { ControllerSet::default() },
            is_private: self.private,
            busy: false,
            nguid: bytes_of(&self.nguid).ok_or("nguid is not 32 hexadecimal digits")?,
            eui64: bytes_of(&self.eui64).ok_or("eui64 is not 16 hexadecimal digits")?,
            handles,
            contents,
        })
    }
}

impl SavedPairs {
    fn restore(
        self,
        chunks: Arc<[u32]>,
        media: &Arc<Media>,
        handles: &Handles,
    ) -> Result<KeyValue, Unusable> {
        let (media, place) = (Arc::clone(media), Arc::clone(&chunks));
        let store = if self.erasing { KvStore::create(media, place) } else { KvStore::open(media, place) };
        let store = store.map_err(|error| match error {
            SsdError::State { reason, .. } => Unusable::Wrong(reason),
            other => Unusable::Media(other),
        })?;
        store.place(handles.ruhs());
        Ok(KeyValue::new(chunks, store))
    }
}

fn restore_blocks(
    block_bytes: u32,
    count: u64,
    uncorrectable: Vec<(u64, u64)>,
    chunks: Arc<[u32]>,
) -> Result<Blocks, String> {
    let block_shift = match block_bytes {
        512 => 9,
        4096 => 12,
        other => return Err(format!("block_bytes is {other}, not 512 or 4096")),
    };
    let expected = Shape::Blocks { block_shift, count }.chunks().filter(|&chunks| chunks > 0);
    if expected != Some(chunks.len() as u64) {
        let there = chunks.len();
        return Err(format!("{there} chunks cannot be what {count} blocks of {block_bytes} bytes need"));
    }
    check_ranges(&uncorrectable, count)?;
    Ok(Blocks { block_shift, count, chunks, bad: Arc::new(BadBlocks::new(uncorrectable)) })
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
