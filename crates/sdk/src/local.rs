//! Virtual SSDs inside this process.

use std::io::{self, ErrorKind, Read, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use unvme_bus::{Region, lock, random};
use unvme_ssd::{
    CHUNK_BYTES, CheckedBlocks, CheckedNamespace, FileStore, FlashDamage, MemoryStore, NamespaceConfig,
    NamespaceKind, Ssd, SsdConfig, SsdError, Store,
};

use crate::flash::flash_config;
use crate::name::MemoryDevice;
use crate::registry::{
    Attempt, CAPACITY_UNIT, DeviceSpec, DeviceType, KeyspaceField, MediaKind, NamespaceSpec, Note, PlugWatch,
    Slot, SlotLock, add_note,
};
use crate::{DeviceName, Error, Result};

const _: () = assert!(CAPACITY_UNIT.0 == CHUNK_BYTES);

/// Serial number of a device that lives and dies with the process.
const MEMORY_SERIAL: &str = "UNVME-MEM";
/// How often, and how far apart, a lock is tried that its holder may be about to give back.
const LOCK_ATTEMPTS: u32 = 25;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// A device that lives and dies with the process.
pub(crate) fn memory(device: &MemoryDevice) -> Result<Arc<Ssd>> {
    memory_with(device, MEMORY_SERIAL)
}

/// A device that lives and dies with the process and is one of its own to those who tell devices apart by
/// their serial number.
pub(crate) fn memory_for_others(device: &MemoryDevice) -> Result<Arc<Ssd>> {
    memory_with(device, &format!("{MEMORY_SERIAL}-{:010X}", random::number() & 0xff_ffff_ffff))
}

fn memory_with(device: &MemoryDevice, serial: &str) -> Result<Arc<Ssd>> {
    let name = DeviceName::Memory(device.clone()).to_string();
    let failed = |source| Error::Ssd { name: name.clone(), source };
    let config = config(&device.spec(serial));
    let bytes = config.store_bytes().map_err(failed)?;
    let store: Box<dyn Store> = match device.media {
        MediaKind::File => Box::new(MemoryStore::new(bytes).map_err(failed)?),
        MediaKind::Null => Box::new(MemoryStore::null(bytes)),
        MediaKind::Tags => Box::new(MemoryStore::tags(bytes).map_err(failed)?),
    };
    Ssd::new(config, store).map_err(failed)
}

/// What came of opening a slot here.
pub(crate) enum Opened {
    /// The device, in this process. Its media keeps the slot's lock.
    Here(Arc<Ssd>),
    /// Another process holds the slot.
    Busy(Option<u32>),
}

/// Opens a slot in this process and for it alone, if nobody holds it: whoever only looks at a lock holds it
/// for a moment, and is waited for. Errors: as [`slot`].
pub(crate) fn slot_alone(slot: &Slot) -> Result<Opened> {
    for _ in 1..LOCK_ATTEMPTS {
        // Whoever serves it has it for long.
        if slot.socket_path().exists() {
            break;
        }
        if let opened @ Opened::Here(_) = self::slot(slot)? {
            return Ok(opened);
        }
        thread::sleep(LOCK_PAUSE);
    }
    self::slot(slot)
}

/// Opens a slot in this process, if nobody holds it at this moment. Errors: [`Error::Unplugged`], and what is
/// wrong with its description or its files.
pub(crate) fn slot(slot: &Slot) -> Result<Opened> {
    slot_after(slot, || ())
}

/// As [`slot`], with something that happens between the first look at the slot and the lock.
fn slot_after(slot: &Slot, meanwhile: impl FnOnce()) -> Result<Opened> {
    slot.check_plugged()?;
    // What is wrong with its description is told whoever holds it.
    slot.spec()?;
    meanwhile();
    match SlotLock::attempt(&slot.lock_path())? {
        Attempt::Busy(pid) => Ok(Opened::Busy(pid)),
        Attempt::Held(lock) => {
            // Whoever unplugs it from now on finds that it is held.
            slot.check_plugged()?;
            // Until it is held, another process may remove it and create it as something else.
            let spec = slot.spec()?;
            discard_stale_socket(slot)?;
            slot.make_private();
            start(slot, &spec, lock).map(Opened::Here)
        }
    }
}

/// Whoever holds a slot that nobody serves yet finds a socket only when a server was killed.
fn discard_stale_socket(slot: &Slot) -> Result<()> {
    let path = slot.socket_path();
    match std::fs::remove_file(&path) {
        // Where nothing can be removed nothing can be listened on either.
        Err(e) if e.kind() == ErrorKind::ReadOnlyFilesystem => Ok(()),
        Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::file("remove", &path, e)),
        _ => Ok(()),
    }
}

