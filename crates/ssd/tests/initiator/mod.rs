//! A vfio-user NVMe host that talks as SPDK's initiator does: every message has number 0 and waits for its
//! reply, the reply's payload is read at once, I/O virtual addresses are 47 bits wide, doorbells are in
//! mapped memory.
#![allow(unreachable_pub)]

use std::io::Read;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::io::{IoSlice, IoSliceMut};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use unvme_bus::Region;
use unvme_spec::{Cqe, Sqe, Status};

/// Where host memory is: two ranges side by side, each behind a descriptor of its own.
pub const BASE: u64 = 0x7f5a_c000_0000;
/// Bytes of each of the two ranges.
pub const RANGE_BYTES: usize = 4 << 20;
/// Offset of the data buffers in host memory.
pub const DATA: usize = 2 << 20;

const VERSION: u16 = 1;
const DMA_MAP: u16 = 2;
const DMA_UNMAP: u16 = 3;
const GET_INFO: u16 = 4;
const GET_REGION_INFO: u16 = 5;
const REGION_READ: u16 = 9;
const REGION_WRITE: u16 = 10;
const BAR0: u32 = 0;
const CONFIG: u32 = 7;

const ADMIN_ENTRIES: u32 = 32;
pub const IO_ENTRIES: u32 = 256;
/// Each of a pair's two rings has this much memory.
const RING_BYTES: usize = 16 << 10;
/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Default)]
struct Pair {
    entries: u32,
    tail: u32,
    head: u32,
    phase: bool,
}

pub struct Initiator {
    socket: UnixStream,
    ranges: [Region; 2],
    doorbells: Region,
    /// The admin queue and I/O queue pair 1.
    pairs: [Pair; 2],
    next_cid: u16,
}

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(bytes[offset..offset + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(bytes[offset..offset + 8].try_into().unwrap())
}

/// A command; returns the payload and the descriptors of the reply.
fn request(
    socket: &mut UnixStream,
    command: u16,
    payload: &[u8],
    fds: &[BorrowedFd<'_>],
) -> (Vec<u8>, Vec<OwnedFd>) {
    let size = 16 + payload.len() as u32;
    let mut message = [0u16.to_le_bytes(), command.to_le_bytes()].concat();
    message.extend(words(&[size, 0, 0]));
    message.extend_from_slice(payload);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
    }
    let sent = rustix::net::sendmsg(&*socket, &[IoSlice::new(&message)], &mut control, SendFlags::NOSIGNAL);
    assert_eq!(sent, Ok(message.len()));

    let mut header = [0; 16];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut room = [IoSliceMut::new(&mut header)];
    let received =
        rustix::net::recvmsg(&*socket, &mut room, &mut control, RecvFlags::empty()).expect("a reply");
    assert_eq!(received.bytes, 16, "a header");
    let mut got = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            got.extend(fds);
        }
    }
    assert_eq!(header[..2], [0, 0], "the number of the message");
    assert_eq!(header[2..4], command.to_le_bytes());
    assert_eq!((u32_at(&header, 8), u32_at(&header, 12)), (1, 0), "a reply without an error to {command}");
    let mut reply = vec![0; u32_at(&header, 4) as usize - 16];
    if !reply.is_empty() {
        assert_eq!(socket.read(&mut reply).unwrap(), reply.len(), "the payload comes in one piece");
    }
    (reply, got)
}

