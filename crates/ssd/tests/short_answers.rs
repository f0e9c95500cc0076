//! Answers that are shorter than what the host asks for. What PRP2 means follows from the transfer length
//! that the command states (Base 4.1.1), so a short answer must not be written over the host's PRP list.
//! Around every page of the buffer, and around the list, are pages that must stay as they are.

mod host;

use std::sync::atomic::Ordering;

use host::pairs::{LIST, RETRIEVE, VENDOR_RETRIEVE, kv_config, samsung, standard};
use host::placement::{GET_FEATURES, GET_LOG, IO_MANAGEMENT_RECEIVE, device, fdp_config};
use host::{BASE, DATA, Host, sqe};
use unvme_spec::Sqe;
use unvme_ssd::parse_faults;

const IDENTIFY: u8 = 0x06;
const DIRECTIVE_RECEIVE: u8 = 0x1a;
const FAULT_RECEIVE: u8 = 0xc2;
const PAGE: usize = 4096;
/// Bytes of memory that each command may write to, or must leave alone.
const ARENA_BYTES: usize = 64 * PAGE;
/// Two pages for a list that goes on in another page.
const LIST_PAGES: [usize; 2] = [DATA + 61 * PAGE, DATA + 59 * PAGE];
const UNTOUCHED: u8 = 0xee;
/// Transfer lengths of one page and less, of two, and of more.
const LENGTHS: [usize; 8] = [4, 512, 4096, 4100, 8192, 8196, 12_288, 65_536];
/// Where in its page a buffer starts.
const STARTS: [usize; 4] = [0, 4, 2048, 4092];
/// Where in its page a list starts: at its beginning, and with one, two and three entries left.
const LIST_STARTS: [usize; 4] = [0, 4088, 4080, 4072];

/// A buffer in scattered pages.
struct Buffer {
    /// Offset and length of each page's part.
    parts: Vec<(usize, usize)>,
}

impl Buffer {
    /// Pages in descending order with a page between any two, the first of which starts `within` bytes into
    /// its page. All of the arena is filled.
    fn new(host: &Host, bytes: usize, within: usize) -> Self {
        host.memory.fill(DATA, ARENA_BYTES, UNTOUCHED);
        let mut parts = Vec::new();
        let (mut left, mut start) = (bytes, within);
        let mut page = 55;
        while left > 0 {
            let length = left.min(PAGE - start);
            parts.push((DATA + page * PAGE + start, length));
            left -= length;
            (start, page) = (0, page - 2);
        }
        Self { parts }
    }

    /// PRP1 and PRP2. A list starts `list_start` bytes into its page.
    fn prps(&self, host: &Host, list_start: usize) -> [u64; 2] {
        let address = |at: usize| BASE + at as u64;
        let (first, rest) = self.parts.split_first().expect("a buffer");
        let second = match rest {
            // Reserved: not the device's to use.
            [] => address(DATA),
            [(at, _)] => address(*at),
            more => {
                let (mut at, mut left) = (LIST_PAGES[0] + list_start, more.len());
                for (part, _) in more {
                    if at % PAGE == PAGE - 8 && left > 1 {
                        host.memory.store_u64(at, address(LIST_PAGES[1]), Ordering::Relaxed);
                        at = LIST_PAGES[1];
                    }
                    host.memory.store_u64(at, address(*part), Ordering::Relaxed);
                    (at, left) = (at + 8, left - 1);
                }
                address(LIST_PAGES[0] + list_start)
            }
        };
        [address(first.0), second]
    }

    /// A last segment with a descriptor for each part, and one more behind the buffer.
    fn sgl(&self, host: &Host) -> [u64; 2] {
        let parts = self.parts.iter().chain([&(DATA, 64)]);
        let mut count = 0;
        for (index, &(at, length)) in parts.enumerate() {
            host.memory.write_words(LIST_PAGES[0] + index * 16, [BASE + at as u64, length as u64]);
            count += 16;
        }
        [BASE + LIST_PAGES[0] as u64, count | 0x30 << 56]
    }

    /// The buffer's bytes out of the arena's.
    fn gather(&self, arena: &[u8]) -> Vec<u8> {
        self.parts.iter().flat_map(|&(at, length)| arena[at - DATA..][..length].to_vec()).collect()
    }

    /// Puts the first bytes of the buffer where they are in the arena.
    fn scatter(&self, arena: &mut [u8], data: &[u8]) {
        let mut rest = data;
        for &(at, length) in &self.parts {
            let (now, later) = rest.split_at(length.min(rest.len()));
            arena[at - DATA..][..now.len()].copy_from_slice(now);
            rest = later;
        }
    }
}

