//! Random steps of several handles against a vector of bytes.

use std::time::Duration;

use proptest::prelude::*;
use unvme::handle::{Handle, HandleOptions, Request};
use unvme::{Device, Nsid, OpenOptions, open};

use crate::rig::on_each;
use crate::{bytes, options, policies};

/// What handles are told to be, one after the other: caches are small, so that they are full.
const POLICIES: [&str; 9] = [
    "",
    "cache=read:1M:lru,sched=share:3",
    "cache=write-through:1M:s3fifo,complete=hybrid",
    "cache=write-back:1M:s3fifo",
    "cache=write-back:1M:lru:dirty:64K,queue=own,sched=deadline:1ms",
    "queue=own,complete=interrupt,sched=priority:2",
    "cache=write-back:2M:dirty:4K,limit=iops:1000000:burst:1s",
    "complete=hybrid,sched=share:9",
    "cache=read:1M",
];

#[derive(Clone, Debug)]
enum Step {
    Read(usize, u64, u64),
    Write(usize, u64, u64, u8),
    /// Reads and writes that are submitted together, on ranges of their own.
    Together(usize, Vec<(bool, u64)>, u8),
    Flush(usize),
    Discard(usize, u64, u64),
    Set(usize, usize),
    Reopen(usize, usize),
}

const HANDLES: usize = 3;

fn step() -> impl Strategy<Value = Step> {
    let place = || (0..10_000u64, prop_oneof![4 => 1..40u64, 1 => 1..700u64]);
    let which = 0..HANDLES;
    prop_oneof![
        6 => (which.clone(), place()).prop_map(|(h, (at, n))| Step::Read(h, at, n)),
        6 => (which.clone(), place(), any::<u8>()).prop_map(|(h, (at, n), v)| Step::Write(h, at, n, v)),
        3 => (which.clone(), prop::collection::vec((any::<bool>(), 0..10_000u64), 1..20), any::<u8>())
            .prop_map(|(h, all, v)| Step::Together(h, all, v)),
        1 => which.clone().prop_map(Step::Flush),
        1 => (which.clone(), place()).prop_map(|(h, (at, n))| Step::Discard(h, at, n)),
        1 => (which.clone(), 0..POLICIES.len()).prop_map(|(h, p)| Step::Set(h, p)),
        1 => (which, 0..POLICIES.len()).prop_map(|(h, p)| Step::Reopen(h, p)),
    ]
}

/// Handles of a device, some of which overlap, and what their namespace holds.
struct Played<'a> {
    device: &'a Device,
    handles: Vec<Option<Handle>>,
    model: Vec<u8>,
    block: usize,
}

impl<'a> Played<'a> {
    fn new(device: &'a Device) -> Self {
        let block = device.block(Nsid(1)).expect("blocks");
        let mut played = Self {
            device,
            handles: Vec::new(),
            model: vec![0; block.bytes() as usize],
            block: block.block_bytes() as usize,
        };
        for nth in 0..HANDLES {
            let handle = played.open(nth, nth);
            played.handles.push(Some(handle));
        }
        played
    }

    fn open(&self, nth: usize, which: usize) -> Handle {
        let all = (self.model.len() / self.block) as u64;
        let pages = (4096 / self.block) as u64;
        let blocks = match nth {
            0 => 0..all,
            1 => 0..all / 2 / pages * pages,
            _ => all / 4 / pages * pages..all,
        };
        self.device.handle(Nsid(1), &options(blocks, POLICIES[which])).expect("handle")
    }

    fn handle(&self, nth: usize) -> &Handle {
        self.handles[nth].as_ref().expect("open")
    }

    /// Blocks of a handle, and where they are in the model.
    fn place(&self, nth: usize, at: u64, blocks: u64) -> (u64, u64, std::ops::Range<usize>) {
        let handle = self.handle(nth);
        let lba = at % handle.blocks();
        let blocks = blocks.min(handle.blocks() - lba);
        let start = (handle.partition().start + lba) as usize * self.block;
        (lba, blocks, start..start + blocks as usize * self.block)
    }

    fn play(&mut self, step: &Step) {
        match step {
            Step::Read(nth, at, blocks) => {
                let (lba, _, range) = self.place(*nth, *at, *blocks);
                let mut out = vec![0xaa; range.len()];
                self.handle(*nth).read(lba, &mut out).expect("read");
                assert!(out == self.model[range], "{step:?}");
            }
            Step::Write(nth, at, blocks, value) => {
                let (lba, _, range) = self.place(*nth, *at, *blocks);
                let data = bytes(*value, range.len());
                self.handle(*nth).write(lba, &data).expect("write");
                self.model[range].copy_from_slice(&data);
            }
            Step::Together(nth, all, value) => self.together(*nth, all, *value),
            Step::Flush(nth) => self.handle(*nth).flush().expect("flush"),
            Step::Discard(nth, at, blocks) => {
                let (lba, blocks, range) = self.place(*nth, *at, *blocks);
                self.handle(*nth).discard(lba, blocks).expect("discard");
                self.model[range].fill(0);
            }
            Step::Set(nth, which) => self.handle(*nth).set(&policies(POLICIES[*which])).expect("set"),
            Step::Reopen(nth, which) => {
                self.handles[*nth].take().expect("open").close().expect("close");
                self.handles[*nth] = Some(self.open(*nth, *which));
            }
        }
    }

