//! A host on NVMe/TCP that sends anything: PDUs that are right, PDUs with wrong bytes, bytes that are none,
//! in any portions; that does not read, that waits, that goes.
//!
//! The controller never panics, says nothing but whole PDUs of its own types, nothing after a Terminate
//! Request, ends every connection that does not go on, keeps no memory of those that have ended, and another
//! connection of the same controller works all the while.
//!
//! Input: a byte for what was agreed on, then steps, each a byte that says what and the step's own bytes; see
//! `Run::step`.
#![no_main]

use std::sync::Arc;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use unvme_ssd::fabrics::{Target, TargetOptions};
use unvme_ssd::tcp::Limits;

#[path = "../rig/mod.rs"]
mod rig;
#[path = "../../crates/ssd/tests/wire/mod.rs"]
mod wire;

use rig::Input;
use wire::{Sqe, Wire, Wishes, pdu, would_block};

/// An eighth is for what queues are made of: room for two connections. Commands wait for the rest.
const MEMORY_BYTES: u64 = 4 << 20;
/// What one command has at most: with all of a queue, more than there is.
const DATA_BYTES_MAX: u32 = 1 << 20;
const ENTRIES: u16 = 8;
/// What a connection may answer that is never read: it stops listening long before.
const UNREAD_BYTES_MAX: usize = 1 << 20;
const OPCODES: [u8; 12] = [0x00, 0x01, 0x01, 0x02, 0x02, 0x05, 0x08, 0x09, 0x7f, 0x06, 0x0c, 0x18];

struct Run<'a> {
    input: Input<'a>,
    target: Arc<Target>,
    limits: Limits,
    admin: Wire,
    /// The connection that is tried: I/O queue 1, an admin queue, or none yet.
    wire: Wire,
    /// R2Ts that came and are not answered: command, tag, next byte, end.
    owed: Vec<(u16, u16, u32, u32)>,
    /// The host does not read.
    is_deaf: bool,
    is_terminated: bool,
}

