//! What a host sees when the file system behind the media has no space left.

mod host;
mod kept;

use std::io::ErrorKind;

use host::blocks::{COMPARE, FLUSH, SOURCE, WRITE, WRITE_ZEROES, access, pattern, read, transfer, write};
use host::{Host, MEDIA_BYTES, config, device_on, sqe};
use kept::{Kept, Problem, State};
use unvme_spec::{Sqe, Status};
use unvme_ssd::{CHUNK_BYTES, FlashConfig, FlashGeometry, SsdConfig};

/// A host whose device has space for the first chunk alone, and what is the matter with the others.
fn limited() -> (Host, Problem) {
    let problem = Problem::default();
    let store = Kept::new(MEDIA_BYTES, &State::default(), &problem);
    let mut host = Host::attach(device_on(config(512), store));
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
fn flash_without_space_for_another_unit_exceeds_the_capacity_and_loses_nothing() {
    let geometry = FlashGeometry { unit_bytes: CHUNK_BYTES, ..FlashGeometry::default() };
    let config = SsdConfig {
        flash: Some(FlashConfig { geometry, overprovisioning: 0.5, ..FlashConfig::default() }),
        ..config(4096)
    };
    let problem = Problem::default();
    let store = Kept::new(config.store_bytes().unwrap(), &State::default(), &problem);
    let mut host = Host::attach(device_on(config, store));
    host.enable();
    host.create_queue_pair(1, 64);
    let put = |host: &mut Host, page: u64, seed: u8| {
        host.memory.write(SOURCE, &pattern(seed, 4096));
        host.io(transfer(host, WRITE, page, 1, SOURCE, 4096))
    };
    let mut model = vec![0u8; 600];
    for (page, seed) in (0..).zip(&mut model) {
        *seed = 1 + (page % 100) as u8;
        assert_eq!(put(&mut host, page, *seed), Ok(0));
    }
    *problem.lock().unwrap() = Some(ErrorKind::StorageFull);
    let mut page = 0;
    let outcome = loop {
        match put(&mut host, page, 101 + (page % 100) as u8) {
            Ok(_) => model[page as usize] = 101 + (page % 100) as u8,
            outcome => break outcome,
        }
        page += 1;
    };
    assert_eq!(outcome, Err(Status::CAPACITY_EXCEEDED));
    assert!((1..512).contains(&page), "the open unit is filled: {page}");
    assert_eq!(put(&mut host, 3, 9), Err(Status::CAPACITY_EXCEEDED));
    assert_eq!(host.io(transfer(&host, WRITE, 590, 8, SOURCE, 8 * 4096)), Err(Status::CAPACITY_EXCEEDED));
    assert_eq!(host.io(access(WRITE_ZEROES, 7, 1)), Ok(0), "zeroes need no space");
    assert_eq!(host.io(sqe(FLUSH, 1)), Ok(0));
    let expect = |host: &mut Host, model: &[u8]| {
        for (page, seed) in (0..).zip(model) {
            let wanted = if page == 7 { vec![0; 4096] } else { pattern(*seed, 4096) };
            assert!(read(host, page, 4096, 4096) == wanted, "page {page}");
        }
        assert_eq!(host.ssd.check_flash(), []);
    };
    expect(&mut host, &model);
    *problem.lock().unwrap() = None;
    assert_eq!(put(&mut host, 3, 9), Ok(0));
    model[3] = 9;
    expect(&mut host, &model);
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
