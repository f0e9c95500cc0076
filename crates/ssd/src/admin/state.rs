//! What of the device survives the process: namespaces, saved features, firmware, marks of Write Uncorrectable, counters.
//!
//! **When it is written.** Admin commands that change something saved call [`SharedAdmin::changed`] and then
//! [`Ssd::save_state`], so that a process that is killed loses none of it. Write Uncorrectable, and writes that undo it,
//! only call [`SharedAdmin::changed`]: like data, marks survive from the next Flush on, or at once with FUA or without a write
//! cache. Counters are collected and saved when the controller is enabled, reset and shut down, by [`Ssd::save_all`]; a killed process loses what it has counted
//! since.
//!
//! **Who locks what.** [`Ssd::save_state`] is called by I/O queues' threads that hold their queues, and by the admin
//! queue's; it locks `Saving::written`, and below that, one at a time and briefly, the table of namespaces and the other
//! locks of [`SharedAdmin`], under which nothing else is locked. It never locks a queue. [`Ssd::save_all`] adds up the counters of all
//! controllers' queues, for which it locks them one by one, before it locks `written`; its callers hold no I/O queue. While nothing has
//! changed since the last time, `save_state` is two loads.

mod saved;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use unvme_bus::lock;
use unvme_spec::log_page::ErrorInformation;
use unvme_spec::{Nsid, Status};

use super::SharedAdmin;
use super::features::FeaturesState;
use super::firmware::FirmwareState;
use super::logs::SmartState;
use super::namespaces::{self, AddError, NewNamespace, Shape};
use crate::config::{CHUNK_BYTES, NamespaceConfig, NamespaceKind, SsdConfig};
use crate::fault::SavedFault;
use crate::fdp::{Fdp, assign};
use crate::kv::STORE_BYTES_MIN;
use crate::kv::command::counters::KvCounters;
use crate::media::Media;
use crate::namespace::NamespaceTable;
use crate::smart::Counted;
use crate::subsystem::ControllerSet;
use crate::{Ssd, SsdError};
use saved::SavedState;
pub(crate) use saved::{bytes_of, hexadecimal};

/// What the device starts with.
pub(super) struct Restored {
    pub(super) namespaces: NamespaceTable,
    pub(super) features: FeaturesState,
    pub(super) firmware: FirmwareState,
    pub(super) smart: SmartState,
    pub(super) error_count: u64,
    pub(super) errors: Vec<ErrorInformation>,
    pub(super) fdp: Fdp,
    pub(super) kv: KvCounters,
    pub(super) faults: Vec<SavedFault>,
}

/// Remembers what has been saved.
pub(super) struct Saving {
    /// Number of changes to what is saved, counters aside.
    changes: AtomicU64,
    /// Value of `changes` that the store has.
    saved: AtomicU64,
    /// Serialises writers.
    written: Mutex<Written>,
}

#[derive(Default)]
struct Written {
    /// What the queues had counted when they were last asked.
    counted: Counted,
    /// Counters that the store has.
    counters: Option<Counters>,
    /// Somebody else may have the store by now.
    is_closed: bool,
}

#[derive(Clone, Copy, PartialEq)]
struct Counters {
    smart: SmartState,
    error_count: u64,
    kv: KvCounters,
}

impl Saving {
    /// Nothing of this start has been saved yet.
    pub(super) fn new() -> Self {
        Self { changes: AtomicU64::new(1), saved: AtomicU64::new(0), written: Mutex::default() }
    }
}

impl SharedAdmin {
    /// Something that is saved, and not a counter, has changed; called after the change.
    pub(crate) fn changed(&self) {
        // Release: pairs with the Acquire in `save`; who sees the number sees the change.
        self.saving.changes.fetch_add(1, Ordering::Release);
    }
}

impl Ssd {
    /// Makes what has changed survive. See the module for who may call it.
    pub(crate) fn save_state(&self) -> Result<(), Status> {
        let saving = &self.subsystem.admin.saving;
        if saving.saved.load(Ordering::Acquire) == saving.changes.load(Ordering::Acquire) {
            return Ok(());
        }
        self.save(None)
    }

    /// Nothing is saved from now on, and nobody is saving.
    pub(crate) fn close_state(&self) {
        lock(&self.subsystem.admin.saving.written).is_closed = true;
    }

    /// Makes everything survive, counters too. The caller holds no I/O queue.
    pub(crate) fn save_all(&self) -> Result<(), Status> {
        if self.faults.take_moved() || self.admin.fdp.take_unsaved() {
            self.subsystem.admin.changed();
        }
        self.save(Some(self.counted()))
    }

    fn save(&self, counted: Option<Counted>) -> Result<(), Status> {
        if self.faults.is_dark() {
            return Err(Status::INTERNAL_ERROR);
        }
        let shared = &self.subsystem.admin;
        let saving = &shared.saving;
        let mut written = lock(&saving.written);
        if written.is_closed {
            return Err(Status::INTERNAL_ERROR);
        }
        // Read before what it counts: a change from now on is saved by the next save.
        let changes = saving.changes.load(Ordering::Acquire);
        written.counted = counted.unwrap_or(written.counted);
        let (smart, kv) = {
            let smart = lock(&shared.smart);
            (smart.saved(&written.counted.io), smart.kv(&written.counted.kv))
        };
        let counters = Counters { smart, error_count: lock(&shared.errors).count(), kv };
        if saving.saved.load(Ordering::Relaxed) == changes && written.counters == Some(counters) {
            return Ok(());
        }
        let namespaces = self.subsystem.namespaces.get();
        let features = lock(&shared.features).saved();
        let firmware = lock(&shared.firmware).saved();
        let (fdp, flash) = (&self.admin.fdp, self.media.flash());
        let namespaces = (&*namespaces, self.subsystem.model());
        let state = SavedState::new(namespaces, features, firmware, &counters, fdp, flash)
            .with_errors(lock(&shared.errors).saved())
            .with_faults(self.faults.saved());
        let text = serde_json::to_vec_pretty(&state).map_err(|error| {
            tracing::error!(%error, "the device's state could not be written down");
            Status::INTERNAL_ERROR
        })?;
        self.media.store().save_state(&text).map_err(|error| {
            tracing::error!(%error, "the device's state could not be saved");
            Status::INTERNAL_ERROR
        })?;
        written.counters = Some(counters);
        saving.saved.store(changes, Ordering::Release);
        Ok(())
    }
}