fn start(slot: &Slot, spec: &DeviceSpec, lock: SlotLock) -> Result<Arc<Ssd>> {
    let failed = |source| Error::Ssd { name: slot.address.to_string(), source };
    let config = config(spec);
    let bytes = config.store_bytes().map_err(failed)?;
    let store: Box<dyn Store> = match spec.media {
        MediaKind::File => Box::new(FileStore::open(slot.folder(), bytes).map_err(failed)?),
        MediaKind::Null => Box::new(MemoryStore::null(bytes)),
        MediaKind::Tags => Box::new(MemoryStore::tags_in(slot.folder(), bytes).map_err(failed)?),
    };
    let watch = Arc::new(OnceLock::new());
    let store = LockedStore { store, lock: Mutex::new(Some(lock)), _watch: Arc::clone(&watch) };
    let ssd = Ssd::new(config, Box::new(store)).map_err(failed)?;
    let device = Arc::downgrade(&ssd);
    let unplug = move || {
        // One that is being dropped gives the slot back by itself.
        if let Some(ssd) = device.upgrade() {
            ssd.unplug();
        }
    };
    let started = PlugWatch::start(slot, unplug)?;
    let first = watch.set(started);
    debug_assert!(first.is_ok(), "a slot is watched once");
    Ok(ssd)
}

/// The virtual SSD that a description asks for.
fn config(spec: &DeviceSpec) -> SsdConfig {
    let kind = |n: &NamespaceSpec| {
        n.logical_block().map_or(NamespaceKind::KeyValue, |block| NamespaceKind::Blocks(block.get()))
    };
    let namespaces =
        spec.namespaces.iter().map(|n| NamespaceConfig { bytes: Some(n.bytes), kind: kind(n) }).collect();
    let plain = match spec.device_type {
        DeviceType::Block => SsdConfig::block(spec.capacity_bytes, 512),
        DeviceType::Kv => SsdConfig::kv(spec.capacity_bytes),
    };
    SsdConfig {
        serial: spec.serial.clone(),
        model: spec.model.clone(),
        namespaces,
        keyspace_field: keyspace_field(spec.keyspace_field),
        flash: spec.ftl.as_ref().map(flash_config),
        fdp: spec.ftl.and_then(|ftl| ftl.fdp),
        timing: spec.timing.config().clone(),
        checksum: spec.checksum,
        ..plain
    }
}

/// What a check of a slot found.
#[derive(Clone, Debug)]
pub struct CheckedSlot {
    /// Each key-value namespace.
    pub namespaces: Vec<CheckedNamespace>,
    /// Each namespace of logical blocks; `None` when the device has no checksums of them.
    pub blocks: Option<Vec<CheckedBlocks>>,
    /// Damage of the flash, which may be none; `None` when the device has no flash.
    pub flash: Option<CheckedFlash>,
}

/// What a check of a device's flash found.
#[derive(Clone, Debug)]
pub struct CheckedFlash {
    /// Pages that hold data of hosts.
    pub mapped_pages: u64,
    /// What is damaged.
    pub lost: Vec<FlashDamage>,
}

/// What to do with pairs that a check finds to be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Losses {
    /// They are named and stay as they are: reading them is an error.
    Keep,
    /// They are given up: what is left of a key-value namespace can be read again. Pairs that cannot be read
    /// are deleted, and where nobody knows which pairs are lost, what else there is of their keys counts,
    /// though it may be older.
    Accept,
}

/// Opens a slot that nobody holds, reads everything in its key-value namespaces and on its flash, and all
/// blocks that have checksums, and names what is lost; with [`Losses::Accept`], what has been given up.
///
/// # Errors
/// [`Error::InUse`] when another process holds the slot; what opening it reports; [`Error::Device`] when
/// there is no space to give anything up.
pub fn check(slot: &Slot, losses: Losses) -> Result<CheckedSlot> {
    match slot_alone(slot)? {
        Opened::Here(ssd) => {
            add_note(&slot.lock_path(), Note::Alone);
            let flash = ssd
                .ftl_stats()
                .map(|stats| CheckedFlash { mapped_pages: stats.ftl.mapped_pages, lost: ssd.check_flash() });
            let namespaces = match losses {
                Losses::Keep => ssd.check(),
                Losses::Accept => ssd.accept_loss().map_err(|status| Error::Device {
                    what: format!("{}: giving up what is lost", slot.address),
                    status,
                })?,
            };
            Ok(CheckedSlot { namespaces, blocks: ssd.check_blocks(), flash })
        }
        Opened::Busy(pid) => Err(Error::InUse {
            name: slot.address.to_string(),
            pid,
            reason: "stop that process first".into(),
        }),
    }
}

