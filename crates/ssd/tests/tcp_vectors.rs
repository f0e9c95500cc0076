//! What the Linux kernel's host sends (`tests/vectors`): it gets from this device the PDUs that it got from
//! the kernel's target.

mod wire;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use unvme_bus::Clock;
use unvme_ssd::fabrics::{Access, Target};
use unvme_ssd::tcp::{Ending, Limits};
use wire::{Pdu, Wire, pdu, target};

/// The subsystem of the captures.
const NQN: &str = "nqn.2024-01.io.example:vectors";

/// Lines of a capture: connection, whether the host sends it, the PDU.
fn capture(name: &str) -> Vec<(u32, bool, Pdu)> {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "..", "tests", "vectors", name].iter().collect();
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let [connection, direction, _, bytes] = words[..] else { panic!("{line}") };
            let bytes = (0..bytes.len()).step_by(2).map(|at| u8::from_str_radix(&bytes[at..at + 2], 16));
            let bytes = bytes.collect::<Result<_, _>>().expect("hexadecimal digits");
            (connection.parse().expect("a number"), direction == ">", Pdu(bytes))
        })
        .collect()
}

/// What of a PDU does not depend on the device behind it: type, flags, HLEN, PDO, and PLEN.
fn shape(pdu: &Pdu) -> (u8, u8, u8, u8, u32) {
    (pdu.0[0], pdu.0[1], pdu.0[2], pdu.0[3], pdu.u32(4))
}

struct Replay {
    target: Arc<Target>,
    clock: Clock,
    wires: BTreeMap<u32, Wire>,
    /// Our transfer tag of each command.
    tags: BTreeMap<u16, u16>,
    /// The kernel's host talks to a controller of this many connections with the identifier it was given.
    cntlid: u16,
}

impl Replay {
    /// Sends a PDU of the host; what is answered.
    fn send(&mut self, connection: u32, pdu: &Pdu) -> Vec<Pdu> {
        let mut bytes = pdu.0.clone();
        if pdu.kind() == 6 {
            // The tag is what the other target has chosen.
            let tag = self.tags[&pdu.cid()];
            bytes[10..12].copy_from_slice(&tag.to_le_bytes());
            if pdu.flags() & 1 != 0 {
                let digest = pdu::crc32c(&bytes[..24]);
                bytes[24..28].copy_from_slice(&digest.to_le_bytes());
            }
        }
        let is_connect = pdu.kind() == 4 && pdu.0[8] == 0x7f && pdu.0[12] == 1;
        if is_connect && connection > 1 {
            // So is the controller.
            let data = usize::from(bytes[3]);
            bytes[data + 16..data + 18].copy_from_slice(&self.cntlid.to_le_bytes());
            if pdu.flags() & 2 != 0 {
                let digest = pdu::crc32c(&bytes[data..data + 1024]);
                bytes[data + 1024..].copy_from_slice(&digest.to_le_bytes());
            }
        }
        let wire = self.wires.entry(connection).or_insert_with(|| {
            // The kernel's target announces MAXH2CDATA 400000h.
            let limits = Limits { h2c_bytes_max: 0x40_0000, ..Limits::default() };
            Wire::on(&self.target, limits, self.clock.clone())
        });
        assert_eq!(wire.feed(&bytes), bytes.len(), "{pdu:?}: {:?}", wire.ending());
        let mut answers = Vec::new();
        while let Some(answer) = wire.next() {
            if answer.kind() == 9 {
                self.tags.insert(answer.cid(), answer.u16(10));
            }
            if is_connect && connection == 1 {
                self.cntlid = answer.cqe_u32(0) as u16;
            }
            answers.push(answer);
        }
        answers
    }
}

/// Replays a capture, and compares what each command and each connection gets.
fn replay(name: &str) {
    let target = target();
    let device = wire::device();
    target.add_subsystem(NQN, device, Access::Any).expect("a subsystem");
    let lines = capture(name);
    let mut replay =
        Replay { target, clock: Clock::manual(), wires: BTreeMap::new(), tags: BTreeMap::new(), cntlid: 0 };
    let mut ours: BTreeMap<(u32, u16), Vec<Pdu>> = BTreeMap::new();
    let mut theirs: BTreeMap<(u32, u16), Vec<Pdu>> = BTreeMap::new();
    let mut compared = BTreeMap::new();
    for (connection, is_host, pdu) in &lines {
        let key = |pdu: &Pdu| (*connection, if pdu.kind() == 1 { 0xffff } else { pdu.cid() });
        if *is_host {
            // A command identifier that comes again: what it got before is complete.
            for answer in replay.send(*connection, pdu) {
                ours.entry(key(&answer)).or_default().push(answer);
            }
            continue;
        }
        theirs.entry(key(pdu)).or_default().push(pdu.clone());
        let is_last = matches!(pdu.kind(), 1 | 5) || pdu.flags() & 8 != 0;
        if !is_last {
            continue;
        }
        let expected = theirs.remove(&key(pdu)).expect("what has just come");
        let got = ours.remove(&key(pdu)).unwrap_or_else(|| panic!("an answer like {pdu:?}"));
        let shapes = |pdus: &[Pdu]| pdus.iter().map(shape).collect::<Vec<_>>();
        assert_eq!(
            shapes(&got),
            shapes(&expected),
            "connection {connection}: {got:?} instead of {expected:?}"
        );
        for pdu in &got {
            if pdu.flags() & 1 != 0 {
                pdu.check_header_digest();
            }
            if pdu.kind() == 7 {
                pdu.payload();
            }
        }
        *compared.entry(pdu.kind()).or_insert(0) += got.len();
    }
    assert!(compared[&5] > 10, "{compared:?}");
    for (connection, wire) in &mut replay.wires {
        assert_eq!(wire.ending(), None, "connection {connection}");
        wire.hang_up();
        assert_eq!(wire.ending(), Some(Ending::Closed));
    }
}

#[test]
fn with_digests_the_kernels_host_gets_what_the_kernels_target_says() {
    replay("tcp-digests.hex");
}

#[test]
fn without_flow_control_the_kernels_host_gets_success_with_its_data() {
    replay("tcp-no-flow-control.hex");
}
