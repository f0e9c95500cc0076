//! What a command sends over a network is what it puts into host memory at a bus, byte for byte, however much
//! the host asks for and has room for.

mod host;
mod network;

use std::sync::Arc;
use std::time::Duration;

use host::blocks::{READ, WRITE, access, pattern};
use host::pairs::{
    ITERATE_READ, ITERATE_REQUEST, LIST, RETRIEVE, STORE, VENDOR_RETRIEVE, samsung, standard, vendor,
};
use host::placement::{GET_FEATURES, GET_LOG, IO_MANAGEMENT_RECEIVE, fdp_config};
use host::{DATA, Host, MEDIA_BYTES, sqe};
use network::Line;
use unvme_spec::{Sqe, Status};
use unvme_ssd::fabrics::Begun;
use unvme_ssd::{Ssd, SsdConfig, parse_faults};

const IDENTIFY: u8 = 0x06;
const DIRECTIVE_RECEIVE: u8 = 0x1a;
const FAULT_RECEIVE: u8 = 0xc2;
/// More than any command here moves.
const WINDOW: usize = 256 << 10;

/// Two devices that are the same, one at a bus and one behind a network.
struct Twins {
    host: Host,
    ssd: Arc<Ssd>,
    admin: Line,
    io: Line,
}

impl Twins {
    fn new(config: &SsdConfig) -> Self {
        let mut host = Host::attach(network::device(config.clone()));
        host.enable_all();
        host.create_queue_pair(1, 64);
        let ssd = network::device(config.clone());
        let target = network::target(Arc::clone(&ssd));
        let mut admin = Line::admin(&target);
        let io = Line::io(&target, &mut admin, 1, 31);
        Self { host, ssd, admin, io }
    }

    /// An I/O command that takes data, or none, to both.
    fn send(&mut self, sqe: Sqe, data: &[u8]) {
        self.host.memory.write(DATA, data);
        let mut here = sqe;
        self.host.set_prps(&mut here, DATA, data.len());
        let here = self.host.io(here).expect("a command at the bus");
        assert_eq!(self.io.transfer(sqe, data).result(), here);
    }

    fn add_faults(&self, rules: &str) {
        for ssd in [&self.host.ssd, &self.ssd] {
            ssd.add_passing_faults(parse_faults(rules).expect("rules")).expect("room for them");
        }
    }

    /// A command that gets data, which `sent` bytes go over the network for.
    fn check(&mut self, name: &str, qid: u16, sqe: Sqe, room: usize, sent: usize) {
        self.check_padded(name, qid, sqe, room, (sent, sent), Status::SUCCESS);
    }

    /// The same, of which `moved` bytes are written at the bus: PRPs do not say how much room there is, and
    /// what is behind the end of a page is left alone. Over a network it is zeroes.
    fn check_padded(
        &mut self,
        name: &str,
        qid: u16,
        sqe: Sqe,
        room: usize,
        (sent, moved): (usize, usize),
        status: Status,
    ) {
        let mut here = sqe;
        self.host.memory.fill(DATA, WINDOW, 0xee);
        // PRP2 is a page when there are two of them, and a list when there are more.
        self.host.set_prps(&mut here, DATA, if moved > 4096 { moved } else { room.max(4096) });
        let here = self.host.execute(qid, here);
        let written = self.host.bytes(DATA, WINDOW);
        let line = if qid == 0 { &mut self.admin } else { &mut self.io };
        let there = line.receive(sqe, room as u32);
        assert_eq!((there.status(), there.data.len()), (status, sent), "{name}");
        assert_eq!((here.status().kind(), here.result()), (status, there.cqe.result()), "{name}");
        let same = sent.min(moved);
        let other = (0..same).find(|&at| written[at] != there.data[at]);
        assert_eq!(other, None, "{name}: the first byte that is not as at the bus");
        assert!(written[moved..].iter().all(|&byte| byte == 0xee), "{name}: more than {moved} at the bus");
        assert!(there.data[same..].iter().all(|&byte| byte == 0), "{name}: no zeroes behind the end");
    }
}

/// Get Log Page of `bytes` from `offset` on.
fn log(lid: u32, offset: u32, bytes: u32) -> Sqe {
    Sqe { cdw10: (bytes / 4 - 1) << 16 | lid, cdw12: offset, ..sqe(GET_LOG, 0) }
}