/// Reads what the store has kept, or starts a new device. Chunks of the media that belong to no namespace are given back:
/// nobody ever reads what was in them.
pub(super) fn restore(config: &SsdConfig, media: &Arc<Media>) -> Result<Restored, SsdError> {
    let restored = match media.store().load_state()? {
        Some(bytes) => SavedState::parse(&bytes)
            .and_then(|state| state.restore(config, media))
            .map_err(|reason| SsdError::State { path: media.store().state_path(), reason })?,
        None => first_day(config, media)?,
    };
    let owned = namespaces::owned_chunks(&restored.namespaces, media.chunks());
    media.release((0..).zip(&owned).filter(|(_, owned)| !**owned).map(|(chunk, _)| chunk))?;
    Ok(restored)
}

/// A device that has saved nothing yet.
fn first_day(config: &SsdConfig, media: &Arc<Media>) -> Result<Restored, SsdError> {
    let fdp = Fdp::new(config);
    divide(&fdp, media, true)
        .map_err(|reason| SsdError::State { path: media.store().state_path(), reason })?;
    Ok(Restored {
        namespaces: first_namespaces(config, media, &fdp)?,
        features: FeaturesState::default(),
        firmware: FirmwareState::default(),
        smart: SmartState::default(),
        error_count: 0,
        errors: Vec::new(),
        fdp,
        kv: KvCounters::default(),
        faults: Vec::new(),
    })
}

/// Divides the flash as FDP wants it. Without namespaces a process may have been killed between one and the other, or the
/// flash may be new; with namespaces both have to agree.
fn divide(fdp: &Fdp, media: &Media, is_empty: bool) -> Result<(), String> {
    let Some(flash) = media.flash() else { return Ok(()) };
    if flash.geometry() != *fdp.geometry() {
        if !is_empty && flash.stats().ftl.mapped_pages > 0 {
            return Err("fdp: the flash is divided in another way".to_owned());
        }
        flash.reconfigure(fdp.geometry()).map_err(|error| error.to_string())?;
    }
    fdp.start_watching(flash);
    Ok(())
}

/// The namespaces of a device's first day, attached, in the order of the configuration.
fn first_namespaces(config: &SsdConfig, media: &Arc<Media>, fdp: &Fdp) -> Result<NamespaceTable, SsdError> {
    let sized = config.namespaces.iter().filter_map(|namespace| namespace.bytes);
    let taken = sized.map(|bytes| bytes.div_ceil(CHUNK_BYTES)).fold(0, u64::saturating_add);
    let mut left = media.chunks().saturating_sub(taken) * CHUNK_BYTES;
    let mut table = NamespaceTable::default();
    let shifts: Vec<Option<u8>> =
        config.namespaces.iter().map(|namespace| block_shift_of(namespace.kind)).collect();
    for (nsid, &NamespaceConfig { bytes, kind }) in (1..).map(Nsid).zip(&config.namespaces) {
        let refuse = |expected: &str| {
            let size = bytes.map_or("what is left".to_owned(), |bytes| format!("{bytes} bytes"));
            let value = format!("namespace {nsid} of {size}");
            SsdError::Config { key: "namespaces", value, expected: expected.to_owned() }
        };
        let bytes = bytes.unwrap_or_else(|| std::mem::take(&mut left));
        let shape = match kind {
            NamespaceKind::Blocks(block_bytes) => {
                if bytes == 0 || bytes % u64::from(block_bytes) != 0 {
                    return Err(refuse("a size above zero and in whole blocks"));
                }
                let block_shift = block_bytes.trailing_zeros() as u8;
                Shape::Blocks { block_shift, count: bytes >> block_shift }
            }
            NamespaceKind::KeyValue if media.is_null() => {
                return Err(refuse("logical blocks: pairs need a device that keeps data"));
            }
            NamespaceKind::KeyValue if bytes < STORE_BYTES_MIN => {
                return Err(refuse("at least 16 MiB for pairs"));
            }
            NamespaceKind::KeyValue => Shape::KeyValue { bytes },
        };
        let handles = match fdp.configuration() {
            Some(configuration) => {
                let list = assign::first_list(configuration, &shifts, nsid.0 as usize - 1);
                assign::assign(&table, configuration, &list, block_shift_of(kind))
                    .map_err(|_| refuse("a reclaim unit handle for it"))?
            }
            None => fdp.no_handles(),
        };
        let new = NewNamespace { nsid, shape, attached: ControllerSet::first(), is_private: false };
        namespaces::add(&mut table, new, handles, &config.serial, media).map_err(|error| match error {
            AddError::NoSpace => refuse("no more than the device has, in pieces of 2 MiB"),
            AddError::Store(error) => error,
        })?;
    }
    Ok(table)
}

/// Block size of a namespace as a power of two; `None` when it holds pairs.
fn block_shift_of(kind: NamespaceKind) -> Option<u8> {
    match kind {
        NamespaceKind::Blocks(block_bytes) => Some(block_bytes.trailing_zeros() as u8),
        NamespaceKind::KeyValue => None,
    }
}
