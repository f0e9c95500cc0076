//! Pairs over the end of a device, at the queue: reopened, killed, with its state file from before.

mod host;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use host::pairs::{VENDOR_BATCH, VENDOR_STORE, batch_data, kv_config, vendor};
use host::state::unsealed;
use host::{Host, MEDIA_BYTES, device_on, sqe};
use unvme_spec::{Sqe, Status};
use unvme_ssd::{FileStore, MemoryStore, NamespaceConfig, NamespaceKind, Ssd, SsdConfig, Store};

fn open(folder: &std::path::Path, config: SsdConfig) -> Host {
    let store = FileStore::open(folder, config.bytes).expect("media");
    let mut host = Host::attach(device_on(config, Box::new(store)));
    host.enable_all();
    host.create_queue_pair(1, 64);
    host
}

fn log_c0(host: &mut Host) -> Vec<u8> {
    host.admin_in(Sqe { cdw10: 255 << 16 | 0xc0, ..sqe(0x02, 0) }, 1024).unwrap()
}

#[test]
fn pairs_settings_and_counters_are_there_when_the_device_is_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = open(folder.path(), kv_config());
    for n in 0..500u32 {
        host.store(&n.to_le_bytes(), &n.to_le_bytes().repeat(n as usize % 50)).unwrap();
    }
    host.vendor_store(VENDOR_STORE, 1, b"in the other keyspace", b"value", 0).unwrap();
    host.delete(&7u32.to_le_bytes()).unwrap();
    // EDNEK, saved.
    host.admin(Sqe { cdw10: 1 << 31 | 0x20, cdw11: 1, ..sqe(0x09, 1) }).unwrap();
    let stored = log_c0(&mut host)[536..544].to_vec();
    drop(host);
    for round in 0..3 {
        let mut host = open(folder.path(), kv_config());
        for n in (0..500u32).filter(|&n| n != 7) {
            let expected = n.to_le_bytes().repeat(n as usize % 50);
            assert_eq!(host.value(&n.to_le_bytes()), Ok(expected), "round {round}, key {n}");
        }
        assert_eq!(host.vendor_value(1, b"in the other keyspace"), Ok(b"value".to_vec()));
        assert_eq!(host.delete(&7u32.to_le_bytes()), Err(Status::KEY_NOT_FOUND), "EDNEK");
        assert_eq!(log_c0(&mut host)[536..544], stored[..], "stores over the life of the device");
        assert_eq!(host.list(b"", 65_536).unwrap().0.len(), 499);
    }
}

#[test]
fn the_first_days_configuration_does_not_make_pairs_anew() {
    let folder = tempfile::tempdir().unwrap();
    open(folder.path(), kv_config()).store(b"key", b"value").unwrap();
    // Another configuration: what is there wins.
    let mut host = open(folder.path(), host::config(512));
    assert_eq!(host.value(b"key"), Ok(b"value".to_vec()));
}

#[test]
fn a_state_file_of_version_1_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.json");
    drop(open(folder.path(), host::config(512)));
    let mut state: serde_json::Value = serde_json::from_str(&unsealed(folder.path())).unwrap();
    assert_eq!(state["version"], 3);
    state["version"] = 1.into();
    state.as_object_mut().unwrap().remove("kv_commands").unwrap();
    std::fs::write(&path, state.to_string()).unwrap();
    let mut host = open(folder.path(), kv_config());
    assert_eq!(
        host.admin_in(Sqe { cdw10: 0, ..sqe(0x06, 1) }, 4096).unwrap()[..3],
        [0, 0, 2],
        "NSZE of blocks"
    );
}

#[test]
fn a_state_file_that_says_too_much_or_too_little_of_a_namespace_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.json");
    drop(open(folder.path(), kv_config()));
    let good: serde_json::Value = serde_json::from_str(&unsealed(folder.path())).unwrap();
    for (change, expected) in [
        (serde_json::json!({ "block_bytes": 512 }), "either blocks or key_value"),
        (serde_json::json!({ "key_value": null }), "either blocks or key_value"),
        (serde_json::json!({ "key_value": { "erasing": 1 } }), "invalid type"),
        (serde_json::json!({ "chunks": [{ "first": 0, "count": 31 }] }), "namespace 1: "),
    ] {
        let mut state = good.clone();
        for (key, value) in change.as_object().unwrap() {
            state["namespaces"][0][key] = value.clone();
        }
        std::fs::write(&path, state.to_string()).unwrap();
        let store = FileStore::open(folder.path(), MEDIA_BYTES).unwrap();
        let refused = Ssd::new(kv_config(), Box::new(store)).err().map(|error| error.to_string());
        assert!(refused.as_deref().is_some_and(|text| text.contains(expected)), "{change}: {refused:?}");
    }
}