#[test]
fn admin_commands_send_what_was_asked_for_with_zeroes_behind_the_end_of_a_page() {
    let mut twins = Twins::new(&fdp_config(0));
    let ok = Status::SUCCESS;
    // The list of namespaces is the same on both sides.
    let identify = Sqe { cdw10: 2, ..sqe(IDENTIFY, 0) };
    twins.check("Identify", 0, identify, 4096, 4096);
    twins.check("Identify, more room", 0, identify, 12_288, 4096);
    // The Firmware Slot log has 512 bytes.
    for (name, offset, asked, room, sent, moved) in [
        ("a page", 0, 512, 512, 512, 512),
        ("its start", 0, 20, 20, 20, 20),
        ("its middle", 8, 100, 100, 100, 100),
        ("its middle, more room", 8, 100, 4096, 100, 100),
        ("its end", 500, 12, 12, 12, 12),
        ("beyond its end", 500, 4096, 4096, 4096, 12),
        ("beyond its end, little room", 500, 4096, 36, 36, 12),
        ("beyond its end, more room", 8, 4096, 8192, 4096, 504),
        ("behind its end", 512, 64, 64, 64, 0),
    ] {
        twins.check_padded(name, 0, log(3, offset, asked), room, (sent, moved), ok);
    }
    let directives = |bytes: u32| Sqe { cdw10: bytes / 4 - 1, cdw11: 1, ..sqe(DIRECTIVE_RECEIVE, 1) };
    twins.check("directives", 0, directives(4096), 4096, 4096);
    twins.check("some directives", 0, directives(36), 36, 36);
    twins.check("some directives, more room", 0, directives(36), 512, 36);
    twins.check_padded("directives, much room", 0, directives(8192), 8192, (8192, 4096), ok);
    // Get Features does not say how much it wants: all of its buffer.
    let feature = |fid: u32| Sqe { cdw10: fid, ..sqe(GET_FEATURES, 1) };
    twins.check("host behavior", 0, feature(0x16), 512, 512);
    twins.check_padded("host behavior, more room", 0, feature(0x16), 1000, (1000, 512), ok);
    twins.check_padded("events, more room", 0, feature(0x1e), 510, (510, 12), ok);
    twins.check_padded("number of queues, room for nothing", 0, feature(7), 64, (64, 0), ok);
    twins.check("number of queues", 0, feature(7), 0, 0);
    let text = |bytes: u32| Sqe { cdw10: bytes, ..sqe(FAULT_RECEIVE, 0) };
    twins.check("no rules", 0, text(2), 2, 2);
    twins.check_padded("no rules, more room", 0, text(100), 100, (100, 2), ok);
    twins.add_faults(r#"{"match": {"opcode": "flush", "namespace": 77}, "act": {"drop": true}}"#);
    twins.check("a part of the rules", 0, text(21), 21, 21);
    // The lie that a command has succeeded: it moves what it has moved.
    twins.add_faults(
        r#"[{"match": {"opcode": "identify", "count": 1}, "act": {"status": "0", "executed": true}},
            {"match": {"opcode": "identify", "after": 1, "count": 1}, "act": {"status": "0"}}]"#,
    );
    twins.check("Identify, answered for", 0, identify, 4096, 4096);
    twins.check("Identify that is left out", 0, identify, 4096, 0);
    // What fails sends nothing.
    twins.check_padded("no such page", 0, log(0xbf, 0, 64), 64, (0, 0), Status::INVALID_LOG_PAGE);
    twins.check_padded(
        "no such data",
        0,
        Sqe { cdw10: 0x7f, ..identify },
        4096,
        (0, 0),
        Status::INVALID_FIELD,
    );
}

#[test]
fn an_admin_command_without_room_for_its_page_fails() {
    let mut admin = Twins::new(&fdp_config(0)).admin;
    let identify = Sqe { cdw10: 2, ..sqe(IDENTIFY, 0) };
    for (sqe, room) in [(identify, 4092), (log(3, 0, 512), 508), (log(3, 500, 4096), 8), (identify, 0)] {
        let answer = admin.receive(sqe, room);
        assert!(!answer.cqe.status().is_success() && answer.data.is_empty(), "{answer:?}");
    }
}

#[test]
fn commands_for_blocks_send_their_blocks() {
    let mut twins = Twins::new(&fdp_config(0));
    let ok = Status::SUCCESS;
    twins.send(access(WRITE, 7, 33), &pattern(3, 33 * 4096));
    twins.check("blocks", 1, access(READ, 7, 5), 5 * 4096, 5 * 4096);
    twins.check("many blocks", 1, access(READ, 7, 33), 33 * 4096, 33 * 4096);
    twins.check("blocks, more room", 1, access(READ, 8, 3), 9 * 4096, 3 * 4096);
    let status = |operation: u32, bytes: u32| Sqe {
        cdw10: operation,
        cdw11: bytes / 4 - 1,
        ..sqe(IO_MANAGEMENT_RECEIVE, 1)
    };
    for bytes in [4, 20, 48, 272, 8192] {
        twins.check("handles", 1, status(1, bytes), bytes as usize, bytes as usize);
        twins.check("handles, more room", 1, status(1, bytes), 12_288, bytes as usize);
    }
    twins.check_padded("no action", 1, status(0, 100), 100, (100, 0), ok);
    twins.check_padded("a reserved operation", 1, status(2, 100), 100, (0, 0), Status::INVALID_FIELD);
    let beyond = access(READ, MEDIA_BYTES, 1);
    twins.check_padded("beyond the end", 1, beyond, 4096, (0, 0), Status::LBA_OUT_OF_RANGE);
    // A read that is said to have failed has put its data into host memory at a bus.
    twins.add_faults(
        r#"[{"match": {"opcode": "read", "lba": "8"}, "act": {"status": "0"}},
            {"match": {"opcode": "read", "lba": "9"}, "act": {"status": "0x281", "executed": true}}]"#,
    );
    twins.check("a read that is left out", 1, access(READ, 8, 1), 4096, 0);
    let failed = Status::new(2, 0x81);
    twins.check_padded("a read said to have failed", 1, access(READ, 9, 1), 4096, (0, 4096), failed);
    twins.check("a read as before", 1, access(READ, 7, 1), 4096, 4096);
}

