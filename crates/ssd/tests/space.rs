//! Deallocated blocks give their space back to the host's file system, and are not in use any more.

mod host;
mod kept;

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use host::blocks::{
    DATASET_MANAGEMENT, FLUSH, SOURCE, WRITE, WRITE_ZEROES, access, pattern, read, transfer, write,
};
use host::{Host, MEDIA_BYTES, config, device_on, sqe};
use kept::{Kept, Problem, State};
use unvme_spec::{Sqe, Status};
use unvme_ssd::{CHUNK_BYTES, FileStore, SsdConfig};

/// Deallocate, in CDW12 of Write Zeroes.
const DEAC: u32 = 1 << 25;
const BLOCK: usize = 4096;
/// Blocks of a chunk.
const CHUNK: u64 = CHUNK_BYTES / BLOCK as u64;

fn started(folder: &Path, config: SsdConfig) -> Host {
    let store = FileStore::open(folder, config.store_bytes().unwrap()).unwrap();
    let mut host = Host::attach(device_on(config, Box::new(store)));
    host.enable();
    host.create_queue_pair(1, 64);
    host
}

/// Dataset Management, Deallocate.
fn deallocate(host: &mut Host, ranges: &[(u64, u64)]) {
    let list: Vec<u8> = ranges
        .iter()
        .flat_map(|&(start, blocks)| {
            [&[0; 4][..], &(blocks as u32).to_le_bytes(), &start.to_le_bytes()].concat()
        })
        .collect();
    host.memory.write(SOURCE, &list);
    let mut command = Sqe { cdw10: ranges.len() as u32 - 1, cdw11: 1 << 2, ..sqe(DATASET_MANAGEMENT, 1) };
    host.set_prps(&mut command, SOURCE, list.len());
    assert_eq!(host.io(command), Ok(0));
}

/// NUSE of namespace 1.
fn used(host: &mut Host) -> u64 {
    let page = host.admin_in(Sqe { cdw10: 0, ..sqe(0x06, 1) }, 4096).unwrap();
    u64::from_le_bytes(page[16..24].try_into().unwrap())
}

/// Bytes that the data takes in the file system.
fn allocated(folder: &Path) -> u64 {
    std::fs::metadata(folder.join("media.img")).unwrap().blocks() * 512
}

/// Writes all blocks of the first `chunks` chunks.
fn fill(host: &mut Host, chunks: u64) {
    for lba in (0..chunks * CHUNK).step_by(64) {
        write(host, lba, &pattern(lba as u8, 64 * BLOCK), BLOCK);
    }
}

#[test]
fn deallocated_chunks_are_holes_of_the_file_and_not_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = started(folder.path(), config(BLOCK as u32));
    let before = allocated(folder.path());
    fill(&mut host, 4);
    assert_eq!(used(&mut host), 4 * CHUNK);
    assert!(allocated(folder.path()) >= before + 4 * CHUNK_BYTES);
    // Two whole chunks, half of the third, and twenty blocks of the last.
    deallocate(&mut host, &[(0, 2 * CHUNK + CHUNK / 2), (3 * CHUNK + 10, 20)]);
    assert_eq!(used(&mut host), 2 * CHUNK - CHUNK / 2 - 20);
    assert!(allocated(folder.path()) <= before + 2 * CHUNK_BYTES + (64 << 10));
    assert!(read(&mut host, 2 * CHUNK - 8, 16 * BLOCK, BLOCK) == vec![0; 16 * BLOCK]);
    let rest = 2 * CHUNK + CHUNK / 2;
    assert!(read(&mut host, rest, 64 * BLOCK, BLOCK) == pattern(rest as u8, 64 * BLOCK));
    // Written again, in a unit that was deallocated and in a chunk that has no space.
    write(&mut host, 2 * CHUNK + 3, &pattern(7, BLOCK), BLOCK);
    write(&mut host, 5, &pattern(8, BLOCK), BLOCK);
    assert_eq!(used(&mut host), 2 * CHUNK - CHUNK / 2 - 20 + 1 + 1);
    // The rest of the chunk, but for the block that was written: that is the last to go.
    deallocate(&mut host, &[(rest, CHUNK / 2)]);
    assert!(read(&mut host, 2 * CHUNK + 3, BLOCK, BLOCK) == pattern(7, BLOCK));
    let held = allocated(folder.path());
    deallocate(&mut host, &[(2 * CHUNK + 3, 1)]);
    assert!(allocated(folder.path()) + CHUNK_BYTES <= held, "several commands make a whole chunk");
    assert_eq!(host.io(sqe(FLUSH, 1)), Ok(0));
    assert_eq!(used(&mut host), 1 + CHUNK - 20);
    drop(host);
    let mut host = started(folder.path(), config(BLOCK as u32));
    assert_eq!(used(&mut host), 2 * CHUNK, "of chunks with space");
    assert!(read(&mut host, 5, BLOCK, BLOCK) == pattern(8, BLOCK));
    assert!(read(&mut host, CHUNK, CHUNK_BYTES as usize / 2, BLOCK) == vec![0; CHUNK_BYTES as usize / 2]);
}

