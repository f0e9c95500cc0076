//! Shared memory of a connection: slots, each of which one call at a time goes through, and the page that
//! tells the server where something is to be done.
//!
//! ```text
//! control pages                                      slot
//!      0  awake: workers that do not sleep               0  state: FREE, POSTED, RUNNING, DONE
//!     64  sleeping: workers that sleep                   4  waiting: the client sleeps
//!    128  bell: what they sleep on                       8  bytes of the frame
//!    192  ended: the server has                         12  bytes of data to be written
//!    256  16 words: connections with something to do    16  room for data to be read
//!   4096  a line for each connection: its slots         24  frame: a call, or what came of it
//!                                                  135168  data
//! ```
//!
//! A call of up to 40 bytes, without data, goes by two cache lines: the slot's first, and that of the
//! connection. What clients look at beside stays as it is from one call to the next, mostly.
//!
//! Neither side believes the other one's numbers: lengths are cut to what fits, and bytes are copied out
//! before they are parsed.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::futex;
use unvme::Region;

/// Slots of a connection: calls that can be under way at a time.
pub(super) const SLOTS: usize = 64;
/// Connections of a server.
pub(super) const CONNECTIONS_MAX: usize = 1024;

/// Longest call or reply, without data.
pub(super) const FRAME_BYTES_MAX: usize = (132 << 10) - FRAME;
/// Most data of a call.
pub(super) const DATA_BYTES_MAX: usize = 1 << 20;

const STATE: usize = 0;
const WAITING: usize = 4;
const FRAME_BYTES: usize = 8;
const INPUT_BYTES: usize = 12;
const OUTPUT_BYTES: usize = 16;
const FRAME: usize = 24;
const DATA: usize = 132 << 10;
const SLOT_BYTES: usize = DATA + DATA_BYTES_MAX;

const AWAKE: usize = 0;
const SLEEPING: usize = 64;
const BELL: usize = 128;
const ENDED: usize = 192;
const SUMMARY: usize = 256;
const SUMMARY_WORDS: usize = CONNECTIONS_MAX / 64;
const POSTED_SLOTS: usize = 4096;
const LINE_BYTES: usize = 64;

/// Bytes of the control pages, and of a connection's slots.
pub(super) const CONTROL_BYTES: usize = POSTED_SLOTS + CONNECTIONS_MAX * LINE_BYTES;
pub(super) const SLOTS_BYTES: usize = SLOTS * SLOT_BYTES;

const FREE: u32 = 0;
const POSTED: u32 = 1;
const RUNNING: u32 = 2;
const DONE: u32 = 3;

/// Sleeps until a word is no longer `value`, it is woken, a signal comes, or a time is over.
fn sleep(word: &AtomicU32, value: u32, limit: Duration) {
    let limit = futex::Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
    // Whatever the reason it returns for: the caller looks again.
    let _ = futex::wait(word, futex::Flags::empty(), value, Some(&limit));
}

fn wake(word: &AtomicU32, count: u32) {
    let _ = futex::wake(word, futex::Flags::empty(), count);
}

/// The bits that are set, from the lowest on.
fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros() as usize;
        word &= word.checked_sub(1)?;
        Some(bit)
    })
}

/// The pages that tell where something is to be done. All of their accesses are SeqCst: who posts looks
/// whether anybody is awake, and who goes to sleep looks whether anything was posted, and one of them must
/// see the other.
///
/// Who is awake may have much to do, however: who has posted something that nobody takes
/// [insists](Self::insist) after a while.
#[derive(Clone, Debug)]
pub(super) struct Control(pub Region);

impl Control {
    fn posted(&self, connection: usize) -> &AtomicU64 {
        &self.0.words::<1>(POSTED_SLOTS + connection * LINE_BYTES)[0]
    }

    fn summary(&self) -> &[AtomicU64; SUMMARY_WORDS] {
        self.0.words(SUMMARY)
    }