#[test]
fn a_namespace_whose_erasure_was_cut_short_is_empty_and_usable() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.json");
    let mut host = open(folder.path(), kv_config());
    host.store(b"key", b"value").unwrap();
    drop(host);
    // As a process leaves it that is killed between the erasure and the new store.
    let mut state: serde_json::Value = serde_json::from_str(&unsealed(folder.path())).unwrap();
    state["namespaces"][0]["key_value"]["erasing"] = true.into();
    std::fs::write(&path, state.to_string()).unwrap();
    let media = std::fs::File::create(folder.path().join("media.img")).unwrap();
    media.set_len(kv_config().bytes).unwrap();
    let mut host = open(folder.path(), kv_config());
    assert_eq!(host.exist(b"key"), Err(Status::KEY_NOT_FOUND));
    host.store(b"key", b"again").unwrap();
    drop(host);
    assert_eq!(open(folder.path(), kv_config()).value(b"key"), Ok(b"again".to_vec()));
}

/// Counts syncs.
struct Counting(MemoryStore, Arc<AtomicU32>);

impl Store for Counting {
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }
    fn memory(&self) -> Option<&unvme_bus::Region> {
        self.0.memory()
    }
    fn holds_data(&self, chunk: u64) -> bool {
        self.0.holds_data(chunk)
    }
    fn reserve(&self, chunk: u64) -> Result<(), unvme_ssd::SsdError> {
        self.0.reserve(chunk)
    }
    fn release(&self, chunk: u64) -> Result<(), unvme_ssd::SsdError> {
        self.0.release(chunk)
    }
    fn sync(&self) -> Result<(), unvme_ssd::SsdError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.sync()
    }
    fn load_state(&self) -> Result<Option<Vec<u8>>, unvme_ssd::SsdError> {
        self.0.load_state()
    }
    fn save_state(&self, state: &[u8]) -> Result<(), unvme_ssd::SsdError> {
        self.0.save_state(state)
    }
}

#[test]
fn without_a_write_cache_every_store_is_synced_before_it_completes() {
    let syncs = Arc::new(AtomicU32::new(0));
    let store = Counting(MemoryStore::new(MEDIA_BYTES).unwrap(), Arc::clone(&syncs));
    let mut host = Host::attach(device_on(kv_config(), Box::new(store)));
    host.enable_all();
    host.create_queue_pair(1, 64);
    let count = |host: &mut Host, what: &dyn Fn(&mut Host)| {
        let before = syncs.load(Ordering::Relaxed);
        what(host);
        syncs.load(Ordering::Relaxed) - before
    };
    assert_eq!(count(&mut host, &|host| _ = host.store(b"keys", b"v")), 0);
    assert!(count(&mut host, &|host| _ = host.io(sqe(0x00, 1))) > 0, "Flush");
    // Volatile Write Cache: disabled.
    host.admin(Sqe { cdw10: 0x06, cdw11: 0, ..sqe(0x09, 0) }).unwrap();
    assert!(count(&mut host, &|host| _ = host.store(b"keys", b"w")) > 0, "Store");
    assert!(count(&mut host, &|host| _ = host.vendor_store(0x83, 0, b"keys", b"w", 0)) > 0, "Append");
    assert!(count(&mut host, &|host| _ = host.delete(b"keys")) > 0, "Delete");
    let data = batch_data(&[(0x81, 0, 0, b"keys", b"v")]);
    let batch = |host: &mut Host| {
        let command = host.with_value(sqe(VENDOR_BATCH, 1), &data);
        host.io(Sqe { cdw10: (data.len() / 4) as u32, cdw11: 1, ..command }).unwrap();
    };
    assert!(count(&mut host, &batch) > 0, "Batch");
    assert_eq!(count(&mut host, &|host| _ = host.exist(b"keys")), 0, "Exist");
}

#[test]
fn a_mixed_device_comes_back_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let namespaces = vec![
        NamespaceConfig { bytes: Some(16 << 20), kind: NamespaceKind::KeyValue },
        NamespaceConfig { bytes: Some(16 << 20), kind: NamespaceKind::Blocks(4096) },
        NamespaceConfig { bytes: None, kind: NamespaceKind::KeyValue },
    ];
    let config = SsdConfig { namespaces, ..kv_config() };
    let mut host = open(folder.path(), config.clone());
    host.store(b"one", b"1").unwrap();
    let write = Sqe { nsid: 2, ..host.with_value(sqe(0x01, 2), &[0x33; 4096]) };
    host.io(write).unwrap();
    host.io(sqe(0x00, u32::MAX)).unwrap();
    drop(host);
    let mut host = open(folder.path(), config);
    assert_eq!(host.value(b"one"), Ok(b"1".to_vec()));
    let read = host.with_buffer(sqe(0x02, 2), 4096);
    host.io(read).unwrap();
    assert_eq!(host.bytes(host::DATA, 4096), [0x33; 4096]);
    assert_eq!(host.vendor_exist(0, b"none"), Err(vendor(0x10)));
}
