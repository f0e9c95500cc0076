//! Any bytes as a device's saved state: the device starts, or says which file is wrong and why. One that
//! starts works, and what it saves it can read again.
#![no_main]

use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex};

use libfuzzer_sys::fuzz_target;
use unvme_bus::{Dma, DmaAccess, Region};
use unvme_spec::{Sqe, Status};
use unvme_ssd::{MemoryStore, Ssd, SsdConfig, SsdError, Store};

#[path = "../rig/mod.rs"]
mod rig;
use rig::{ENTRIES, Host, QUEUES_BYTES};

const MEDIA_BYTES: u64 = 16 << 20;
const DATA_AT: u64 = 0x1000_0000;
const DATA_BYTES: usize = 8192;

static MEMORY: LazyLock<[Region; 3]> =
    LazyLock::new(|| [DATA_BYTES, QUEUES_BYTES, QUEUES_BYTES].map(|bytes| Region::anonymous(bytes).unwrap()));

/// A store whose saved state is the input.
struct Kept {
    memory: MemoryStore,
    state: Arc<Mutex<Vec<u8>>>,
}

impl Store for Kept {
    fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    fn memory(&self) -> Option<&Region> {
        self.memory.memory()
    }

    fn holds_data(&self, chunk: u64) -> bool {
        chunk % 2 == 0
    }

    fn reserve(&self, chunk: u64) -> Result<(), SsdError> {
        self.memory.reserve(chunk)
    }

    fn release(&self, chunk: u64) -> Result<(), SsdError> {
        self.memory.release(chunk)
    }

    fn sync(&self) -> Result<(), SsdError> {
        self.memory.sync()
    }

    fn state_path(&self) -> PathBuf {
        "slot/state.json".into()
    }

    fn load_state(&self) -> Result<Option<Vec<u8>>, SsdError> {
        Ok(Some(self.state.lock().unwrap().clone()))
    }

    fn save_state(&self, state: &[u8]) -> Result<(), SsdError> {
        *self.state.lock().unwrap() = state.to_vec();
        Ok(())
    }
}

fn start(state: &Arc<Mutex<Vec<u8>>>) -> Result<Arc<Ssd>, SsdError> {
    let memory = MemoryStore::new(MEDIA_BYTES).unwrap();
    Ssd::new(SsdConfig::block(MEDIA_BYTES, 512), Box::new(Kept { memory, state: Arc::clone(state) }))
}

/// Asks for everything that depends on saved state, and uses the namespaces there are.
fn use_device(ssd: Arc<Ssd>) {
    let [data, submission, completion] = &*MEMORY;
    ssd.dma_map(DATA_AT, data, DmaAccess::READ_WRITE).unwrap();
    let mut host = Host::attach(ssd, submission.clone(), completion.clone());
    host.enable();
    host.create_queue_pair();
    host.check_identity(DATA_AT, data, 0);
    let mut at = 3;
    let mut admin = |opcode, nsid, cdw10, cdw11| {
        let sqe = Sqe { opcode, nsid, dptr: [DATA_AT, DATA_AT + 4096], cdw10, cdw11, ..Sqe::default() };
        let status = host.admin_at(at, sqe).status();
        at = (at + 1) % ENTRIES[0].0;
        status
    };
    // Lists of namespaces, and logs of errors, health, firmware, changed namespaces.
    for (cns, nsid) in [(0x02, 0), (0x10, 0)] {
        assert!(admin(0x06, nsid, cns, 0).is_success());
    }
    for log in 1..=4 {
        assert!(admin(0x02, u32::MAX, 127 << 16 | log, 0).is_success(), "log page {log}");
    }
    for feature in 1..=0x20 {
        for select in [0, 2] {
            // Most exist; that none panics is what is asked.
            let _ = admin(0x0a, 1, select << 8 | feature, 0);
        }
    }
    for nsid in 1..=4 {
        let _ = admin(0x06, nsid, 0x00, 0);
    }
    for (index, nsid) in (0..4).zip(1..) {
        let read = Sqe { opcode: 0x02, nsid, dptr: [DATA_AT, 0], ..Sqe::default() };
        host.write(1, index, read);
    }
    host.ring_tail(1, 4);
    // A saved arbitration burst may be as small as one command a turn.
    for _ in 0..4 {
        host.advance(Some(1));
    }
    for _ in 0..4 {
        let status = host.take(1).expect("a read is answered").status();
        assert_ne!(status.kind(), Status::INTERNAL_ERROR, "a namespace without its media");
    }
}

fuzz_target!(|data: &[u8]| {
    let state = Arc::new(Mutex::new(data.to_vec()));
    match start(&state) {
        Err(error @ (SsdError::State { .. } | SsdError::Newer { .. })) => {
            let message = error.to_string();
            assert!(message.starts_with("slot/state.json: "), "{message}");
        }
        Err(error) => panic!("the state alone can be wrong: {error}"),
        Ok(ssd) => {
            use_device(ssd);
            let saved = state.lock().unwrap().clone();
            start(&state).unwrap_or_else(|e| panic!("{e}\n{}", String::from_utf8_lossy(&saved)));
        }
    }
});