    /// There is something in a slot. Somebody is woken when nobody is awake.
    pub(super) fn post(&self, connection: usize, slot: usize) {
        self.posted(connection).fetch_or(1 << slot, Ordering::SeqCst);
        let (word, bit) = (&self.summary()[connection / 64], 1 << (connection % 64));
        if word.load(Ordering::SeqCst) & bit == 0 {
            word.fetch_or(bit, Ordering::SeqCst);
        }
        if self.0.load_u32(AWAKE, Ordering::SeqCst) == 0 {
            self.ring();
        }
    }

    /// As [`Control::post`], by somebody who has waited: whoever is awake has others.
    pub(super) fn insist(&self, connection: usize, slot: usize) {
        self.post(connection, slot);
        self.ring();
    }

    /// Wakes a worker, if any sleeps.
    pub(super) fn ring(&self) {
        if self.0.load_u32(SLEEPING, Ordering::SeqCst) > 0 {
            let bell = self.0.atomic_u32(BELL);
            bell.fetch_add(1, Ordering::SeqCst);
            wake(bell, 1);
        }
    }

    /// Connections that may have something posted. One is left in the summary when its last slot is taken: it
    /// is likely to come again.
    fn listed(&self) -> impl Iterator<Item = usize> {
        self.summary()
            .iter()
            .enumerate()
            .flat_map(|(at, word)| bits(word.load(Ordering::SeqCst)).map(move |bit| at * 64 + bit))
    }

    pub(super) fn is_any_posted(&self) -> bool {
        self.listed().any(|connection| self.posted(connection).load(Ordering::SeqCst) != 0)
    }

    /// Takes a slot with something in it: connection and slot. `from` is where to look first, and `turn`
    /// which of a connection's slots comes first, so that everybody has his turn.
    pub(super) fn take(&self, from: usize, turn: usize) -> Option<(usize, usize)> {
        // The word of `from` comes twice: its upper part first, all of it last.
        for step in 0..=SUMMARY_WORDS {
            let at = (from / 64 + step) % SUMMARY_WORDS;
            let mut found = self.summary()[at].load(Ordering::SeqCst);
            if step == 0 {
                found &= u64::MAX << (from % 64);
            }
            for connection in bits(found).map(|bit| at * 64 + bit) {
                if let Some(slot) = self.take_slot(connection, turn) {
                    return Some((connection, slot));
                }
            }
        }
        None
    }

    fn take_slot(&self, connection: usize, turn: usize) -> Option<usize> {
        let (posted, turn) = (self.posted(connection), turn % SLOTS);
        loop {
            let slots = posted.load(Ordering::SeqCst);
            if slots == 0 {
                return None;
            }
            let slot = (slots.rotate_right(turn as u32).trailing_zeros() as usize + turn) % SLOTS;
            if posted.fetch_and(!(1 << slot), Ordering::SeqCst) & 1 << slot != 0 {
                return Some(slot);
            }
        }
    }

    /// Forgets connections that have nothing posted at this time: who is quiet need not be looked at each
    /// time, and who is not is written down again.
    pub(super) fn tidy(&self) {
        for connection in self.listed() {
            let posted = self.posted(connection);
            if posted.load(Ordering::SeqCst) == 0 {
                let (word, bit) = (&self.summary()[connection / 64], 1 << (connection % 64));
                word.fetch_and(!bit, Ordering::SeqCst);
                // Something may have come in between, by somebody who still saw the bit.
                if posted.load(Ordering::SeqCst) != 0 {
                    word.fetch_or(bit, Ordering::SeqCst);
                }
            }
        }
    }

    /// Nothing is to be done for a connection that nobody has.
    pub(super) fn clear(&self, connection: usize) {
        self.posted(connection).store(0, Ordering::SeqCst);
        self.summary()[connection / 64].fetch_and(!(1 << (connection % 64)), Ordering::SeqCst);
    }