impl Run<'_> {
    fn step(&mut self) {
        match self.input.u8() % 12 {
            0 => {
                let most = usize::from(self.input.u16()) & 0xfff;
                let bytes = self.input.take(most).to_vec();
                self.send(&bytes);
            }
            1 => {
                let wishes = Wishes { hpda_z: self.input.u8() & 0x3f, ..self.wire.wishes };
                self.send_changed(pdu::ic_req(&wishes).to_vec());
            }
            2..=5 => self.capsule(),
            6 | 7 => self.data(),
            8 => {
                self.wire.wait(Duration::from_secs(u64::from(self.input.u8())));
                self.hear();
            }
            9 => self.is_deaf = !self.is_deaf,
            10 => self.wire.chunk = 1 << (self.input.u8() % 20),
            _ => self.begin_again(),
        }
        if self.wire.ending().is_some() {
            self.begin_again();
        }
    }

    /// A command that is nearly right.
    fn capsule(&mut self) {
        let opcode = OPCODES[usize::from(self.input.u8()) % OPCODES.len()];
        let bytes = self.input.word() % DATA_BYTES_MAX;
        let mut sqe = Sqe::new(opcode).nsid(1).cid(u16::from(self.input.u8()));
        for dword in 10..13 {
            sqe = sqe.dword(dword, self.input.word());
        }
        let how = self.input.u8();
        sqe = if how & 1 == 0 { sqe.in_capsule(bytes) } else { sqe.transported(bytes) };
        let data = match how & 6 {
            0 if how & 1 == 0 => vec![how; (bytes as usize).min(8192)],
            2 => vec![how; usize::from(self.input.u8())],
            _ => Vec::new(),
        };
        if how & 0x18 == 0 {
            sqe.0[usize::from(self.input.u8()) % 64] = self.input.u8();
        }
        let capsule = self.wire.capsule(&sqe, &data);
        self.send_changed(capsule);
    }

    /// Data that was asked for, or nearly.
    fn data(&mut self) {
        let how = self.input.u8();
        let (cid, ttag, next, end) = match self.owed.len() {
            0 => (0, u16::from(how), 0, 512),
            count => self.owed.swap_remove(usize::from(how) % count),
        };
        let bytes = match self.input.u8() {
            short @ 0..64 => end.saturating_sub(next).min(u32::from(short)),
            _ => end.saturating_sub(next).min(self.limits.h2c_bytes_max),
        };
        let after = next + bytes;
        if after < end {
            self.owed.push((cid, ttag, after, end));
        }
        let data = vec![how; bytes as usize];
        let data = self.wire.data(cid, ttag, next, &data, after == end);
        self.send_changed(data);
    }

    /// Sends a PDU, one in some with a byte changed.
    fn send_changed(&mut self, mut bytes: Vec<u8>) {
        let at = self.input.u8();
        if at < 160 && self.input.u8() & 7 == 0 {
            let at = usize::from(at) % bytes.len();
            bytes[at] = self.input.u8();
        }
        self.send(&bytes);
    }

    fn send(&mut self, bytes: &[u8]) {
        let mut at = 0;
        loop {
            let given = self.wire.give(&bytes[at..]);
            at += given;
            let work = self.wire.connection.advance(&self.wire.clock);
            if self.hear() + given + work == 0 {
                break;
            }
        }
    }

    /// What the controller says.
    fn hear(&mut self) -> usize {
        if self.is_deaf {
            self.wire.connection.send(|pieces| {
                let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
                assert!(bytes <= UNREAD_BYTES_MAX, "{bytes} bytes at once");
                would_block()
            });
            return 0;
        }
        let taken = self.wire.take();
        while let Some(pdu) = self.wire.next() {
            assert!(!self.is_terminated, "after a Terminate Request: {pdu:?}");
            match pdu.kind() {
                1 => assert_eq!(pdu.0.len(), 128),
                3 => self.is_terminated = true,
                5 => self.owed.retain(|owed| owed.0 != pdu.cid()),
                7 => assert!(!pdu.payload().1.is_empty()),
                9 => {
                    let (ttag, offset, bytes) = pdu.r2t();
                    self.owed.push((pdu.cid(), ttag, offset, offset + bytes));
                }
                other => panic!("a PDU of type {other:#x}"),
            }
        }
        taken
    }

    /// The connection goes, another one comes; the admin queue is not touched by it.
    fn begin_again(&mut self) {
        self.wire.hang_up();
        assert!(self.wire.ending().is_some());
        assert!(!self.wire.connection.wants_input() && !self.wire.connection.wants_output());
        let clock = self.admin.clock.clone();
        let wishes = self.wire.wishes;
        self.wire = Wire::on(&self.target, self.limits, clock);
        self.wire.wishes = wishes;
        (self.is_deaf, self.is_terminated) = (false, false);
        self.owed.clear();
        match self.input.u8() % 4 {
            0 => {}
            1 => self.wire.greet(wishes),
            2 => {
                self.wire.greet(wishes);
                self.wire.connect(0, 31, 0xffff, 0);
            }
            _ => self.wire = self.admin.join(&self.target, self.limits, 1, ENTRIES),
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input::new(data);
    let agreed = input.u8();
    let wishes = Wishes {
        header_digest: agreed & 1 != 0,
        data_digest: agreed & 2 != 0,
        hpda_z: agreed >> 2 & 3,
        maxr2t_z: u32::from(agreed >> 4 & 3),
    };
    let limits = Limits {
        cpda_z: agreed >> 6,
        h2c_bytes_max: 4096,
        c2h_bytes_max: 10_000,
        r2t_bytes_max: 6000,
        ..Limits::default()
    };
    let target = wire::target_of(TargetOptions { memory_bytes: MEMORY_BYTES, ..TargetOptions::default() });
    let (admin, wire) = Wire::pair(&target, limits, wishes, ENTRIES);
    let (is_deaf, is_terminated) = (false, false);
    let mut run = Run { input, target, limits, admin, wire, owed: Vec::new(), is_deaf, is_terminated };
    while !run.input.is_empty() {
        run.step();
    }
    let Run { target, mut admin, wire, .. } = run;
    drop(wire);
    let answer = admin.run(Sqe::property_get(0x1c), &[]);
    assert_eq!((answer.status(), answer.cqe_u32(0) & 3), (0, 1), "CSTS");
    drop(admin);
    assert_eq!(target.memory().used(), 0, "memory of connections that are gone");
});
