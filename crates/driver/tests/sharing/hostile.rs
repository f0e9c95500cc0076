//! Clients that do not keep to the rules.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use unvme_bus::function::DmaAddressing;
use unvme_bus::{Clock, Dma, DmaAccess, Function, Region};
use unvme_driver::{QueueOptions, SharedController};
use unvme_spec::Nsid;
use unvme_spec::admin::{Command, FormatNvm, SetFeatures};
use unvme_spec::feature::fid;
use unvme_spec::regs::{Aqa, Cc, Csts, offset};
use zerocopy::{FromZeros, IntoBytes};

use crate::rig::{Rig, block_queue, read, write};

const ENTRIES: u32 = 16;
const SQ: usize = 0;
const CQ: usize = 4096;
const MEMORY_BYTES: usize = 1 << 20;

/// A host that writes what it likes.
struct Host {
    function: Arc<SharedController>,
    memory: Region,
    base: u64,
    page: Region,
    tail: u32,
    clock: Clock,
}

impl Host {
    fn new(rig: &Rig) -> Self {
        let function = rig.sharing.share().expect("a place");
        let DmaAddressing::Chosen(window) = function.dma_addressing() else { panic!("chosen") };
        let memory = Region::shared("host", MEMORY_BYTES).expect("memory");
        function.dma_map(window.start, &memory, DmaAccess::READ_WRITE).expect("map");
        let bar = function.bar(0).expect("bar").expect("bar 0");
        let page = bar.windows[0].region.clone();
        Self { function, memory, base: window.start, page, tail: 0, clock: rig.clock.clone() }
    }

    fn write32(&self, at: u64, value: u32) {
        self.function.bar_write(0, at, &value.to_le_bytes()).expect("register");
    }

    fn csts(&self) -> Csts {
        let mut bytes = [0; 4];
        self.function.bar_read(0, offset::CSTS, &mut bytes).expect("register");
        Csts::from_bits(u32::from_le_bytes(bytes))
    }

    fn work(&self) {
        for _ in 0..200 {
            self.clock.advance(std::time::Duration::from_millis(1));
            self.function.advance(None, &self.clock);
        }
    }

    fn enable(&mut self) {
        let entries_z = (ENTRIES - 1) as u16;
        let aqa = Aqa::new().with_asqs_z(entries_z).with_acqs_z(entries_z);
        self.write32(offset::AQA, aqa.into_bits());
        self.function.bar_write(0, offset::ASQ, &(self.base + SQ as u64).to_le_bytes()).expect("ASQ");
        self.function.bar_write(0, offset::ACQ, &(self.base + CQ as u64).to_le_bytes()).expect("ACQ");
        self.write32(offset::CC, Cc::new().with_iosqes(6).with_iocqes(4).with_en(true).into_bits());
        self.tail = 0;
    }

    fn disable(&mut self) {
        self.write32(offset::CC, 0);
        self.work();
    }

    fn submit(&mut self, entry: &[u8; 64]) {
        self.memory.write(SQ + self.tail as usize * 64, entry);
        self.tail = (self.tail + 1) % ENTRIES;
        self.page.store_u32(0, self.tail, Ordering::Release);
    }
}

/// A small generator of numbers, so that a failure can be repeated.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

#[test]
fn of_two_events_and_one_request_the_second_event_waits_for_the_next_request() {
    let rig = Rig::in_one_thread();
    let mut host = Host::new(&rig);
    host.enable();
    // Opcode 0Ch, Asynchronous Event Request; both of its 16-byte completions in turn.
    let request = |cid: u8| {
        let mut entry = [0u8; 64];
        (entry[0], entry[2]) = (0x0c, cid);
        entry
    };
    let event = |host: &Host, at: usize| {
        let mut entry = [0u8; 16];
        host.memory.read(CQ + at * 16, &mut entry);
        (entry[14] & 1 == 1).then_some((entry[12], entry[0] & 7))
    };
    // The holder makes two events of different kinds, SMART (1h) and notice (2h), that the client's
    // controller sees at once.
    let cold = SetFeatures { fid: fid::TEMPERATURE_THRESHOLD, cdw11: 1, ..SetFeatures::default() };
    rig.holder.admin(Command::SetFeatures(cold).encode(), None).expect("a threshold");
    rig.holder.format(FormatNvm { nsid: Nsid(1), lbaf: 1, ..FormatNvm::default() }).expect("format");
    host.work();
    host.submit(&request(7));
    host.work();
    let (first_cid, first) = event(&host, 0).expect("one event");
    assert_eq!((first_cid, event(&host, 1)), (7, None));
    host.submit(&request(9));
    host.work();
    let (second_cid, second) = event(&host, 1).expect("the other event");
    assert_eq!(second_cid, 9);
    let mut kinds = [first, second];
    kinds.sort_unstable();
    assert_eq!(kinds, [1, 2]);
}