fn keyspace_field(field: KeyspaceField) -> unvme_spec::samsung_kv::KeyspaceField {
    match field {
        KeyspaceField::Cdw3 => unvme_spec::samsung_kv::KeyspaceField::Cdw3,
        KeyspaceField::Nsid => unvme_spec::samsung_kv::KeyspaceField::Nsid,
    }
}

/// A store and the lock of its slot: nobody else opens the slot while anything still uses the store,
/// whichever handle of the device is dropped last, or until the device is unplugged.
struct LockedStore {
    store: Box<dyn Store>,
    lock: Mutex<Option<SlotLock>>,
    /// Unplugs the device when the slot is.
    _watch: Arc<OnceLock<PlugWatch>>,
}

impl Store for LockedStore {
    fn bytes(&self) -> u64 {
        self.store.bytes()
    }

    fn memory(&self) -> Option<&Region> {
        self.store.memory()
    }

    fn tags(&self) -> Option<&Region> {
        self.store.tags()
    }

    fn is_read_only(&self) -> bool {
        self.store.is_read_only()
    }

    fn life(&self) -> Option<[u8; 16]> {
        self.store.life()
    }

    fn persists(&self) -> bool {
        self.store.persists()
    }

    fn redo(&self) -> std::result::Result<Option<Region>, SsdError> {
        self.store.redo()
    }

    fn write_page(&self, offset: u64, bytes: &[u8]) -> std::result::Result<(), SsdError> {
        self.store.write_page(offset, bytes)
    }

    fn holds_data(&self, chunk: u64) -> bool {
        self.store.holds_data(chunk)
    }

    fn reserve(&self, chunk: u64) -> std::result::Result<(), SsdError> {
        self.store.reserve(chunk)
    }

    fn release(&self, chunk: u64) -> std::result::Result<(), SsdError> {
        self.store.release(chunk)
    }

    fn sync(&self) -> std::result::Result<(), SsdError> {
        self.store.sync()
    }

    fn save_index(
        &self,
        chunk: u64,
        write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
    ) -> std::result::Result<(), SsdError> {
        self.store.save_index(chunk, write)
    }

    fn load_index(&self, chunk: u64) -> Option<Box<dyn Read>> {
        self.store.load_index(chunk)
    }

    fn drop_index(&self, chunk: u64) {
        self.store.drop_index(chunk);
    }

    fn close(&self) {
        self.store.close();
        drop(lock(&self.lock).take());
    }

    fn state_path(&self) -> PathBuf {
        self.store.state_path()
    }

    fn media_path(&self) -> PathBuf {
        self.store.media_path()
    }

    fn load_state(&self) -> std::result::Result<Option<Vec<u8>>, SsdError> {
        self.store.load_state()
    }

    fn save_state(&self, state: &[u8]) -> std::result::Result<(), SsdError> {
        self.store.save_state(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Size;
    use crate::registry::{BlockBytes, Registry};

    #[test]
    fn a_slot_that_is_another_one_by_the_time_it_is_held_is_opened_as_what_it_is_then() {
        let folder = tempfile::tempdir().expect("a folder");
        let registry = Registry::at(folder.path().join("home"));
        let address = "0000:01:00.0".parse().expect("an address");
        registry.create(address, &DeviceSpec::block(Size(16 << 20), BlockBytes::B512, "S1")).expect("a slot");
        let opened = slot_after(&registry.find(address).expect("the slot"), || {
            registry.remove(address).expect("removed");
            registry.create(address, &DeviceSpec::kv(Size(16 << 20), "S2")).expect("another one");
        });
        let Ok(Opened::Here(ssd)) = opened else { panic!("not opened here") };
        assert_eq!(ssd.check().len(), 1, "namespaces with pairs: it was opened as the first one");
    }
}