#[test]
fn write_zeroes_gives_space_back_when_it_is_asked_to_deallocate() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = started(folder.path(), config(BLOCK as u32));
    fill(&mut host, 1);
    let held = allocated(folder.path());
    assert_eq!(host.io(access(WRITE_ZEROES, 0, CHUNK as u32)), Ok(0));
    assert_eq!((used(&mut host), allocated(folder.path())), (CHUNK, held), "these blocks are written");
    let zeroes = access(WRITE_ZEROES, 0, CHUNK as u32);
    assert_eq!(host.io(Sqe { cdw12: zeroes.cdw12 | DEAC, ..zeroes }), Ok(0));
    assert_eq!(used(&mut host), 0);
    assert!(allocated(folder.path()) + CHUNK_BYTES <= held);
    assert!(read(&mut host, 0, 64 * BLOCK, BLOCK) == vec![0; 64 * BLOCK]);
}

#[test]
fn the_last_chunk_of_a_namespace_is_a_whole_one_however_few_blocks_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(BLOCK as u32);
    config.namespaces[0].bytes = Some(CHUNK_BYTES + 100 * BLOCK as u64);
    let mut host = started(folder.path(), config);
    let before = allocated(folder.path());
    write(&mut host, CHUNK + 99, &pattern(1, BLOCK), BLOCK);
    assert_eq!(used(&mut host), 100);
    deallocate(&mut host, &[(CHUNK, 50)]);
    assert_eq!(used(&mut host), 50);
    deallocate(&mut host, &[(CHUNK + 50, 50)]);
    assert_eq!(used(&mut host), 0);
    assert!(allocated(folder.path()) <= before);
}

#[test]
fn space_is_given_back_where_there_is_none_left() {
    let problem = Problem::default();
    let store = Kept::new(MEDIA_BYTES, &State::default(), &problem);
    let mut host = Host::attach(device_on(config(BLOCK as u32), store));
    host.enable();
    host.create_queue_pair(1, 64);
    fill(&mut host, 2);
    *problem.lock().unwrap() = Some(ErrorKind::StorageFull);
    deallocate(&mut host, &[(0, CHUNK)]);
    assert_eq!(used(&mut host), CHUNK);
    host.memory.write(SOURCE, &pattern(3, BLOCK));
    let again = transfer(&host, WRITE, 9, 1, SOURCE, BLOCK);
    assert_eq!(host.io(again), Err(Status::CAPACITY_EXCEEDED), "it was given back");
    *problem.lock().unwrap() = None;
    assert_eq!(host.io(again), Ok(0));
    assert_eq!(used(&mut host), CHUNK + 1);
    deallocate(&mut host, &[(9, 1)]);
    assert_eq!(used(&mut host), CHUNK, "one block was all that was in use of it");
}
