//! Creating and deleting I/O queues, and what moves through them.

mod host;

use std::time::Duration;

use host::blocks::{READ, WRITE, WRITE_ZEROES, access, transfer};
use host::{BASE, DATA, Host, attached, config, device_on, sqe};
use unvme_bus::{Clock, Dma, DmaAccess, EventFd, Function, Region};
use unvme_spec::{Sqe, Status};
use unvme_ssd::{MemoryStore, SsdError, Store};

/// Create I/O Completion Queue as the test wants it.
fn create_cq(qid: u16, size_z: u16, flags_and_vector: u32, prp1: u64) -> Sqe {
    let mut create = sqe(0x05, 0);
    create.dptr = [prp1, 0];
    create.cdw10 = u32::from(size_z) << 16 | u32::from(qid);
    create.cdw11 = flags_and_vector;
    create
}

/// Create I/O Submission Queue as the test wants it.
fn create_sq(qid: u16, size_z: u16, flags_and_cqid: u32, prp1: u64) -> Sqe {
    Sqe { opcode: 0x01, ..create_cq(qid, size_z, flags_and_cqid, prp1) }
}

fn delete_sq(qid: u16) -> Sqe {
    Sqe { cdw10: qid.into(), ..sqe(0x00, 0) }
}

fn delete_cq(qid: u16) -> Sqe {
    Sqe { cdw10: qid.into(), ..sqe(0x04, 0) }
}

fn flush() -> Sqe {
    sqe(0x00, 1)
}

const RING: u64 = BASE + DATA as u64;

#[test]
fn a_completion_queue_is_refused_with_the_status_that_names_the_mistake() {
    let mut host = Host::started(512);
    let vectors_and_one = 65 << 16 | 0b11;
    for (create, expected) in [
        (create_cq(0, 7, 1, RING), Status::INVALID_QUEUE_IDENTIFIER),
        (create_cq(65, 7, 1, RING), Status::INVALID_QUEUE_IDENTIFIER),
        (create_cq(0xffff, 7, 1, RING), Status::INVALID_QUEUE_IDENTIFIER),
        (create_cq(1, 0, 1, RING), Status::INVALID_QUEUE_SIZE),
        (create_cq(1, 4096, 1, RING), Status::INVALID_QUEUE_SIZE),
        (create_cq(1, 0xffff, 1, RING), Status::INVALID_QUEUE_SIZE),
        (create_cq(1, 7, 0, RING), Status::INVALID_FIELD),
        (create_cq(1, 7, vectors_and_one, RING), Status::INVALID_INTERRUPT_VECTOR),
        (create_cq(1, 7, 2048 << 16 | 0b11, RING), Status::INVALID_INTERRUPT_VECTOR),
        (create_cq(1, 7, 1, RING + 8), Status::PRP_OFFSET_INVALID),
        (create_cq(1, 7, 1, 0x1000), Status::DATA_TRANSFER_ERROR),
        (create_cq(1, 7, 1, u64::MAX - 4095), Status::DATA_TRANSFER_ERROR),
        (create_cq(1, 4095, 1, BASE + (16 << 20) - 4096), Status::DATA_TRANSFER_ERROR),
    ] {
        assert_eq!(host.admin(create), Err(expected), "{create:x?}");
    }
    assert_eq!(
        host.admin(create_cq(1, 4095, 64 << 16 | 0b11, RING)),
        Ok(0),
        "the largest queue, the last vector"
    );
    assert_eq!(host.admin(create_cq(1, 7, 1, RING)), Err(Status::INVALID_QUEUE_IDENTIFIER), "a second time");
    // The vector is ignored where interrupts are not enabled.
    assert_eq!(host.admin(create_cq(2, 7, 2048 << 16 | 1, RING)), Ok(0));
}

