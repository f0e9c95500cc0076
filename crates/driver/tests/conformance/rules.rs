//! Faults by rules of the device itself, as the driver sees them. Everything goes through the vendor's admin
//! commands, so that both transports are alike.

use std::time::Duration;

use unvme_driver::{
    Completion, Controller, ControllerOptions, DmaBuf, Error, KvCommand, KvKey, KvNamespace, LogRequest,
    Namespace, Payload, Queue, QueueOptions, StoreOptions,
};
use unvme_spec::fault::{FaultReceive, FaultSend, FaultText};
use unvme_spec::nvm::{AccessFlags, BlockRange};
use unvme_spec::{Lba, Nsid, Status};
use unvme_ssd::SsdConfig;

use crate::rig::{PATIENCE, Rig, Transport, block_queue, filled, run, small};

fn impatient() -> QueueOptions {
    QueueOptions {
        depth: 8,
        command_timeout: Duration::from_secs(1),
        abort_grace: Duration::from_secs(1),
        ..QueueOptions::default()
    }
}

fn impatient_controller(rig: &Rig) -> Controller {
    let options = ControllerOptions { admin_timeout: Duration::from_secs(2), ..rig.options() };
    rig.try_open(options).expect("open the controller")
}

fn send(controller: &Controller, command: FaultSend, text: &str) -> Completion {
    let payload = match text {
        "" => None,
        text => Some(Payload::whole(filled(controller, text.as_bytes()))),
    };
    controller.admin(command.encode(), payload).unwrap()
}

/// Adds rules and returns how many that were.
fn add(controller: &Controller, text: &str) -> u32 {
    let done = send(controller, FaultSend::Add { bytes: text.len() as u32, passing: false }, text);
    assert_eq!(done.status, Status::SUCCESS, "{text}: {}", receive(controller, FaultText::LastError));
    done.result as u32
}

fn clear(controller: &Controller) -> u64 {
    send(controller, FaultSend::ClearAll, "").result
}

fn receive(controller: &Controller, text: FaultText) -> String {
    let buf = controller.alloc(65536).unwrap();
    let done =
        controller.admin(FaultReceive { text, bytes: 65536 }.encode(), Some(Payload::whole(buf))).unwrap();
    assert_eq!(done.status, Status::SUCCESS);
    let mut bytes = done.buf.unwrap().to_vec();
    bytes.truncate(done.result as usize);
    String::from_utf8(bytes).unwrap()
}

fn list(controller: &Controller) -> String {
    receive(controller, FaultText::List)
}

struct Blocks {
    rig: Rig,
    controller: Controller,
    queue: Queue,
    namespace: Namespace,
}

impl Blocks {
    fn new(rig: Rig) -> Self {
        let controller = impatient_controller(&rig);
        let queue = controller.create_queue(&impatient()).unwrap();
        let namespace = Namespace::open(&controller, Nsid(1)).unwrap();
        Self { rig, controller, queue, namespace }
    }

    fn write(&mut self, lba: u64, blocks: u32, byte: u8) -> Status {
        let data = filled(&self.controller, &vec![byte; blocks as usize * 512]);
        let range = BlockRange::new(Lba(lba), blocks);
        let sqe = self.namespace.write(range, AccessFlags::default()).unwrap();
        run(&mut self.queue, sqe, Some(Payload::whole(data))).status
    }

    fn read(&mut self, lba: u64, blocks: u32) -> (Status, Vec<u8>) {
        let buf = self.controller.alloc(blocks as usize * 512).unwrap();
        let range = BlockRange::new(Lba(lba), blocks);
        let sqe = self.namespace.read(range, AccessFlags::default()).unwrap();
        let done = run(&mut self.queue, sqe, Some(Payload::whole(buf)));
        (done.status, done.buf.unwrap().to_vec())
    }

    /// Submits a read with token 7 and rings, without looking at the answer.
    fn submit_read(&mut self) {
        let range = BlockRange::new(Lba(0), 1);
        let sqe = self.namespace.read(range, AccessFlags::default()).unwrap();
        let buf = self.controller.alloc(512).unwrap();
        self.queue.submit(sqe, Some(Payload::whole(buf)), 7).unwrap();
        self.queue.ring().unwrap();
    }