/// Asks for all regions and maps the doorbells.
fn map_bars(socket: &mut UnixStream) -> Region {
    let mut doorbells = None;
    for index in 0..9 {
        // The request is as long as the reply may be.
        let mut ask = vec![0; 4064];
        ask[..4].copy_from_slice(&4064u32.to_le_bytes());
        ask[8..12].copy_from_slice(&u32::to_le_bytes(index));
        let (info, fds) = request(socket, GET_REGION_INFO, &ask, &[]);
        let expected = [0x4000, 0, 0, 0, 0, 0, 0, 0x1000, 0][index as usize];
        assert_eq!(u64_at(&info, 16), expected, "size of region {index}");
        if index != BAR0 {
            assert_eq!(fds.len(), 0);
            continue;
        }
        // Readable, writable, mappable, with a capability: sparse mmap, one area, the second page.
        assert_eq!((u32_at(&info, 4), u32_at(&info, 12)), (0b1111, 32));
        assert_eq!(info[32..44], [1, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!((u64_at(&info, 48), u64_at(&info, 56)), (0x1000, 0x1000));
        let fd = fds.into_iter().next().expect("a descriptor");
        doorbells = Some(Region::from_fd(fd, u64_at(&info, 24) + 0x1000, 0x1000, true).unwrap());
    }
    doorbells.expect("BAR 0")
}

impl Initiator {
    /// Connects, negotiates and maps, up to where the controller's registers are touched.
    pub fn attach(path: &Path) -> Self {
        let mut socket = UnixStream::connect(path).expect("a server");
        // Version 0.0 and no text.
        let (version, _) = request(&mut socket, VERSION, &[0; 4], &[]);
        assert_eq!(version[..4], [0; 4]);
        let (info, _) = request(&mut socket, GET_INFO, &words(&[16, 0, 0, 0]), &[]);
        assert_eq!(info, words(&[16, 0b11, 9, 5]));
        let doorbells = map_bars(&mut socket);
        let ranges = [0, 1].map(|_| Region::shared("initiator", RANGE_BYTES).unwrap());
        let mut host = Self { socket, ranges, doorbells, pairs: [Pair::default(); 2], next_cid: 0 };
        for index in 0..2 {
            host.map(index, DMA_MAP);
        }
        // Bus master, no INTx.
        let command = host.config_command();
        host.write_region(CONFIG, 4, &(command | 0x404).to_le_bytes());
        assert_eq!(host.config_command(), 0x404);
        host
    }

    fn map(&mut self, index: usize, command: u16) {
        let range = &self.ranges[index];
        let (fd, offset) = range.backing().unwrap();
        let iova = BASE + (index * RANGE_BYTES) as u64;
        let place = [iova.to_le_bytes(), (RANGE_BYTES as u64).to_le_bytes()].concat();
        // Either way the descriptor comes along.
        if command == DMA_MAP {
            let payload = [words(&[32, 0b11]), offset.to_le_bytes().to_vec(), place].concat();
            request(&mut self.socket, DMA_MAP, &payload, &[fd]);
        } else {
            request(&mut self.socket, DMA_UNMAP, &[words(&[24, 0]), place].concat(), &[fd]);
        }
    }

    fn read_region(&mut self, region: u32, offset: u64, bytes: u32) -> Vec<u8> {
        let payload = [offset.to_le_bytes().to_vec(), words(&[region, bytes])].concat();
        let (reply, _) = request(&mut self.socket, REGION_READ, &payload, &[]);
        assert_eq!(reply[..16], payload);
        reply[16..].to_vec()
    }

    fn write_region(&mut self, region: u32, offset: u64, data: &[u8]) {
        let place = [offset.to_le_bytes().to_vec(), words(&[region, data.len() as u32])].concat();
        let (reply, _) = request(&mut self.socket, REGION_WRITE, &[&place, data].concat(), &[]);
        assert!(reply.len() <= place.len() + data.len(), "SPDK has no room for more");
    }

    fn config_command(&mut self) -> u16 {
        u16::from_le_bytes(self.read_region(CONFIG, 4, 2).try_into().unwrap())
    }

    pub fn register(&mut self, offset: u64) -> u32 {
        u32_at(&self.read_region(BAR0, offset, 4), 0)
    }

    pub fn set_register(&mut self, offset: u64, value: u32) {
        self.write_region(BAR0, offset, &value.to_le_bytes());
    }

    pub fn cap(&mut self) -> u64 {
        u64_at(&self.read_region(BAR0, 0, 8), 0)
    }

    /// Reads CSTS until the bits of `mask` are `value`.
    pub fn await_status(&mut self, mask: u32, value: u32) {
        let start = Instant::now();
        while self.register(0x1c) & mask != value {
            assert!(start.elapsed() < PATIENCE, "CSTS is {:#x}", self.register(0x1c));
        }
    }

    /// Enables the controller with all command sets by profile, as CAP.CSS offers.
    pub fn enable(&mut self) {
        self.await_status(1, 0);
        self.pairs =
            [ADMIN_ENTRIES, IO_ENTRIES].map(|entries| Pair { entries, tail: 0, head: 0, phase: true });
        for pair in 0..2 {
            // Only the phase tags are taken care of; everything else is as it was.
            for entry in 0..self.pairs[pair].entries as usize {
                let at = Self::completion(pair) + entry * 16 + 8;
                let word = self.ranges[0].load_u64(at, Ordering::Relaxed);
                self.ranges[0].store_u64(at, word & !(1 << 48), Ordering::Relaxed);
            }
        }
        let [asq, acq] = [0, Self::completion(0)].map(|at| (BASE + at as u64).to_le_bytes());
        self.write_region(BAR0, 0x28, &asq);
        self.write_region(BAR0, 0x30, &acq);
        self.set_register(0x24, (ADMIN_ENTRIES - 1) << 16 | (ADMIN_ENTRIES - 1));
        self.set_register(0x14, 0x0046_0061);
        self.await_status(0b11, 1);
    }

    pub fn disable(&mut self) {
        self.await_status(1, 1);
        let cc = self.register(0x14);
        self.set_register(0x14, cc & !1);
        self.await_status(1, 0);
    }

    const fn submission(pair: usize) -> usize {
        pair * 2 * RING_BYTES
    }

    const fn completion(pair: usize) -> usize {
        Self::submission(pair) + RING_BYTES
    }

    /// Creates I/O queue pair 1, without interrupts.
    pub fn create_pair(&mut self) {
        for (opcode, at, cdw11) in [(5, Self::completion(1), 1), (1, Self::submission(1), 1 << 16 | 1)] {
            let create = Sqe {
                opcode,
                cdw10: (IO_ENTRIES - 1) << 16 | 1,
                cdw11,
                dptr: [BASE + at as u64, 0],
                ..Sqe::default()
            };
            assert_eq!(self.admin(create), Ok(0));
        }
    }

    /// Puts an entry into a queue; returns its identifier.
    pub fn push(&mut self, pair: usize, mut sqe: Sqe) -> u16 {
        self.next_cid = self.next_cid % 0x0fff + 1;
        sqe.cid = self.next_cid;
        let state = &mut self.pairs[pair];
        let at = Self::submission(pair) + state.tail as usize * 64;
        self.ranges[0].write_words::<8>(at, sqe.to_words());
        state.tail = (state.tail + 1) % state.entries;
        sqe.cid
    }

    pub fn ring(&self, pair: usize) {
        self.ring_at(pair * 2, self.pairs[pair].tail);
    }

    /// Writes doorbell `index`, counted in words.
    pub fn ring_at(&self, index: usize, value: u32) {
        self.doorbells.store_u32(index * 4, value, Ordering::Release);
    }

    /// The next completion if there is one.
    pub fn poll(&mut self, pair: usize) -> Option<Cqe> {
        let state = &mut self.pairs[pair];
        let at = Self::completion(pair) + state.head as usize * 16;
        let tagged = self.ranges[0].load_u64(at + 8, Ordering::Acquire);
        if (tagged >> 48 & 1 == 1) != state.phase {
            return None;
        }
        let result = self.ranges[0].load_u64(at, Ordering::Relaxed);
        state.head = (state.head + 1) % state.entries;
        state.phase ^= state.head == 0;
        let head = state.head;
        self.ring_at(pair * 2 + 1, head);
        Some(zerocopy::transmute!([result, tagged]))
    }

    pub fn wait(&mut self, pair: usize) -> Cqe {
        let start = Instant::now();
        loop {
            if let Some(cqe) = self.poll(pair) {
                return cqe;
            }
            assert!(start.elapsed() < PATIENCE, "no completion on pair {pair}");
            std::thread::yield_now();
        }
    }

    pub fn execute(&mut self, pair: usize, sqe: Sqe) -> Result<u64, Status> {
        let cid = self.push(pair, sqe);
        self.ring(pair);
        let cqe = self.wait(pair);
        assert_eq!((cqe.cid, cqe.sq_id), (cid, pair as u16));
        if cqe.status().is_success() { Ok(cqe.result()) } else { Err(cqe.status().kind()) }
    }

    pub fn admin(&mut self, sqe: Sqe) -> Result<u64, Status> {
        self.execute(0, sqe)
    }

    /// An admin command that fills `bytes` of the start of the data area.
    pub fn admin_in(&mut self, sqe: Sqe, bytes: usize) -> Vec<u8> {
        assert_eq!(self.admin(Sqe { dptr: [BASE + DATA as u64, 0], ..sqe }), Ok(0));
        self.load(DATA, bytes)
    }

    /// Reads host memory across its two ranges.
    pub fn load(&self, at: usize, bytes: usize) -> Vec<u8> {
        let mut data = vec![0; bytes];
        let (low, high) = data.split_at_mut(RANGE_BYTES.saturating_sub(at).min(bytes));
        if !low.is_empty() {
            self.ranges[0].read(at, low);
        }
        if !high.is_empty() {
            self.ranges[1].read(at + low.len() - RANGE_BYTES, high);
        }
        data
    }

    /// Writes host memory across its two ranges.
    pub fn store(&self, at: usize, data: &[u8]) {
        let (low, high) = data.split_at(RANGE_BYTES.saturating_sub(at).min(data.len()));
        if !low.is_empty() {
            self.ranges[0].write(at, low);
        }
        if !high.is_empty() {
            self.ranges[1].write(at + low.len() - RANGE_BYTES, high);
        }
    }

    /// Deletes the queue pair, shuts the controller down, unmaps memory and hangs up.
    pub fn detach(mut self) {
        for opcode in [0, 4] {
            assert_eq!(self.admin(Sqe { opcode, cdw10: 1, ..Sqe::default() }), Ok(0));
        }
        let cc = self.register(0x14);
        self.set_register(0x14, cc | 1 << 14);
        self.await_status(0b1100, 0b1000);
        for index in 0..2 {
            self.map(index, DMA_UNMAP);
        }
    }
}
