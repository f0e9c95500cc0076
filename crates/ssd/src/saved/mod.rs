//! What of the device survives the process: namespaces, saved features, firmware, marks of Write
//! Uncorrectable, counters.
//!
//! **When it is written.** Admin commands that change something saved call [`Saving::changed`] and then
//! [`Subsystem::save_state`], so that a process that is killed loses none of it. Write Uncorrectable, and
//! writes that undo it, only call [`Saving::changed`]: like data, marks survive from the next Flush on, or at
//! once with FUA or without a write cache. FDP events survive from the next Flush on, or after a second
//! without one. Counters are collected and saved when the controller is enabled, reset and shut down, by
//! [`Subsystem::save_all`]; a killed process loses what it has counted since.
//!
//! **Who locks what.** [`Subsystem::save_state`] is called by I/O queues' threads that hold their queues, and
//! by the admin queue's; it locks `Saving::written`, and below that, one at a time and briefly, the table of
//! namespaces and the other locks of the subsystem, under which nothing else is locked. It never locks a
//! queue. [`Subsystem::save_all`] adds up the counters of all controllers' queues, for which it locks them
//! one by one, before it locks `written`; its callers hold no I/O queue. While nothing has changed since the
//! last time, `save_state` is two loads.
//!
//! [`Subsystem::save_state`]: crate::subsystem::Subsystem::save_state
//! [`Subsystem::save_all`]: crate::subsystem::Subsystem::save_all

mod text;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use unvme_bus::lock;
use unvme_spec::log_page::ErrorInformation;
use unvme_spec::{Nsid, Status};

use crate::SsdError;
use crate::config::{NamespaceConfig, NamespaceKind, SsdConfig};
use crate::controllers::ControllerSet;
use crate::fault::SavedFault;
use crate::fdp::Fdp;
use crate::features::FeaturesState;
use crate::firmware::FirmwareState;
use crate::kv::STORE_BYTES_MIN;
use crate::kv::counters::KvCounters;
use crate::media::Media;
use crate::namespace::{self, AddError, NamespaceTable, NewNamespace, Shape, assign};
use crate::smart::{Counted, SmartState};
use crate::store::CHUNK_BYTES;
pub(crate) use text::{SavedState, VERSION};

/// What the device starts with.
pub(crate) struct Restored {
    pub(crate) namespaces: NamespaceTable,
    pub(crate) features: FeaturesState,
    pub(crate) firmware: FirmwareState,
    pub(crate) smart: SmartState,
    pub(crate) error_count: u64,
    pub(crate) errors: Vec<ErrorInformation>,
    pub(crate) fdp: Fdp,
    pub(crate) kv: KvCounters,
    pub(crate) faults: Vec<SavedFault>,
}

/// Remembers what has been saved.
pub(crate) struct Saving {
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
pub(crate) struct Counters {
    pub(crate) smart: SmartState,
    pub(crate) error_count: u64,
    pub(crate) kv: KvCounters,
}

/// Why a saved state is of no use.
pub(crate) enum Unusable {
    /// What is wrong with it.
    Wrong(String),
    /// A later version has written it.
    Newer(u32),
    /// What it describes is not there.
    Media(SsdError),
}

impl Unusable {
    fn in_file(self, path: PathBuf) -> SsdError {
        match self {
            Self::Wrong(reason) => SsdError::State { path, reason },
            Self::Newer(found) => SsdError::Newer { path, what: "the saved state", found, known: VERSION },
            Self::Media(error) => error,
        }
    }
}

impl From<String> for Unusable {
    fn from(reason: String) -> Self {
        Self::Wrong(reason)
    }
}

impl From<&str> for Unusable {
    fn from(reason: &str) -> Self {
        Self::Wrong(reason.to_owned())
    }
}

impl Saving {
    /// Nothing of this start has been saved yet.
    pub(crate) fn new() -> Self {
        Self { changes: AtomicU64::new(1), saved: AtomicU64::new(0), written: Mutex::default() }
    }

    /// Something that is saved, and not a counter, has changed; called after the change.
    pub(crate) fn changed(&self) {
        // Release: pairs with the Acquire in `save`; who sees the number sees the change.
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// True when the store has every change, counters aside.
    pub(crate) fn is_saved(&self) -> bool {
        self.saved.load(Ordering::Acquire) == self.changes.load(Ordering::Acquire)
    }

    /// Nothing is saved from now on, and nobody is saving.
    pub(crate) fn close(&self) {
        lock(&self.written).is_closed = true;
    }

    /// Has `store` save everything, unless nothing has changed. `counted` is what the queues have counted, if
    /// they were asked, and `counters` makes the saved counters of it.
    pub(crate) fn save(
        &self,
        counted: Option<Counted>,
        counters: impl FnOnce(&Counted) -> Counters,
        store: impl FnOnce(&Counters) -> Result<(), Status>,
    ) -> Result<(), Status> {
        let mut written = lock(&self.written);
        if written.is_closed {
            return Err(Status::INTERNAL_ERROR);
        }
        // Read before what it counts: a change from now on is saved by the next save.
        let changes = self.changes.load(Ordering::Acquire);
        written.counted = counted.unwrap_or(written.counted);
        let counters = counters(&written.counted);
        if self.saved.load(Ordering::Relaxed) == changes && written.counters == Some(counters) {
            return Ok(());
        }
        store(&counters)?;
        written.counters = Some(counters);
        self.saved.store(changes, Ordering::Release);
        Ok(())
    }
}

/// Reads what the store has kept, or starts a new device. Chunks of the media that belong to no namespace are
/// given back: nobody ever reads what was in them.
pub(crate) fn restore(config: &SsdConfig, media: &Arc<Media>) -> Result<Restored, SsdError> {
    let restored = match media.store().load_state()? {
        Some(bytes) => SavedState::parse(&bytes)
            .and_then(|state| state.restore(config, media))
            .map_err(|unusable| unusable.in_file(media.store().state_path()))?,
        None => first_day(config, media)?,
    };
    let owned = namespace::owned_chunks(&restored.namespaces, media.chunks());
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

/// Divides the flash as FDP wants it. Without namespaces a process may have been killed between one and the
/// other, or the flash may be new; with namespaces both have to agree.
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
        namespace::add(&mut table, new, handles, &config.serial, media).map_err(|error| match error {
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