    /// One more worker is awake.
    pub(super) fn wake_up(&self) {
        self.0.atomic_u32(AWAKE).fetch_add(1, Ordering::SeqCst);
    }

    /// One fewer.
    pub(super) fn fall_asleep(&self) {
        self.0.atomic_u32(AWAKE).fetch_sub(1, Ordering::SeqCst);
    }

    /// A worker that is awake sleeps until something is posted, or for `limit`; not at all when all is over.
    pub(super) fn rest(&self, limit: Duration, is_over: impl Fn() -> bool) {
        let (sleeping, bell) = (self.0.atomic_u32(SLEEPING), self.0.atomic_u32(BELL));
        let seen = bell.load(Ordering::SeqCst);
        sleeping.fetch_add(1, Ordering::SeqCst);
        self.fall_asleep();
        if !self.is_any_posted() && !is_over() {
            sleep(bell, seen, limit);
        }
        sleeping.fetch_sub(1, Ordering::SeqCst);
        self.wake_up();
    }

    /// The server ends: everybody wakes up.
    pub(super) fn end(&self) {
        self.0.store_u32(ENDED, 1, Ordering::SeqCst);
        let bell = self.0.atomic_u32(BELL);
        bell.fetch_add(1, Ordering::SeqCst);
        wake(bell, u32::MAX >> 1);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.0.load_u32(ENDED, Ordering::SeqCst) != 0
    }
}

/// Where a call goes through.
pub(super) struct Slot<'a> {
    region: &'a Region,
    base: usize,
}

/// Lengths of what is in a slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lengths {
    pub frame: usize,
    pub input: usize,
    pub output: usize,
}

impl<'a> Slot<'a> {
    pub(super) fn new(region: &'a Region, slot: usize) -> Self {
        Self { region, base: slot * SLOT_BYTES }
    }

    fn state(&self) -> &AtomicU32 {
        self.region.atomic_u32(self.base + STATE)
    }

    fn set_length(&self, word: usize, bytes: usize) {
        self.region.store_u32(self.base + word, bytes as u32, Ordering::Relaxed);
    }

    fn length(&self, word: usize, max: usize) -> usize {
        (self.region.load_u32(self.base + word, Ordering::Relaxed) as usize).min(max)
    }

    /// The client's: a call, its data, and the room for data. The server takes it from here on, and not
    /// before.
    pub(super) fn post(&self, frame: &[u8], input: &[u8], output: usize) {
        self.region.write(self.base + FRAME, frame);
        self.region.write(self.base + DATA, input);
        self.set_length(FRAME_BYTES, frame.len());
        self.set_length(INPUT_BYTES, input.len());
        self.set_length(OUTPUT_BYTES, output);
        self.region.store_u32(self.base + WAITING, 0, Ordering::Relaxed);
        self.state().store(POSTED, Ordering::SeqCst);
    }

