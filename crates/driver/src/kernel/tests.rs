//! The block path, where it differs from a drive: what happens to files, and to operations that do not end.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use unvme_spec::nvm::{AccessFlags, BlockRange, Command};
use unvme_spec::{Fuse, Lba, Nsid, Qid, Sqe, Status, admin, fdp};

use super::*;
use crate::controller::Host;
use crate::{CompletionMode, DataPointers, Queue, QueueOptions};
use crate::{Controller, Namespace, WriteOptions};

/// Beside the program, and not in /tmp, which may be a file system without direct I/O.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap()
}

fn open(path: &Path) -> Controller {
    Controller::open_kernel(path, ControllerOptions::default()).unwrap()
}

/// A queue on the blocks of a pipe, which nobody writes: reading them does not end.
fn stuck(options: &QueueOptions) -> (Controller, Queue, std::io::PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    let file = BlockFile::of(File::from(OwnedFd::from(reader)), 1000);
    let device =
        KernelDevice::with(Arc::new(AddressSpace::new()), Target::Block(file), ControllerOptions::default())
            .unwrap();
    let controller = Controller { host: Host::Kernel(Arc::new(device)) };
    let queue = controller.create_queue(options).unwrap();
    (controller, queue, writer)
}

fn finish(queue: &mut Queue) -> Completion {
    assert!(queue.wait(Duration::from_secs(20)).unwrap(), "nothing has completed");
    queue.poll(1).next().expect("wait has seen a completion")
}

fn run(queue: &mut Queue, sqe: Sqe, payload: Option<Payload>) -> Completion {
    queue.submit(sqe, payload, 7).unwrap();
    let completion = finish(queue);
    assert_eq!(completion.token, 7);
    completion
}

fn read(start: u64, blocks: u32) -> Sqe {
    Command::Read(BlockRange::new(Lba(start), blocks), AccessFlags::default()).encode(Nsid(1))
}

#[test]
fn a_file_that_becomes_shorter_ends_commands_with_a_status() {
    let folder = folder();
    let path = folder.path().join("disk");
    let file = File::create(&path).unwrap();
    file.set_len(1 << 20).unwrap();
    let controller = open(&path);
    let namespace = Namespace::open(&controller, Nsid(1)).unwrap();
    let mut queue = controller.create_queue(&QueueOptions::default()).unwrap();
    let per = 65536 / namespace.block_bytes();
    let payload = || Some(Payload::whole(controller.alloc(65536).unwrap()));
    file.set_len((64 << 10) + 8192).unwrap();
    let flags = AccessFlags::default();
    let beyond = BlockRange::new(Lba(u64::from(per)), per);
    for sqe in [namespace.read(beyond, flags).unwrap(), namespace.compare(beyond, flags).unwrap()] {
        let completion = run(&mut queue, sqe, payload());
        assert_eq!(completion.status.kind(), Status::LBA_OUT_OF_RANGE);
        assert_eq!(completion.buf.unwrap().len(), 65536);
    }
    let verify = run(&mut queue, namespace.verify(beyond, flags).unwrap(), None);
    assert_eq!(verify.status.kind(), Status::LBA_OUT_OF_RANGE);
    // In the middle of a block.
    file.set_len((64 << 10) + 100).unwrap();
    let cut = run(&mut queue, namespace.read(beyond, flags).unwrap(), payload());
    assert_eq!(cut.status.kind(), Status::LBA_OUT_OF_RANGE);
    // Writing makes it longer again.
    let write = namespace.write(beyond, AccessFlags::FUA).unwrap();
    assert_eq!(run(&mut queue, write, payload()).status, Status::SUCCESS);
    assert_eq!(run(&mut queue, namespace.read(beyond, flags).unwrap(), payload()).status, Status::SUCCESS);
}