#[test]
fn a_submission_queue_is_refused_with_the_status_that_names_the_mistake() {
    let mut host = Host::started(512);
    host.create_cq(1, 8).unwrap();
    let cq1 = 1 << 16 | 1;
    for (create, expected) in [
        (create_sq(0, 7, cq1, RING), Status::INVALID_QUEUE_IDENTIFIER),
        (create_sq(65, 7, cq1, RING), Status::INVALID_QUEUE_IDENTIFIER),
        (create_sq(1, 0, cq1, RING), Status::INVALID_QUEUE_SIZE),
        (create_sq(1, 4096, cq1, RING), Status::INVALID_QUEUE_SIZE),
        (create_sq(1, 7, 1, RING), Status::INVALID_QUEUE_IDENTIFIER),
        (create_sq(1, 7, 65 << 16 | 1, RING), Status::INVALID_QUEUE_IDENTIFIER),
        (create_sq(1, 7, 2 << 16 | 1, RING), Status::COMPLETION_QUEUE_INVALID),
        (create_sq(1, 7, 1 << 16, RING), Status::INVALID_FIELD),
        (create_sq(1, 7, cq1, RING + 2048), Status::PRP_OFFSET_INVALID),
        (create_sq(1, 7, cq1, 0), Status::DATA_TRANSFER_ERROR),
    ] {
        assert_eq!(host.admin(create), Err(expected), "{create:x?}");
    }
    // None of the refused ones counts as a user of the completion queue.
    assert_eq!(host.admin(delete_cq(1)), Ok(0));
    host.create_cq(1, 8).unwrap();
    assert_eq!(host.admin(create_sq(1, 4095, cq1, RING)), Ok(0));
    assert_eq!(
        host.admin(create_sq(1, 7, cq1, RING)),
        Err(Status::INVALID_QUEUE_IDENTIFIER),
        "a second time"
    );
}

#[test]
fn queues_cannot_be_created_before_the_host_has_set_entry_sizes() {
    let mut host = attached(config(512));
    host.set_admin_queue();
    host.write32(0x14, 0x0000_0001);
    assert_eq!(host.read32(0x1c), 1);
    assert_eq!(host.admin(create_cq(1, 7, 1, RING)), Err(Status::INVALID_QUEUE_SIZE));
    host.write32(0x14, 0x0046_0001);
    assert_eq!(host.admin(create_cq(1, 7, 1, RING)), Ok(0));
}

#[test]
fn a_refused_creation_says_not_to_retry_and_that_the_log_has_more() {
    let mut host = Host::started(512);
    let cqe = host.execute(0, create_cq(0, 7, 1, RING));
    // Bit 15 DNR, bit 14 M, type 1 in bits 11:9, code 01h in bits 8:1, and the phase tag of the first pass.
    assert_eq!(cqe.status_phase, 0xc203);
}

#[test]
fn deleting_what_is_not_there_or_in_use_is_refused() {
    let mut host = Host::with_queues(512);
    for (delete, expected) in [
        (delete_sq(0), Status::INVALID_QUEUE_IDENTIFIER),
        (delete_cq(0), Status::INVALID_QUEUE_IDENTIFIER),
        (delete_sq(2), Status::INVALID_QUEUE_IDENTIFIER),
        (delete_cq(2), Status::INVALID_QUEUE_IDENTIFIER),
        (delete_sq(1000), Status::INVALID_QUEUE_IDENTIFIER),
        (delete_cq(1), Status::INVALID_QUEUE_DELETION),
    ] {
        assert_eq!(host.admin(delete), Err(expected), "{delete:x?}");
    }
    assert_eq!(host.io(flush()), Ok(0), "the queue pair still works");
    assert_eq!(host.admin(delete_sq(1)), Ok(0));
    assert_eq!(host.admin(delete_sq(1)), Err(Status::INVALID_QUEUE_IDENTIFIER));
    assert_eq!(host.admin(delete_cq(1)), Ok(0));
    assert_eq!(host.admin(delete_cq(1)), Err(Status::INVALID_QUEUE_IDENTIFIER));
}