/// Executes a command on a queue pair; returns what the arena holds afterwards.
fn run(host: &mut Host, qid: u16, sqe: Sqe) -> Vec<u8> {
    let cqe = host.execute(qid, sqe);
    let status = cqe.status();
    assert!(status.is_success(), "{sqe:x?}: {status:?}");
    host.bytes(DATA, ARENA_BYTES)
}

/// Checks that a command with a transfer length of `asked` bytes writes `answer` and nothing else, whatever
/// its buffer is like.
fn check(host: &mut Host, name: &str, qid: u16, sqe: Sqe, asked: usize, answer: &[u8]) {
    let has_sgls = qid > 0 && sqe.opcode < 0x80;
    for within in STARTS {
        for list_start in LIST_STARTS {
            let buffer = Buffer::new(host, asked, within);
            if buffer.parts.len() < 3 && list_start > 0 {
                continue;
            }
            let mut command = Sqe { dptr: buffer.prps(host, list_start), ..sqe };
            let what = format!("{name}: {asked} bytes at {within}, a list at {list_start}");
            check_one(host, &what, qid, command, &buffer, answer);
            if has_sgls && list_start == 0 {
                let buffer = Buffer::new(host, asked, within);
                (command.dptr, command.flags) = (buffer.sgl(host), 0x40);
                check_one(host, &format!("{name}: SGL, {asked} bytes"), qid, command, &buffer, answer);
            }
        }
    }
}

fn check_one(host: &mut Host, what: &str, qid: u16, sqe: Sqe, buffer: &Buffer, answer: &[u8]) {
    let mut expected = host.bytes(DATA, ARENA_BYTES);
    let got = run(host, qid, sqe);
    buffer.scatter(&mut expected, answer);
    assert!(buffer.gather(&got) == buffer.gather(&expected), "{what}: the buffer");
    let wrong = got.chunks(PAGE).zip(expected.chunks(PAGE)).position(|(got, expected)| got != expected);
    assert_eq!(wrong, None, "{what}: a page that is no buffer");
}

/// The same for transfer lengths of all kinds. `with_length` puts the length in an entry. The answer is what
/// a buffer in one piece that begins with a page gets, of exactly its length.
fn check_lengths(host: &mut Host, name: &str, qid: u16, whole: usize, with_length: impl Fn(usize) -> Sqe) {
    let mut sqe = with_length(whole);
    host.memory.fill(DATA, ARENA_BYTES, UNTOUCHED);
    host.set_prps(&mut sqe, DATA, whole);
    let arena = run(host, qid, sqe);
    let (reference, behind) = arena.split_at(whole);
    assert!(behind.iter().all(|&byte| byte == UNTOUCHED), "{name}: behind {whole} bytes");
    for asked in LENGTHS {
        check(host, name, qid, with_length(asked), asked, &reference[..whole.min(asked)]);
    }
}

fn get_log(lid: u32, csi: u32, bytes: usize) -> Sqe {
    Sqe { cdw10: (bytes as u32 / 4 - 1) << 16 | lid, cdw14: csi << 24, ..sqe(GET_LOG, 0) }
}

#[test]
fn log_pages_and_directives_that_are_shorter_than_their_buffers_leave_the_list_alone() {
    let mut host = Host::attach(device(fdp_config(0)));
    host.enable();
    for (name, lid, whole) in [
        ("supported log pages", 0, 1024),
        ("errors", 1, 4096),
        ("firmware slots", 3, 512),
        ("changed namespaces", 4, 4096),
        ("commands", 5, 4096),
        ("features", 0x12, 1024),
    ] {
        check_lengths(&mut host, name, 0, whole, |bytes| get_log(lid, 0, bytes));
    }
    check_lengths(&mut host, "the end of a log page", 0, 504, |bytes| Sqe {
        cdw12: 8,
        ..get_log(3, 0, bytes)
    });
    let directives =
        |bytes: usize| Sqe { cdw10: bytes as u32 / 4 - 1, cdw11: 1, ..sqe(DIRECTIVE_RECEIVE, 1) };
    check_lengths(&mut host, "directives", 0, 4096, directives);
}

#[test]
fn a_list_of_rules_that_is_shorter_than_its_buffer_leaves_the_list_alone() {
    let mut host = Host::attach(device(fdp_config(0)));
    host.enable();
    // Lists of up to a page, up to two pages, and more.
    for rules in [1, 40, 60] {
        let rule = r#"{"match": {"opcode": "flush", "namespace": 77}, "act": {"drop": true}}"#;
        host.ssd.clear_faults(None);
        let text = format!("[{}]", vec![rule; rules].join(","));
        host.ssd.add_passing_faults(parse_faults(&text).expect("rules")).expect("space for them");
        let whole = host.admin(sqe(FAULT_RECEIVE, 0)).expect("a length") as usize;
        let name = format!("{rules} rules of {whole} bytes");
        check_lengths(&mut host, &name, 0, whole, |bytes| Sqe {
            cdw10: bytes as u32,
            ..sqe(FAULT_RECEIVE, 0)
        });
    }
}