    /// The server's: whether there is a call, which is its own then.
    pub(super) fn start(&self) -> bool {
        self.state().compare_exchange(POSTED, RUNNING, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// What is in it, cut to what fits.
    pub(super) fn lengths(&self) -> Lengths {
        Lengths {
            frame: self.length(FRAME_BYTES, FRAME_BYTES_MAX),
            input: self.length(INPUT_BYTES, DATA_BYTES_MAX),
            output: self.length(OUTPUT_BYTES, DATA_BYTES_MAX),
        }
    }

    pub(super) fn read_frame(&self, out: &mut [u8]) {
        self.region.read(self.base + FRAME, out);
    }

    pub(super) fn read_data(&self, out: &mut [u8]) {
        self.region.read(self.base + DATA, out);
    }

    /// The server's: what came of the call.
    pub(super) fn finish(&self, frame: &[u8], data: &[u8]) {
        self.region.write(self.base + FRAME, frame);
        self.region.write(self.base + DATA, data);
        self.set_length(FRAME_BYTES, frame.len());
        self.set_length(INPUT_BYTES, data.len());
        self.state().store(DONE, Ordering::SeqCst);
        if self.region.load_u32(self.base + WAITING, Ordering::SeqCst) != 0 {
            wake(self.state(), 1);
        }
    }

    /// Wakes whoever waits, though nothing came of his call.
    pub(super) fn rouse(&self) {
        wake(self.state(), u32::MAX >> 1);
    }

    /// The client's: whether nobody has taken it yet.
    pub(super) fn is_posted(&self) -> bool {
        self.state().load(Ordering::Relaxed) == POSTED
    }

    pub(super) fn is_done(&self) -> bool {
        self.state().load(Ordering::Acquire) == DONE
    }

    /// The client's: sleeps until it is done, a signal comes, or for `limit`.
    pub(super) fn wait(&self, limit: Duration) {
        self.region.store_u32(self.base + WAITING, 1, Ordering::SeqCst);
        let state = self.state().load(Ordering::SeqCst);
        if state == POSTED || state == RUNNING {
            sleep(self.state(), state, limit);
        }
    }

    /// The client's: there is room for another call.
    pub(super) fn free(&self) {
        self.state().store(FREE, Ordering::Relaxed);
    }
}

/// Whether an error says that one should ask again.
pub(super) fn is_passing(errno: Errno) -> bool {
    matches!(errno, Errno::INTR | Errno::AGAIN)
}

#[cfg(test)]
mod tests {
    use unvme::Pages;

    use super::*;

    fn control() -> Control {
        Control(Region::shared_on("control", CONTROL_BYTES, Pages::Ordinary).expect("memory"))
    }

    #[test]
    fn what_is_posted_is_taken_once_and_everybody_has_his_turn() {
        let control = control();
        assert_eq!(control.take(0, 0), None);
        for (connection, slot) in [(3, 5), (3, 63), (700, 0), (1023, 1)] {
            control.post(connection, slot);
            control.post(connection, slot);
        }
        assert!(control.is_any_posted());
        assert_eq!(control.take(4, 0), Some((700, 0)));
        assert_eq!(control.take(3, 0), Some((3, 5)));
        assert_eq!(control.take(1023, 0), Some((1023, 1)));
        assert_eq!(control.take(1023, 0), Some((3, 63)));
        assert_eq!(control.take(1023, 0), None);
        assert!(!control.is_any_posted());
    }

    #[test]
    fn threads_in_high_slots_of_a_busy_client_have_their_turn() {
        let control = control();
        control.post(7, 40);
        let mut turn = 0;
        for _ in 0..SLOTS {
            // The first slot is never empty.
            control.post(7, 0);
            let (_, slot) = control.take(7, turn).expect("two are there");
            if slot == 40 {
                return;
            }
            turn = slot + 1;
        }
        panic!("one slot had all the turns");
    }

    #[test]
    fn lengths_of_the_other_side_are_cut() {
        let region = Region::shared_on("slots", SLOTS_BYTES, Pages::Ordinary).expect("memory");
        let slot = Slot::new(&region, SLOTS - 1);
        assert!(!slot.start(), "nothing was posted");
        slot.post(b"frame", b"data", 7);
        assert!(slot.start());
        assert!(!slot.start(), "once");
        for word in [FRAME_BYTES, INPUT_BYTES, OUTPUT_BYTES] {
            region.store_u32(slot.base + word, u32::MAX, Ordering::Relaxed);
        }
        let lengths = slot.lengths();
        assert_eq!(
            (lengths.frame, lengths.input, lengths.output),
            (FRAME_BYTES_MAX, DATA_BYTES_MAX, DATA_BYTES_MAX)
        );
        let mut all = vec![0; FRAME_BYTES_MAX];
        slot.read_frame(&mut all);
        let mut data = vec![0; DATA_BYTES_MAX];
        slot.read_data(&mut data);
        assert!(all.starts_with(b"frame") && data.starts_with(b"data"));
        slot.finish(b"done", b"");
        assert!(slot.is_done());
    }
}