#[test]
fn what_cannot_be_written_is_read_and_refuses_writes() {
    // A program that runs can be opened for writing by nobody, root included.
    let controller = open(&std::env::current_exe().unwrap());
    let namespace = Namespace::open(&controller, Nsid(1)).unwrap();
    let mut queue = controller.create_queue(&QueueOptions::default()).unwrap();
    let bytes = namespace.block_bytes() as usize;
    let one = BlockRange::new(Lba(0), 1);
    let payload = || Some(Payload::whole(controller.alloc(bytes).unwrap()));
    let head = run(&mut queue, namespace.read(one, AccessFlags::default()).unwrap(), payload());
    assert_eq!(head.buf.unwrap().to_vec()[..4], *b"\x7fELF");
    let flags = AccessFlags::default();
    let mut buf = controller.alloc(4096).unwrap();
    let (trim, list_bytes) = namespace.deallocate(&[one], &mut buf).unwrap();
    let list = Payload { buf, bytes: list_bytes };
    let zero = namespace.write_zeroes(one, flags, false).unwrap();
    let write = namespace.write(one, flags).unwrap();
    for (sqe, payload) in [(write, payload()), (zero, None), (trim, Some(list))] {
        assert_eq!(run(&mut queue, sqe, payload).status.kind(), Status::NAMESPACE_WRITE_PROTECTED);
    }
    assert_eq!(controller.identify_namespace(Nsid(1)).unwrap().nsattr, 1, "write protected");
}

#[test]
fn a_command_that_does_not_end_is_cancelled_and_its_buffer_comes_back() {
    for mode in [CompletionMode::Poll, CompletionMode::Interrupt, CompletionMode::Hybrid] {
        let command_timeout = Duration::from_millis(30);
        let (controller, mut queue, _writer) =
            stuck(&QueueOptions { depth: 4, mode, command_timeout, ..QueueOptions::default() });
        let started = Instant::now();
        let completion = run(&mut queue, read(0, 1), Some(Payload::whole(controller.alloc(512).unwrap())));
        assert_eq!(completion.status, Status::ABORTED_BY_HOST, "{mode:?}");
        assert_eq!(completion.buf.unwrap().len(), 512);
        assert!(started.elapsed() >= command_timeout, "{mode:?}");
        assert_eq!(queue.outstanding(), 0);
    }
}

#[test]
fn a_wait_ends_when_its_time_is_over_and_the_command_goes_on() {
    for mode in [CompletionMode::Poll, CompletionMode::Interrupt, CompletionMode::Hybrid] {
        let (controller, mut queue, mut writer) = stuck(&QueueOptions { mode, ..QueueOptions::default() });
        queue.submit(read(0, 1), Some(Payload::whole(controller.alloc(512).unwrap())), 1).unwrap();
        let started = Instant::now();
        assert!(!queue.wait(Duration::from_millis(30)).unwrap());
        assert!(started.elapsed() >= Duration::from_millis(30));
        writer.write_all(&[3; 512]).unwrap();
        let completion = finish(&mut queue);
        assert_eq!((completion.status, completion.buf.unwrap().to_vec()), (Status::SUCCESS, vec![3; 512]));
    }
}

#[test]
fn a_command_that_was_given_up_keeps_its_buffer_and_its_late_completion_is_nobodys() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let memory = Arc::new(AddressSpace::new());
    let pool = DmaPool::new(memory.clone());
    let options = uring::UringOptions { depth: 1, polls_device: false, cooperative: false };
    let mut ring = uring::Uring::new(&memory, &options).unwrap();
    ring.register_file(0, AsFd::as_fd(&reader)).unwrap();
    let index = ring.take(Some(pool.alloc(512).unwrap()), 9).unwrap();
    let place = uring::Place::Payload;
    let operation = uring::Operation::Read { file: 0, offset: 0, place, skip: 0, bytes: 512 };
    ring.start(index, &operation).unwrap();
    ring.send().unwrap();
    ring.give_up(index);
    let (token, buf) = ring.finish(index);
    assert_eq!((token, buf.is_none()), (9, true));
    writer.write_all(&[1; 512]).unwrap();
    ring.sleep(Duration::from_secs(20)).unwrap();
    assert_eq!(ring.reap(), None);
    assert_eq!(ring.in_flight(), 0);
}