    /// Waits until what was submitted has come back: its status, and whether the buffer came along.
    fn collect(&mut self) -> Vec<(Status, bool)> {
        let mut all = Vec::new();
        for _ in 0..100_000 {
            let found = self.queue.poll(usize::MAX).map(|done| (done.status.kind(), done.buf.is_some()));
            all.extend(found);
            if self.queue.outstanding() == 0 {
                return all;
            }
            let _ = self.queue.wait(Duration::from_millis(20));
        }
        panic!("{} commands never came back", self.queue.outstanding());
    }

    fn works(&mut self) {
        assert_eq!(self.write(3, 1, 0x3c), Status::SUCCESS);
        assert_eq!(self.read(3, 1), (Status::SUCCESS, vec![0x3c; 512]));
    }
}

const UNRECOVERED: Status = Status::new(2, 0x81);

pub(crate) fn the_third_write_to_a_range_fails_with_the_status_of_the_rule(transport: Transport) {
    let mut it = Blocks::new(transport(small()));
    let text = r#"{"match":{"opcode":"write","namespace":1,"lba":"100-200","after":2,"count":1},
                   "act":{"status":"0x281","dnr":true}}"#;
    assert_eq!(add(&it.controller, text), 1);
    assert_eq!(it.write(99, 1, 1), Status::SUCCESS);
    assert_eq!(it.write(100, 1, 1), Status::SUCCESS);
    assert_eq!(it.read(100, 1).0, Status::SUCCESS);
    assert_eq!(it.write(200, 1, 1), Status::SUCCESS);
    assert_eq!(it.write(201, 1, 1), Status::SUCCESS);
    let status = it.write(95, 6, 2);
    assert_eq!((status.kind(), status.do_not_retry(), status.more()), (UNRECOVERED, true, true));
    assert_eq!(it.read(100, 1).1, [1; 512], "a write that failed has written nothing");
    assert_eq!(it.write(100, 1, 3), Status::SUCCESS);
    let listed = list(&it.controller);
    assert!(listed.contains(r#""matched":3,"hits":1"#), "{listed}");
    let log = it.controller.get_log(&LogRequest { lid: 1, bytes: 64, ..Default::default() }).unwrap();
    assert_eq!(u16::from_le_bytes([log[12], log[13]]) >> 1 & 0x7ff, 0x281, "the error log has it");
}

pub(crate) fn the_ranges_of_dataset_management_are_matched(transport: Transport) {
    let mut it = Blocks::new(transport(small()));
    add(&it.controller, r#"{"match":{"opcode":"dsm","lba":"100-200"},"act":{"status":"write-fault"}}"#);
    let mut deallocate = |ranges: &[(u64, u32)]| {
        let ranges: Vec<BlockRange> =
            ranges.iter().map(|&(lba, blocks)| BlockRange::new(Lba(lba), blocks)).collect();
        let mut buf = it.controller.alloc(4096).unwrap();
        let (sqe, bytes) = it.namespace.deallocate(&ranges, &mut buf).unwrap();
        run(&mut it.queue, sqe, Some(Payload { buf, bytes })).status.kind()
    };
    assert_eq!(deallocate(&[(0, 100), (201, 9)]), Status::SUCCESS);
    assert_eq!(deallocate(&[(0, 101)]), Status::WRITE_FAULT);
    assert_eq!(deallocate(&[(0, 1), (300, 1), (200, 1)]), Status::WRITE_FAULT);
    let listed = list(&it.controller);
    assert!(listed.contains(r#""matched":2,"hits":2"#), "{listed}");
}

pub(crate) fn rules_match_by_queue_opcode_number_and_every_nth(transport: Transport) {
    let mut it = Blocks::new(transport(small()));
    let mut other = it.controller.create_queue(&impatient()).unwrap();
    let text = format!(
        r#"[{{"match":{{"queue":{},"opcode":0,"every":2}},"act":{{"status":"write-fault"}}}}]"#,
        other.id().0
    );
    add(&it.controller, &text);
    let flush = |queue: &mut Queue| run(queue, it.namespace.flush(), None).status.kind();
    let found = [(); 4].map(|()| (flush(&mut it.queue), flush(&mut other)));
    let (good, bad) = (Status::SUCCESS, Status::WRITE_FAULT);
    assert_eq!(found, [(good, good), (good, bad), (good, good), (good, bad)]);
}

pub(crate) fn a_status_may_be_a_lie_in_both_directions(transport: Transport) {
    let mut it = Blocks::new(transport(small()));
    assert_eq!(it.write(0, 1, 1), Status::SUCCESS);
    // The write is done and its failure is a lie.
    add(
        &it.controller,
        r#"{"match":{"opcode":"write","count":1},"act":{"status":"0x280","executed":true,"more":false}}"#,
    );
    assert_eq!(it.write(0, 1, 2), Status::WRITE_FAULT);
    assert_eq!(it.read(0, 1).1, [2; 512]);
    // The write is lost and its success is a lie.
    add(&it.controller, r#"{"match":{"opcode":"write","count":1},"act":{"status":0}}"#);
    assert_eq!(it.write(0, 1, 3), Status::SUCCESS);
    assert_eq!(it.read(0, 1).1, [2; 512]);
}

pub(crate) fn an_admin_command_fails_by_its_name(transport: Transport) {
    let it = Blocks::new(transport(small()));
    add(&it.controller, r#"{"match":{"opcode":"identify","count":1},"act":{"status":"internal-error"}}"#);
    match it.controller.identify_controller() {
        Err(Error::Status { status, .. }) => assert_eq!(status.kind(), Status::INTERNAL_ERROR),
        other => panic!("{other:?}"),
    }
    it.controller.identify_controller().unwrap();
}

pub(crate) fn a_dropped_command_is_aborted_and_its_buffer_comes_back(transport: Transport) {
    let mut it = Blocks::new(transport(small()));
    add(&it.controller, r#"{"match":{"opcode":"read","count":1},"act":{"drop":true}}"#);
    it.submit_read();
    let all = it.collect();
    assert_eq!(all.len(), 1);
    assert!(matches!(all[0].0, Status::ABORTED_BY_HOST | Status::ABORT_REQUESTED), "{all:?}");
    assert!(all[0].1, "the buffer came back");
    it.works();
}

pub(crate) fn a_dropped_command_may_have_been_executed(transport: Transport) {
    let mut it = Blocks::new(transport(small()));
    let text = r#"[{"match":{"opcode":"write","lba":"0","count":1},"act":{"drop":true,"executed":true}},
                   {"match":{"opcode":"write","lba":"1","count":1},"act":{"drop":true}}]"#;
    assert_eq!(add(&it.controller, text), 2);
    for lba in [0, 1] {
        let data = filled(&it.controller, &[0x77; 512]);
        let sqe = it.namespace.write(BlockRange::new(Lba(lba), 1), AccessFlags::default()).unwrap();
        it.queue.submit(sqe, Some(Payload::whole(data)), 7).unwrap();
        it.queue.ring().unwrap();
        let all = it.collect();
        assert_eq!(all.len(), 1);
        assert!(matches!(all[0].0, Status::ABORTED_BY_HOST | Status::ABORT_REQUESTED), "{all:?}");
    }
    assert_eq!(it.read(0, 1), (Status::SUCCESS, vec![0x77; 512]), "only its answer was lost");
    assert_eq!(it.read(1, 1), (Status::SUCCESS, vec![0; 512]));
    it.works();
}

pub(crate) fn a_dropped_admin_command_times_out_and_the_controller_is_reset(transport: Transport) {
    let mut it = Blocks::new(transport(small()));
    add(&it.controller, r#"{"match":{"opcode":"identify","count":1},"act":{"drop":true}}"#);
    let error = it.controller.identify_controller().unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    assert_eq!(it.controller.epoch(), 2);
    it.works();
}

pub(crate) fn a_delayed_command_takes_as_long_as_the_rule_says(transport: Transport) {
    let mut it = Blocks::new(transport(small()));
    add(&it.controller, r#"{"match":{"opcode":"read","count":1},"act":{"delay":"50ms"}}"#);
    let started = it.rig.clock.now();
    it.submit_read();
    assert_eq!(it.queue.poll(8).count(), 0, "it is not there at once");
    assert_eq!(it.collect(), [(Status::SUCCESS, true)]);
    let took = Duration::from_nanos(it.rig.clock.now() - started);
    assert!((50..2000).contains(&took.as_millis()), "{took:?}");
    it.works();
}

pub(crate) fn a_delay_beyond_the_time_out_is_aborted(transport: Transport) {
    let mut it = Blocks::new(transport(small()));
    add(&it.controller, r#"{"match":{"opcode":"read","count":1},"act":{"delay":"60s"}}"#);
    it.submit_read();
    assert_eq!(it.collect(), [(Status::ABORT_REQUESTED, true)]);
    assert_eq!(it.controller.epoch(), 1, "the abort was enough");
    it.works();
}

pub(crate) fn corrupt_data_is_seen(transport: Transport) {
    let mut it = Blocks::new(transport(small()));
    assert_eq!(it.write(0, 32, 0xaa), Status::SUCCESS);
    let changed = |data: &[u8]| -> Vec<(usize, u8)> {
        data.iter().enumerate().filter(|(_, byte)| **byte != 0xaa).map(|(at, byte)| (at, *byte)).collect()
    };
    // Of data read, at an offset: what is on the media stays as it is.
    let text = r#"{"match":{"opcode":"read","count":1},"act":{"corrupt":{"data":"read","offset":5000,"xor":"ff0001"}}}"#;
    add(&it.controller, text);
    assert_eq!(changed(&it.read(0, 32).1), [(5000, 0x55), (5002, 0xab)]);
    assert_eq!(changed(&it.read(0, 32).1), []);
    // Of data read, at random.
    let text = r#"{"match":{"opcode":"read","count":1,"seed":5},"act":{"corrupt":{"data":"read","bits":3}}}"#;
    add(&it.controller, text);
    let bits: u32 = changed(&it.read(0, 32).1).iter().map(|(_, byte)| (byte ^ 0xaa).count_ones()).sum();
    assert_eq!(bits, 3);
    // Of data written: the host's memory stays as it is, the media does not.
    let text = r#"{"match":{"opcode":"write","count":1},"act":{"corrupt":{"data":"write","offset":511,"xor":"01"}}}"#;
    add(&it.controller, text);
    let data = filled(&it.controller, &[0xaa; 16384]);
    let sqe = it.namespace.write(BlockRange::new(Lba(0), 32), AccessFlags::default()).unwrap();
    let done = run(&mut it.queue, sqe, Some(Payload::whole(data)));
    assert_eq!(done.status, Status::SUCCESS);
    assert_eq!(changed(&done.buf.unwrap().to_vec()), []);
    assert_eq!(changed(&it.read(0, 32).1), [(511, 0xab)]);
}

pub(crate) fn a_wrong_completion_resets_the_controller(transport: Transport) {
    for kind in ["cid", "duplicate"] {
        let mut it = Blocks::new(transport(small()));
        let text = format!(r#"{{"match":{{"opcode":"read","count":1}},"act":{{"completion":"{kind}"}}}}"#);
        add(&it.controller, &text);
        it.submit_read();
        let all = it.collect();
        assert_eq!(all.len(), 1, "{kind}");
        assert!(all[0].1, "{kind}: the buffer came back");
        // The second completion of the same command may not have been looked at yet.
        for _ in 0..100 {
            let _ = it.queue.poll(8).count();
            match it.queue.wait(Duration::from_millis(1)) {
                Err(error) => assert!(error.to_string().contains("is not outstanding"), "{kind}: {error}"),
                Ok(_) if it.controller.epoch() == 2 => break,
                Ok(_) => {}
            }
        }
        assert_eq!(it.controller.epoch(), 2, "{kind}");
        it.works();
    }
}

pub(crate) fn a_completion_for_another_queue_does_no_harm(transport: Transport) {
    let mut it = Blocks::new(transport(small()));
    add(&it.controller, r#"{"match":{"opcode":"read","count":1},"act":{"completion":"sqid"}}"#);
    it.submit_read();
    // A queue pair has a completion queue of its own: the identifier says nothing new, or is a reason to
    // reset.
    let all = it.collect();
    assert_eq!(all.len(), 1);
    assert!(matches!(all[0].0, Status::SUCCESS | Status::ABORTED_BY_HOST), "{all:?}");
    it.works();
}

pub(crate) fn fatal_status_ends_commands_and_a_reset_helps(transport: Transport) {
    let mut it = Blocks::new(transport(small()));
    add(&it.controller, r#"{"match":{"opcode":"read","count":1},"act":{"fatal":true}}"#);
    it.submit_read();
    let mut csts = [0; 4];
    for _ in 0..1000 {
        let _ = it.queue.poll(1).count();
        it.rig.function.bar_read(0, 0x1c, &mut csts).unwrap();
        if csts[0] & 2 != 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(csts[0] & 2, 2, "CSTS.CFS");
    assert_eq!(it.collect(), [(Status::ABORTED_BY_HOST, true)]);
    let why = it.controller.ended_by().unwrap();
    assert!(why.contains("it reports Controller Fatal Status"), "{why}");
    if it.rig.function.is_host_driven() {
        assert!(why.ends_with("; rule 1 of its faults has set Controller Fatal Status"), "{why}");
    }
    it.rig.function.bar_read(0, 0x1c, &mut csts).unwrap();
    assert_eq!(csts[0] & 2, 0, "a reset clears CSTS.CFS");
    it.works();
}

pub(crate) fn read_only_media_warns_and_refuses_writes(transport: Transport) {
    let mut it = Blocks::new(transport(small()));
    it.controller.poll_events().unwrap();
    let smart = |it: &Blocks| {
        it.controller.get_log(&LogRequest { lid: 2, bytes: 512, ..Default::default() }).unwrap()[0]
    };
    assert_eq!(smart(&it), 0);
    add(&it.controller, r#"{"match":{"opcode":"write","after":1,"count":1},"act":{"read_only":true}}"#);
    assert_eq!(it.write(0, 1, 1), Status::SUCCESS);
    // Attempted Write to Read Only Range, do not retry.
    let refused = Status::new(1, 0x82).with_do_not_retry().with_more();
    assert_eq!(it.write(0, 1, 2), refused);
    assert_eq!(it.write(9, 1, 2), refused);
    assert_eq!(it.read(0, 1), (Status::SUCCESS, vec![1; 512]));
    let event = crate::rig::events(&it.rig, &it.controller);
    assert_eq!(event.len(), 1, "{event:?}");
    assert_eq!(smart(&it), 8, "critical warning bit 3");
    clear(&it.controller);
    assert_eq!(smart(&it), 0);
    it.works();
}

pub(crate) fn an_event_is_reported(transport: Transport) {
    let mut it = Blocks::new(transport(small()));
    it.controller.poll_events().unwrap();
    let text = r#"{"match":{"opcode":"read","count":1},"act":{"event":{"type":1,"info":2,"log_page":2}}}"#;
    add(&it.controller, text);
    assert!(it.controller.poll_events().unwrap().is_empty());
    assert_eq!(it.read(0, 1).0, Status::SUCCESS);
    let events = crate::rig::events(&it.rig, &it.controller);
    assert_eq!(events.len(), 1, "{events:?}");
}

pub(crate) fn an_unplugged_device_is_a_clear_error_and_no_hang(transport: Transport) {
    let mut it = Blocks::new(transport(small()));
    add(&it.controller, r#"{"match":{"opcode":"read","count":1},"act":{"unplug":true}}"#);
    it.submit_read();
    let all = it.collect();
    assert_eq!(all.iter().map(|(status, _)| *status).collect::<Vec<_>>(), [Status::ABORTED_BY_HOST]);
    let mut csts = [0; 4];
    it.rig.function.bar_read(0, 0x1c, &mut csts).unwrap();
    assert_eq!(csts, [0xff; 4]);
    let rejected = it.queue.submit(it.namespace.flush(), None, 1).unwrap_err();
    assert!(matches!(rejected.error, Error::Gone { .. } | Error::Timeout { .. }), "{rejected}");
    assert!(it.controller.identify_controller().is_err());
    assert!(matches!(it.queue.wait(PATIENCE), Err(_) | Ok(false)));
}

pub(crate) fn the_power_is_cut_at_the_program_the_rule_names(transport: Transport) {
    let mut it = Blocks::new(transport(small()));
    assert_eq!(it.write(0, 64, 1), Status::SUCCESS);
    add(&it.controller, r#"{"match":{"program":6},"act":{"power_cut":true}}"#);
    assert_eq!(it.write(0, 32, 2), Status::SUCCESS, "four pages");
    let data = filled(&it.controller, &[3; 16384]);
    let sqe = it.namespace.write(BlockRange::new(Lba(32), 32), AccessFlags::default()).unwrap();
    it.queue.submit(sqe, Some(Payload::whole(data)), 7).unwrap();
    it.queue.ring().unwrap();
    let all = it.collect();
    assert_eq!(all[0].0, Status::ABORTED_BY_HOST, "it is not answered");
    assert!(it.controller.identify_controller().is_err());
}

pub(crate) fn keys_are_matched_whole_and_by_their_beginning(transport: Transport) {
    let rig = transport(SsdConfig::kv(64 << 20));
    let controller = impatient_controller(&rig);
    let mut queue = controller.create_queue(&QueueOptions { long_keys: true, ..impatient() }).unwrap();
    let namespace = KvNamespace::open(&controller, Nsid(1)).unwrap();
    let text = r#"[{"match":{"key":"user:1"},"act":{"status":"write-fault"}},
                   {"match":{"key_prefix":"a long key of more than sixteen bytes"},"act":{"status":"0x281"}}]"#;
    assert_eq!(add(&controller, text), 2);
    let mut store = |key: &[u8]| {
        let key = KvKey::new(key);
        let buf = filled(&controller, b"some");
        let command = namespace.store(key, 4, StoreOptions::default()).unwrap();
        run_kv(&mut queue, command, buf)
    };
    assert_eq!(store(b"user:1").kind(), Status::WRITE_FAULT);
    assert_eq!(store(b"user:12"), Status::SUCCESS);
    assert_eq!(store(b"a long key of more than sixteen bytes: 1").kind(), UNRECOVERED);
    assert_eq!(store(b"a long key of more than sixteen byteS: 1"), Status::SUCCESS);
}

fn run_kv(queue: &mut Queue, command: KvCommand<'_>, value: DmaBuf) -> Status {
    queue.submit_kv(command, Some(value), 7).expect("submit");
    crate::rig::next(queue).status
}

pub(crate) fn wrong_rules_are_refused_in_words(transport: Transport) {
    let it = Blocks::new(transport(small()));
    let text = "{\"match\":\n{\"opcodes\":1},\"act\":{\"drop\":true}}";
    let done = send(&it.controller, FaultSend::Add { bytes: text.len() as u32, passing: false }, text);
    assert_eq!(done.status.kind(), Status::INVALID_FIELD);
    let words = receive(&it.controller, FaultText::LastError);
    assert!(words.starts_with("line 2, column 10: match: `opcodes` is not known here"), "{words}");
    assert_eq!(send(&it.controller, FaultSend::Clear(9), "").status.kind(), Status::INVALID_FIELD);
    assert_eq!(receive(&it.controller, FaultText::LastError), "there is no rule 9");
    assert_eq!(send(&it.controller, FaultSend::Unknown(9), "").status.kind(), Status::INVALID_FIELD);
    assert_eq!(list(&it.controller), "[]");
}

pub(crate) fn a_device_without_the_fault_commands_knows_none(transport: Transport) {
    let it = Blocks::new(transport(SsdConfig { fault_commands: false, ..small() }));
    let done = send(&it.controller, FaultSend::ClearAll, "");
    assert_eq!(done.status.kind(), Status::INVALID_OPCODE);
}

pub(crate) fn the_same_seed_gives_the_same_faults(transport: Transport) {
    let found = [7, 7, 8].map(|seed| {
        let (rig, options) = (transport(small()), QueueOptions::default());
        let (controller, mut queue, namespace) = block_queue(&rig, &options);
        let text = format!(
            r#"{{"match":{{"opcode":"flush","probability":0.1,"seed":{seed}}},"act":{{"status":"0x280"}}}}"#
        );
        add(&controller, &text);
        (0..200).map(|_| run(&mut queue, namespace.flush(), None).status.is_success()).collect::<Vec<_>>()
    });
    assert_eq!(found[0], found[1]);
    assert_ne!(found[0], found[2]);
    assert!((5..40).contains(&found[0].iter().filter(|good| !**good).count()));
}