#[test]
fn commands_for_pairs_send_what_there_is_of_a_value_and_of_a_list() {
    let mut twins = Twins::new(&host::pairs::kv_config());
    let value = pattern(5, 1401);
    for key in [&b"one"[..], b"a key of 16 byte", b"key twelve 4"] {
        twins.send(Sqe { cdw10: value.len() as u32, ..standard(STORE, key) }, &value);
    }
    let retrieve = |bytes: u32| Sqe { cdw10: bytes, ..standard(RETRIEVE, b"key twelve 4") };
    for (asked, room, sent) in
        [(1401, 1401, 1401), (8000, 8000, 1401), (1000, 4096, 1000), (3, 3, 3), (2000, 2000, 1401)]
    {
        twins.check("a value", 1, retrieve(asked), room, sent);
    }
    twins.check("the size of a value", 1, retrieve(0), 64, 0);
    let list = |bytes: u32| Sqe { cdw10: bytes, ..standard(LIST, b"") };
    // A count of 4 bytes; each key has 2 bytes of length and is filled up to 4: 20, 16 and 8 bytes.
    for (asked, room, sent) in
        [(4096, 4096, 48), (4096, 12_288, 48), (47, 47, 40), (48, 48, 48), (23, 23, 4), (5, 4096, 4)]
    {
        twins.check("a list", 1, list(asked), room, sent);
    }
    let missing = Sqe { cdw10: 4096, ..standard(RETRIEVE, b"none") };
    twins.check_padded("no value", 1, missing, 4096, (0, 0), Status::KEY_NOT_FOUND);
    let pair = samsung(&twins.host, VENDOR_RETRIEVE, 0, b"key twelve 4");
    let vendors = |offset: u64, bytes: u32| Sqe { cdw10: bytes / 4, mptr: offset, ..pair };
    for (offset, asked, room, sent) in [
        (0, 1404, 1404, 1401),
        (0, 8000, 8000, 1401),
        (0, 1000, 4096, 1000),
        (512, 4096, 4096, 889),
        (1024, 4096, 4096, 377),
        (1024, 100, 100, 100),
    ] {
        twins.check("the vendor's value", 1, vendors(offset, asked), room, sent);
    }
    let size = Sqe { cdw11: pair.cdw11 | 2 << 8, ..vendors(0, 4096) };
    twins.check("the vendor's size of a value", 1, size, 4096, 0);
    twins.check_padded("beyond a value", 1, vendors(1536, 100), 100, (0, 0), vendor(0x02));
    // An iterator over the keys: its last records come with the status that says so.
    let open = Sqe { cdw11: 0x0100 | 0x0400, ..sqe(ITERATE_REQUEST, 1) };
    twins.send(open, &[]);
    let read = Sqe { cdw10: 8192, cdw11: 1, ..sqe(ITERATE_READ, 1) };
    twins.check_padded("an iterator", 1, read, 32_768, (48, 48), vendor(0x93));
    twins.check_padded("an iterator at its end", 1, read, 32_768, (0, 0), vendor(0x93));
}

#[test]
fn what_a_command_has_sent_is_known_when_its_answer_is_late_or_it_is_aborted() {
    let mut twins = Twins::new(&fdp_config(0));
    let data = pattern(9, 3 * 4096);
    twins.send(access(WRITE, 0, 3), &data);
    twins.add_faults(r#"{"match": {"opcode": "read"}, "act": {"delay": "5ms"}}"#);
    let mut begin = |blocks: u32| {
        let (cid, begun) = twins.io.begin(access(READ, 0, blocks), network::TRANSPORT, 16_384);
        assert!(matches!(begun, Begun::Run(_)), "{begun:?}");
        twins.io.poll();
        cid
    };
    let (three, aborted, two) = (begin(3), begin(1), begin(2));
    assert_eq!(twins.admin.plain(Sqe { cdw10: u32::from(aborted) << 16 | 1, ..sqe(0x08, 0) }).result(), 0);
    let answer = twins.io.wait_for(aborted);
    assert_eq!((answer.status(), answer.data.len()), (Status::ABORT_REQUESTED, 0));
    twins.io.clock.advance(Duration::from_millis(5));
    assert!(twins.io.wait_for(two).ok() == data[..8192]);
    assert!(twins.io.wait_for(three).ok() == data);
}