#[test]
fn answers_of_a_fixed_length_fill_buffers_of_that_length_only() {
    let mut host = Host::attach(device(fdp_config(0)));
    host.enable();
    for (name, command, bytes) in [
        ("Identify Controller", Sqe { cdw10: 1, ..sqe(IDENTIFY, 0) }, 4096),
        ("Identify Namespace", Sqe { cdw10: 0, ..sqe(IDENTIFY, 1) }, 4096),
        ("the list of namespaces", Sqe { cdw10: 2, ..sqe(IDENTIFY, 0) }, 4096),
        ("Timestamp", Sqe { cdw10: 0x0e, ..sqe(GET_FEATURES, 0) }, 8),
        ("Host Behavior Support", Sqe { cdw10: 0x16, ..sqe(GET_FEATURES, 0) }, 512),
        ("FDP Events", Sqe { cdw10: 0x1e, ..sqe(GET_FEATURES, 1) }, 12),
    ] {
        let reference = host.admin_in(command, bytes).expect(name);
        check(&mut host, name, 0, command, bytes, &reference);
    }
}

#[test]
fn io_commands_with_short_answers_leave_lists_and_sgls_alone() {
    let mut host = host::placement::host_at(device(fdp_config(0)));
    // Reclaim Unit Handle Status is filled up with zeroes to the length asked for.
    for asked in LENGTHS {
        let command = Sqe { cdw10: 1, cdw11: asked as u32 / 4 - 1, ..sqe(IO_MANAGEMENT_RECEIVE, 1) };
        let mut whole = command;
        host.set_prps(&mut whole, DATA, asked);
        let answer = run(&mut host, 1, whole)[..asked].to_vec();
        check(&mut host, "handles", 1, command, asked, &answer);
        let nothing = Sqe { cdw10: 0, ..command };
        check(&mut host, "no action", 1, nothing, asked, &[]);
    }
}

#[test]
fn pairs_that_are_shorter_than_their_buffers_leave_lists_and_sgls_alone() {
    let mut host = Host::attach(host::device(kv_config()));
    host.enable_all();
    host.create_queue_pair(1, 64);
    for (index, length) in [1, 500, 4097, 5000, 8192, 9000].into_iter().enumerate() {
        let key = format!("key {index}");
        let value = host::blocks::pattern(index as u8, length);
        host.store(key.as_bytes(), &value).expect("a pair");
        for asked in LENGTHS {
            let answer = &value[..length.min(asked)];
            let command = Sqe { cdw10: asked as u32, ..standard(RETRIEVE, key.as_bytes()) };
            check(&mut host, "Retrieve", 1, command, asked, answer);
        }
    }
    for index in 0..400 {
        host.store(format!("a key {index:05}").as_bytes(), b"value").expect("a pair");
    }
    let list = |bytes: usize| Sqe { cdw10: bytes as u32, ..standard(LIST, b"") };
    let mut whole = list(32_768);
    host.memory.fill(DATA, ARENA_BYTES, UNTOUCHED);
    host.set_prps(&mut whole, DATA, 32_768);
    let answer = run(&mut host, 1, whole);
    let used = ARENA_BYTES - answer.iter().rev().take_while(|&&byte| byte == UNTOUCHED).count();
    assert!((5000..8000).contains(&used), "{used} bytes of keys");
    for asked in [8192, 8196, 12_288, 65_536] {
        check(&mut host, "List", 1, list(asked), asked, &answer[..used]);
    }
}

#[test]
fn the_vendors_commands_with_short_answers_leave_lists_alone() {
    let mut host = Host::attach(host::device(kv_config()));
    host.enable_all();
    host.create_queue_pair(1, 64);
    for (index, length) in [5000, 9000].into_iter().enumerate() {
        let key = format!("vendor {index}");
        let value = host::blocks::pattern(index as u8, length);
        host.store(key.as_bytes(), &value).expect("a pair");
        for asked in LENGTHS {
            let command =
                Sqe { cdw10: asked as u32 / 4, ..samsung(&host, VENDOR_RETRIEVE, 0, key.as_bytes()) };
            check(&mut host, "the vendor's Retrieve", 1, command, asked, &value[..length.min(asked)]);
        }
    }
}