#[test]
fn a_dropped_queue_does_not_wait_longer_than_its_grace() {
    let abort_grace = Duration::from_millis(50);
    let (controller, mut queue, _writer) = stuck(&QueueOptions { abort_grace, ..QueueOptions::default() });
    queue.submit(read(0, 1), Some(Payload::whole(controller.alloc(512).unwrap())), 1).unwrap();
    queue.ring().unwrap();
    let started = Instant::now();
    drop(queue);
    assert!(started.elapsed() >= abort_grace && started.elapsed() < Duration::from_secs(20));
    assert_eq!(controller.create_queue(&QueueOptions::default()).unwrap().id(), Qid(1));
}

#[test]
fn what_a_thread_submitted_another_one_can_wait_for() {
    let (controller, mut queue, mut writer) = stuck(&QueueOptions::default());
    queue.submit(read(0, 1), Some(Payload::whole(controller.alloc(512).unwrap())), 5).unwrap();
    queue.ring().unwrap();
    let waiter = std::thread::spawn(move || finish(&mut queue).token);
    writer.write_all(&[1; 512]).unwrap();
    assert_eq!(waiter.join().unwrap(), 5);
}

#[test]
fn commands_that_a_file_does_not_have_end_with_the_status_that_says_so() {
    let folder = folder();
    let path = folder.path().join("disk");
    File::create(&path).unwrap().set_len(1 << 20).unwrap();
    let controller = open(&path);
    let namespace = Namespace::open(&controller, Nsid(1)).unwrap();
    let mut queue = controller.create_queue(&QueueOptions::default()).unwrap();
    let one = BlockRange::new(Lba(0), 1);
    let payload = || Some(Payload::whole(controller.alloc(4096).unwrap()));
    let mut kind = |sqe: Sqe, payload| run(&mut queue, sqe, payload).status.kind();
    assert_eq!(kind(namespace.write_uncorrectable(one).unwrap(), None), Status::INVALID_OPCODE);
    let placed = namespace.write(one, WriteOptions::placed(fdp::PlacementId(1))).unwrap();
    assert_eq!(kind(placed, payload()), Status::INVALID_FIELD);
    assert_eq!(kind(read(0, 1), None), Status::DATA_TRANSFER_ERROR);
    assert_eq!(kind(read(1 << 40, 1), payload()), Status::LBA_OUT_OF_RANGE);
    assert_eq!(kind(Sqe { nsid: 2, ..read(0, 1) }, payload()), Status::INVALID_NAMESPACE_OR_FORMAT);
    assert_eq!(
        kind(Command::DatasetManagement { ranges: 9, deallocate: true, hints: 0 }.encode(Nsid(1)), None),
        Status::DATA_TRANSFER_ERROR
    );
    let health = admin::GetLogPage { lid: 2, dwords: 128, ..Default::default() };
    let answer = controller.admin(admin::Command::GetLogPage(health).encode(), payload()).unwrap();
    assert_eq!((answer.status.kind(), answer.buf.is_some()), (Status::INVALID_LOG_PAGE, true));
}

#[test]
fn what_only_a_drive_of_ones_own_can_do_is_refused_in_words() {
    let folder = folder();
    let path = folder.path().join("disk");
    File::create(&path).unwrap().set_len(1 << 20).unwrap();
    let controller = open(&path);
    assert!(controller.reset().unwrap_err().to_string().contains("kernel:/dev/nvmeX"));
    let sgl = QueueOptions { data_pointers: DataPointers::Sgl, ..QueueOptions::default() };
    assert!(matches!(controller.create_queue(&sgl), Err(Error::Unsupported(_))));
    assert_eq!(controller.poll_events().unwrap(), []);
    let error = crate::KvNamespace::open(&controller, Nsid(1)).unwrap_err();
    assert!(error.to_string().contains("no key-value commands"), "{error}");
    let mut half = read(0, 1);
    half.set_fuse(Fuse::First);
    let mut queue = controller.create_queue(&QueueOptions::default()).unwrap();
    let rejected = queue.submit(half, Some(Payload::whole(controller.alloc(4096).unwrap())), 0).unwrap_err();
    assert!(matches!(rejected.error, Error::Unsupported(_)), "{rejected}");
    assert!(rejected.buf.is_some());
}