#[test]
fn doorbells_beyond_a_queue_fail_that_client_and_nobody_else() {
    let rig = Rig::in_one_thread();
    let (mut own, _) = block_queue(&rig.holder, &QueueOptions::default());
    let mut host = Host::new(&rig);
    for (at, value) in [(0, ENTRIES), (0, u32::MAX), (4, ENTRIES), (4, u32::MAX)] {
        host.enable();
        assert!(host.csts().rdy());
        host.page.store_u32(0, 1, Ordering::Release);
        host.page.store_u32(at, value, Ordering::Release);
        host.work();
        assert!(host.csts().cfs(), "{value:#x} at {at}");
        host.disable();
        assert!(!host.csts().cfs() && !host.csts().rdy(), "a reset helps");
    }
    write(&rig.holder, &mut own, 0, 1, 512);
}

#[test]
fn an_admin_queue_that_is_not_mapped_fails_the_controller() {
    let rig = Rig::in_one_thread();
    let mut host = Host::new(&rig);
    let good = host.base;
    for base in [0, 1 << 32, good + MEMORY_BYTES as u64, good + MEMORY_BYTES as u64 - 4096, u64::MAX - 8191] {
        host.base = base;
        host.enable();
        assert!(host.csts().cfs() && !host.csts().rdy(), "{base:#x}");
        host.disable();
    }
    host.base = good;
    host.enable();
    // And one whose memory goes away.
    host.function.dma_unmap(good, MEMORY_BYTES as u64).expect("unmap");
    host.page.store_u32(0, 1, Ordering::Release);
    host.work();
    assert!(host.csts().cfs());
}

#[test]
fn queues_outside_the_clients_memory_are_refused() {
    let rig = Rig::in_one_thread();
    let mut host = Host::new(&rig);
    host.enable();
    // Create I/O Completion Queue 1 of 16 entries at addresses of the holder, and beyond the client's memory.
    for (nth, address) in
        [1u64 << 32, host.base + MEMORY_BYTES as u64, u64::MAX - 4095].into_iter().enumerate()
    {
        let mut entry = [0u8; 64];
        entry[0] = 0x05;
        entry[24..32].copy_from_slice(&address.to_le_bytes());
        entry[40..44].copy_from_slice(&0x000f_0001u32.to_le_bytes());
        entry[44..48].copy_from_slice(&1u32.to_le_bytes());
        host.submit(&entry);
        host.work();
        let mut answer = [0; 16];
        host.memory.read(CQ + nth * 16, &mut answer);
        let status = u16::from_le_bytes([answer[14], answer[15]]) >> 1;
        assert_eq!(status & 0x7ff, 0x004, "Data Transfer Error for {address:#x}");
    }
}

#[test]
fn whatever_a_client_submits_the_holder_goes_on() {
    let seed = u64::from(std::process::id());
    let _ = writeln!(std::io::stderr(), "seed {seed}");
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15 ^ seed);
    let rig = Rig::in_one_thread();
    let (mut own, _) = block_queue(&rig.holder, &QueueOptions::default());
    for round in 0..60u8 {
        let mut host = Host::new(&rig);
        host.enable();
        for _ in 0..40 {
            let mut entry = unvme_spec::Sqe::new_zeroed();
            // Mostly commands that the relay decides about; formatting or deleting the namespace would only
            // end the test.
            let opcodes =
                [0x00, 0x01, 0x02, 0x04, 0x05, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x18, 0x7c, 0xc0, 0xff];
            entry.opcode = opcodes[numbers.below(opcodes.len() as u64) as usize];
            entry.cid = numbers.next() as u16;
            entry.dptr = [host.base + numbers.below(512) * 4096, host.base + numbers.below(512) * 4096];
            entry.cdw10 = match numbers.below(3) {
                0 => numbers.next() as u32,
                _ => (numbers.below(8) | numbers.below(64) << 16) as u32,
            };
            entry.cdw11 = match numbers.below(3) {
                0 => numbers.next() as u32,
                _ => (numbers.below(4) | numbers.below(8) << 16) as u32,
            };
            // A write cache or a threshold that has been changed is none of this test's business, a reset is.
            let mut bytes = [0; 64];
            bytes.copy_from_slice(entry.as_bytes());
            host.submit(&bytes);
            if numbers.below(3) == 0 {
                let qid = numbers.below(8) as usize;
                let value =
                    if numbers.below(2) == 0 { numbers.next() as u32 } else { numbers.below(16) as u32 };
                host.page.store_u32(qid * 8 + numbers.below(2) as usize * 4, value, Ordering::Release);
            }
            match numbers.below(12) {
                0 => host.disable(),
                1 => host.enable(),
                2 => host.write32(numbers.below(0x70) & !3, numbers.next() as u32),
                3 => drop(host.function.set_vector(numbers.below(4) as u16, None)),
                _ => {}
            }
            host.function.advance(None, &rig.clock);
        }
        drop(host);
        write(&rig.holder, &mut own, 0, round, 512);
        assert_eq!(read(&rig.holder, &mut own, 0, 512), [round; 512]);
    }
    let all: Vec<_> = (1..rig.holder.queues_max())
        .map(|_| rig.holder.create_queue(&QueueOptions { depth: 2, ..Default::default() }))
        .collect();
    assert!(all.iter().all(Result::is_ok), "all identifiers are free again");
}
