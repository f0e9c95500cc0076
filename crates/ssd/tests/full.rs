//! What a host sees when the file system behind the media has no space left.

mod host;

use std::io::{Error, ErrorKind};
use std::sync::{Arc, Mutex};

use host::blocks::{COMPARE, SOURCE, WRITE, WRITE_ZEROES, access, pattern, read, transfer, write};
use host::{Host, MEDIA_BYTES, config, device_on};
use unvme_bus::Region;
use unvme_spec::{Sqe, Status};
use unvme_ssd::{CHUNK_BYTES, MemoryStore, SsdError, Store};

/// A store that reserves no space while it is told why.
struct Limited(MemoryStore, Arc<Mutex<Option<ErrorKind>>>);

impl Store for Limited {
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }
    fn memory(&self) -> Option<&Region> {
        self.0.memory()
    }
    fn holds_data(&self, chunk: u64) -> bool {
        self.0.holds_data(chunk)
    }
    fn reserve(&self, chunk: u64) -> Result<(), SsdError> {
        match *self.1.lock().unwrap() {
            Some(kind) => {
                Err(SsdError::File { path: "store".into(), what: "reserve space", source: Error::from(kind) })
            }
            None => self.0.reserve(chunk),
        }
    }
    fn release(&self, chunk: u64) -> Result<(), SsdError> {
        self.0.release(chunk)
    }
    fn sync(&self) -> Result<(), SsdError> {
        self.0.sync()
    }
    fn load_state(&self) -> Result<Option<Vec<u8>>, SsdError> {
        self.0.load_state()
    }
    fn save_state(&self, state: &[u8]) -> Result<(), SsdError> {
        self.0.save_state(state)
    }
}

/// A host whose device has space for the first chunk alone, and what is the matter with the others.
fn limited() -> (Host, Arc<Mutex<Option<ErrorKind>>>) {
    let problem = Arc::new(Mutex::new(None));
    let store = Limited(MemoryStore::new(MEDIA_BYTES).unwrap(), Arc::clone(&problem));
    let mut host = Host::attach(device_on(config(512), Box::new(store)));
    host.enable();
    host.create_queue_pair(1, 64);
    write(&mut host, BEFORE_END, &pattern(1, 4096), 512);
    *problem.lock().unwrap() = Some(ErrorKind::StorageFull);
    (host, problem)
}

/// The last eight blocks of the first chunk.
const BEFORE_END: u64 = CHUNK_BYTES / 512 - 8;

#[test]
fn a_write_without_space_exceeds_the_capacity_and_leaves_everything_as_it_was() {
    let (mut host, problem) = limited();
    host.memory.write(SOURCE, &pattern(2, 8192));
    // Eight blocks in the first chunk, eight in the second.
    let straddling = transfer(&host, WRITE, BEFORE_END, 16, SOURCE, 8192);
    assert_eq!(host.io(straddling), Err(Status::CAPACITY_EXCEEDED));
    assert!(read(&mut host, BEFORE_END, 4096, 512) == pattern(1, 4096));
    assert!(read(&mut host, BEFORE_END + 8, 4096, 512) == [0; 4096]);
    assert_eq!(host.io(access(WRITE_ZEROES, BEFORE_END + 8, 8)), Ok(0), "zeroes need no space");
    write(&mut host, BEFORE_END, &pattern(3, 4096), 512);
    *problem.lock().unwrap() = None;
    write(&mut host, BEFORE_END, &pattern(2, 8192), 512);
    assert!(read(&mut host, BEFORE_END, 8192, 512) == pattern(2, 8192));
}

#[test]
fn a_fused_write_without_space_fails_the_pair() {
    let (mut host, _) = limited();
    host.memory.fill(SOURCE, 512, 0);
    let compare = Sqe { flags: 1, ..transfer(&host, COMPARE, BEFORE_END + 8, 1, SOURCE, 512) };
    let write = Sqe { flags: 2, ..transfer(&host, WRITE, BEFORE_END + 8, 1, SOURCE, 512) };
    host.push(1, compare);
    host.push(1, write);
    host.ring(1);
    host.advance();
    let statuses = [(); 2].map(|()| host.poll(1).expect("a completion").status().kind());
    assert_eq!(statuses, [Status::CAPACITY_EXCEEDED, Status::ABORTED_FAILED_FUSED]);
}

#[test]
fn a_file_system_that_fails_is_a_fault_and_not_a_full_disk() {
    let (mut host, problem) = limited();
    for (kind, status) in [
        (ErrorKind::QuotaExceeded, Status::CAPACITY_EXCEEDED),
        (ErrorKind::FileTooLarge, Status::CAPACITY_EXCEEDED),
        (ErrorKind::ReadOnlyFilesystem, Status::WRITE_FAULT),
        (ErrorKind::Other, Status::WRITE_FAULT),
    ] {
        *problem.lock().unwrap() = Some(kind);
        let beyond = transfer(&host, WRITE, BEFORE_END + 8, 8, SOURCE, 4096);
        assert_eq!(host.io(beyond), Err(status), "{kind:?}");
    }
}