#[test]
fn all_64_pairs_can_be_created_and_the_65th_cannot() {
    let mut host = Host::started(512);
    for qid in 1..=64 {
        host.create_queue_pair(qid, 2);
    }
    assert_eq!(host.create_cq(65, 2), Err(Status::INVALID_QUEUE_IDENTIFIER));
    for qid in 1..=64 {
        assert!(host.execute(qid, flush()).status().is_success());
    }
}

#[test]
fn several_submission_queues_share_a_completion_queue() {
    let mut host = Host::started(512);
    host.create_cq(1, 16).unwrap();
    host.create_cq(2, 16).unwrap();
    for (sqid, cqid) in [(1, 2), (2, 2), (3, 2), (4, 1)] {
        host.create_sq(sqid, cqid, 8).unwrap();
    }
    let mut expected = Vec::new();
    for sqid in 1..=4 {
        expected.push((sqid, host.push(sqid, flush())));
        host.ring(sqid);
    }
    assert_eq!(host.advance(), 4);
    let mut seen = Vec::new();
    for cqid in [2, 1] {
        while let Some(cqe) = host.poll(cqid) {
            assert!(cqe.status().is_success());
            assert_eq!(cqe.sq_head, 1);
            seen.push((cqe.sq_id, cqe.cid));
        }
    }
    assert_eq!(seen, expected);
    assert_eq!(host.admin(delete_sq(1)), Ok(0));
    assert_eq!(host.admin(delete_sq(2)), Ok(0));
    assert_eq!(host.admin(delete_cq(2)), Err(Status::INVALID_QUEUE_DELETION), "queue 3 is left");
    assert_eq!(host.admin(delete_sq(3)), Ok(0));
    assert_eq!(host.admin(delete_cq(2)), Ok(0));
    assert_eq!(host.admin(delete_sq(4)), Ok(0));
    assert_eq!(host.admin(delete_cq(1)), Ok(0));
}

#[test]
fn commands_waiting_in_a_deleted_queue_are_not_executed() {
    let mut host = Host::with_queues(512);
    for _ in 0..5 {
        host.push(1, flush());
    }
    // The admin queue is served first, so the delete overtakes what waits in queue 1.
    host.ring(1);
    assert_eq!(host.admin(delete_sq(1)), Ok(0));
    host.advance();
    assert_eq!(host.poll(1), None);
    // A new queue of the same number starts empty, at the first entry.
    host.create_sq(1, 1, 8).unwrap();
    host.advance();
    assert_eq!(host.poll(1), None);
    let cqe = host.execute(1, flush());
    assert_eq!((cqe.status_phase, cqe.sq_head), (1, 1));
}

#[test]
fn a_full_completion_queue_holds_commands_back_until_the_host_makes_room() {
    let mut host = Host::started(512);
    host.create_cq(1, 4).unwrap();
    host.create_sq(1, 1, 16).unwrap();
    let cids: Vec<u16> = (0..10).map(|_| host.push(1, flush())).collect();
    host.ring(1);
    assert_eq!(host.advance(), 3, "a queue of four entries holds three");
    assert_eq!(host.advance(), 0);
    let mut seen = Vec::new();
    while let Some(cqe) = host.poll(1) {
        seen.push(cqe.cid);
        host.advance();
    }
    assert_eq!(seen, cids);
}

#[test]
fn the_phase_tag_turns_at_every_pass_and_the_head_pointer_follows_the_commands() {
    let mut host = Host::started(512);
    host.create_queue_pair(1, 3);
    let seen: Vec<(bool, u16)> = (0..8)
        .map(|_| {
            let cqe = host.execute(1, flush());
            (cqe.phase(), cqe.sq_head)
        })
        .collect();
    let (t, f) = (true, false);
    assert_eq!(seen, [(t, 1), (t, 2), (t, 0), (f, 1), (f, 2), (f, 0), (t, 1), (t, 2)]);
}