    fn together(&mut self, nth: usize, all: &[(bool, u64)], value: u8) {
        let mut used: Vec<u64> = Vec::new();
        let mut expected = Vec::new();
        for &(is_read, at) in all {
            // Twelve blocks each, so that they are not on whole pages, and none twice.
            let (lba, blocks, range) = self.place(nth, at / 16 * 16 + 3, 12);
            if used.contains(&(lba / 16)) {
                continue;
            }
            used.push(lba / 16);
            let handle = self.handle(nth);
            let mut buf = handle.alloc(range.len()).expect("memory");
            let token = expected.len() as u64;
            let request = if is_read {
                Request::read(lba, blocks as u32)
            } else {
                let data = bytes(value, range.len());
                buf.write(0, &data);
                self.model[range.clone()].copy_from_slice(&data);
                Request::write(lba, blocks as u32)
            };
            self.handle(nth).submit(request, Some(buf), token).expect("submit");
            expected.push((is_read, range));
        }
        let mut done = Vec::new();
        while done.len() < expected.len() {
            self.handle(nth).wait(&mut done, Duration::from_secs(1));
        }
        for done in done {
            let (is_read, range) = &expected[done.token as usize];
            assert!(done.status.is_success(), "{}", done.status);
            let buf = done.buf.expect("it comes back");
            assert!(!is_read || buf.to_vec()[..range.len()] == self.model[range.clone()], "a read");
        }
    }

    /// Everything is on the device in the end, past all handles.
    fn end(mut self) {
        for handle in self.handles.drain(..).flatten() {
            handle.close().expect("close");
        }
        let mut out = vec![0xaa; self.model.len()];
        self.device.block(Nsid(1)).expect("blocks").read_at(0, &mut out).expect("read");
        assert!(out == self.model, "what is on the device");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn handles_that_overlap_are_one_vector_of_bytes(
        name in prop_oneof![
            Just("mem:block:6M"),
            Just("mem:block:6M,block=4096"),
            Just("mem:block:6M,timing=optane"),
        ],
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let device = open(name, &OpenOptions::default()).expect("open");
        let mut played = Played::new(&device);
        for step in &steps {
            played.play(step);
        }
        played.end();
    }
}

on_each! {
    fn handles_hold_what_was_written_whatever_they_are(device: &Device) {
        let mut played = Played::new(device);
        for round in 0..POLICIES.len() {
            for nth in 0..HANDLES {
                let at = (round * 977 + nth * 3301) as u64;
                played.play(&Step::Write(nth, at, 33, (round * 7 + nth) as u8));
                played.play(&Step::Together(nth, vec![(false, at), (true, at + 100), (true, 40)], 9));
                played.play(&Step::Read((nth + 1) % HANDLES, at.saturating_sub(4), 60));
                played.play(&Step::Set(nth, (round + nth) % POLICIES.len()));
            }
            played.play(&Step::Discard(round % HANDLES, round as u64 * 500, 90));
            played.play(&Step::Flush(round % HANDLES));
        }
        played.end();
    }
}

/// Submits writes to some places and reads of others, and waits for all.
fn several(handle: &Handle, round: u64, written: &mut [u8; 40], lba: impl Fn(u64) -> u64) {
    for nth in 0..9 {
        let place = (round + nth * 3) % 40;
        let mut buf = handle.alloc(512).expect("memory");
        let request = if nth % 2 == 0 {
            written[place as usize] = (round % 250) as u8 + 1;
            buf.write(0, &[written[place as usize]; 512]);
            Request::write(lba(place), 1)
        } else {
            Request::read(lba(place), 1)
        };
        handle.submit(request, Some(buf), place).expect("submit");
    }
    let mut done = Vec::new();
    while done.len() < 9 {
        handle.wait(&mut done, Duration::from_secs(1));
    }
    for done in done {
        assert!(done.status.is_success(), "{}", done.status);
        let buf = done.buf.expect("it comes back").to_vec();
        assert!(buf[..512] == [written[done.token as usize]; 512], "round {round}");
    }
}

#[test]
fn threads_with_handles_of_all_kinds_see_what_they_wrote_themselves() {
    let device = open("mem:block:16M", &OpenOptions::default()).expect("open");
    std::thread::scope(|scope| {
        for thread in 0..6u64 {
            let device = &device;
            scope.spawn(move || {
                // Neighbours have parts of the same pages.
                let text = POLICIES[[0, 2, 3, 4, 6, 8][thread as usize]];
                let options = HandleOptions { blocks: None, policies: policies(text) };
                let handle = device.handle(Nsid(1), &options).expect("handle");
                let mut written = [0u8; 40];
                for round in 0..2000u64 {
                    let place = (round * 7 + thread) % 40;
                    let lba = place * 6 + thread;
                    if round % 5 == 0 {
                        several(&handle, round, &mut written, |place| place * 6 + thread);
                    } else if round % 3 == 0 {
                        written[place as usize] = (round % 251) as u8 + 1;
                        let data = [written[place as usize]; 512];
                        handle.write(lba, &data).expect("write");
                    } else {
                        let mut out = [0xaa; 512];
                        handle.read(lba, &mut out).expect("read");
                        assert_eq!(out, [written[place as usize]; 512], "{text} round {round}");
                    }
                    if round % 500 == 499 {
                        handle.flush().expect("flush");
                    }
                }
                handle.close().expect("close");
            });
        }
    });
}