#[test]
fn queues_are_served_in_turns_and_a_small_burst_shortens_them() {
    let mut host = Host::started(512);
    // Arbitration burst: four commands.
    assert_eq!(host.admin(Sqe { cdw10: 0x01, cdw11: 2, ..sqe(0x09, 0) }), Ok(0));
    host.create_cq(1, 64).unwrap();
    host.create_sq(1, 1, 16).unwrap();
    host.create_sq(2, 1, 16).unwrap();
    for sqid in [1, 2] {
        (0..8).for_each(|_| _ = host.push(sqid, flush()));
        host.ring(sqid);
    }
    assert_eq!(host.advance() + host.advance(), 16);
    let order: Vec<u16> = std::iter::from_fn(|| host.poll(1)).map(|cqe| cqe.sq_id).collect();
    assert_eq!(order, [1, 1, 1, 1, 2, 2, 2, 2, 1, 1, 1, 1, 2, 2, 2, 2]);
}

#[test]
fn a_vector_is_signalled_once_for_completions_of_one_turn_and_only_with_interrupts_enabled() {
    let mut host = Host::started(512);
    let events: Vec<EventFd> = (0..3).map(|_| EventFd::new().unwrap()).collect();
    for (vector, event) in events.iter().enumerate() {
        host.ssd.set_vector(vector as u16, Some(event.clone())).unwrap();
    }
    host.create_cq(1, 8).unwrap();
    assert!(events[0].drain(), "the admin queue is on vector 0");
    host.create_sq(1, 1, 8).unwrap();
    events[0].drain();
    // Queue 2 without IEN.
    let ring = BASE + Host::completion_offset(2) as u64;
    assert_eq!(host.admin(create_cq(2, 7, 2 << 16 | 1, ring)), Ok(0));
    host.know_completion(2, 8);
    host.create_sq(2, 2, 8).unwrap();
    events[0].drain();
    (0..3).for_each(|_| _ = host.push(1, flush()));
    host.ring(1);
    assert!(host.execute(2, flush()).status().is_success());
    assert_eq!([0, 1, 2].map(|v: usize| events[v].drain()), [false, true, false]);
}

#[test]
fn coalesced_interrupts_wait_for_the_threshold_or_the_time() {
    let mut host = Host::with_queues(512);
    let event = EventFd::new().unwrap();
    host.ssd.set_vector(1, Some(event.clone())).unwrap();
    // Three completions or 200 microseconds.
    assert_eq!(host.admin(Sqe { cdw10: 0x08, cdw11: 2 << 8 | 2, ..sqe(0x09, 0) }), Ok(0));
    host.execute(1, flush());
    host.execute(1, flush());
    assert!(!event.drain(), "two of three");
    host.execute(1, flush());
    assert!(event.drain(), "three of three");
    host.execute(1, flush());
    assert!(!event.drain());
    host.clock.advance(Duration::from_micros(199));
    host.advance();
    assert!(!event.drain(), "not yet");
    host.clock.advance(Duration::from_micros(1));
    host.advance();
    assert!(event.drain(), "the time has passed");
    // Vector 1 is taken out of it.
    assert_eq!(host.admin(Sqe { cdw10: 0x09, cdw11: 1 << 16 | 1, ..sqe(0x09, 0) }), Ok(0));
    host.execute(1, flush());
    assert!(event.drain(), "at once");
}

#[test]
fn an_interrupt_that_is_held_back_is_not_lost_with_the_coalescing_or_the_queue() {
    let mut host = Host::with_queues(512);
    let event = EventFd::new().unwrap();
    host.ssd.set_vector(1, Some(event.clone())).unwrap();
    // Ten completions or 25 milliseconds.
    let coalesce = Sqe { cdw10: 0x08, cdw11: 250 << 8 | 9, ..sqe(0x09, 0) };
    assert_eq!(host.admin(coalesce), Ok(0));
    host.execute(1, flush());
    assert!(!event.drain(), "one of ten");
    assert_eq!(host.admin(Sqe { cdw11: 0, ..coalesce }), Ok(0));
    host.advance();
    assert!(event.drain(), "interrupts are not coalesced any more");
    assert_eq!(host.admin(coalesce), Ok(0));
    host.execute(1, flush());
    assert!(!event.drain(), "one of ten");
    assert_eq!(host.admin(delete_sq(1)), Ok(0));
    assert!(event.drain(), "nobody serves the completion queue any more");
}

#[test]
fn a_queue_whose_memory_is_unmapped_rests_until_it_is_mapped_again() {
    let mut host = Host::started(512);
    let elsewhere = Region::anonymous(4096).unwrap();
    host.create_cq(1, 8).unwrap();
    host.ssd.dma_map(0x9000_0000, &elsewhere, DmaAccess::READ_WRITE).unwrap();
    assert_eq!(host.admin(create_sq(1, 7, 1 << 16 | 1, 0x9000_0000)), Ok(0));
    host.ssd.dma_unmap(0x9000_0000, 4096).unwrap();
    host.ring_tail(1, 1);
    host.advance();
    assert_eq!(host.poll(1), None);
    assert_eq!(host.admin(sqe(0x18, 0)), Err(Status::INVALID_OPCODE), "the admin queue is served");
    elsewhere.write_words::<8>(0, zerocopy::transmute!(flush()));
    host.ssd.dma_map(0x9000_0000, &elsewhere, DmaAccess::READ_WRITE).unwrap();
    host.advance();
    assert_eq!(host.poll(1).map(|cqe| cqe.status_phase), Some(1));
}

#[test]
fn a_queue_in_memory_the_device_may_not_write_is_refused() {
    let mut host = Host::started(512);
    let memory = Region::anonymous(8192).unwrap();
    host.ssd.dma_map(0x9000_0000, &memory, DmaAccess::READ_ONLY).unwrap();
    assert_eq!(host.admin(create_cq(1, 7, 1, 0x9000_0000)), Err(Status::DATA_TRANSFER_ERROR));
    host.create_cq(1, 8).unwrap();
    assert_eq!(host.admin(create_sq(1, 7, 1 << 16 | 1, 0x9000_0000)), Ok(0), "entries are only read");
}

/// A store that takes two milliseconds for what is to survive.
struct Slow(MemoryStore, Clock);

impl Store for Slow {
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
        self.0.reserve(chunk)
    }
    fn release(&self, chunk: u64) -> Result<(), SsdError> {
        self.0.release(chunk)
    }
    fn sync(&self) -> Result<(), SsdError> {
        self.1.advance(Duration::from_millis(2));
        self.0.sync()
    }
    fn load_state(&self) -> Result<Option<Vec<u8>>, SsdError> {
        self.0.load_state()
    }
    fn save_state(&self, state: &[u8]) -> Result<(), SsdError> {
        self.0.save_state(state)
    }
}

#[test]
fn commands_that_wait_for_the_media_have_short_turns_and_the_other_queues_theirs() {
    const FUA: u32 = 1 << 30;
    let (clock, config) = (Clock::manual(), config(512));
    let memory = MemoryStore::new(config.store_bytes().unwrap()).unwrap();
    let mut host = Host::attach(device_on(config, Box::new(Slow(memory, clock.clone()))));
    host.clock = clock;
    host.enable();
    host.create_queue_pair(1, 64);
    let with_fua = |sqe: Sqe| Sqe { cdw12: sqe.cdw12 | FUA, ..sqe };
    let write = with_fua(transfer(&host, WRITE, 7, 1, DATA, 512));
    for command in [flush(), write, with_fua(access(WRITE_ZEROES, 0, 8))] {
        for _ in 0..32 {
            host.push(1, command);
        }
        host.ring(1);
        for _ in 0..32 {
            assert_eq!(host.ssd.advance(Some(1), &host.clock), 1, "{command:?}");
            assert!(host.poll(1).is_some());
        }
    }
    // What does not wait for it is done in one turn.
    let read = transfer(&host, READ, 7, 1, DATA, 512);
    for _ in 0..32 {
        host.push(1, read);
    }
    host.ring(1);
    assert_eq!(host.ssd.advance(Some(1), &host.clock), 32);
}
