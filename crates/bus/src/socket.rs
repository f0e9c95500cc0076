//! A stream socket that is filled from, and empties into, shared memory.
//!
//! [`send`] gathers and [`receive`] scatters: ordinary bytes for headers, ranges of [`Region`]s for payload,
//! in one system call and with no copy in between. Neither waits.
// UNSAFETY: hands addresses of memory that another party may write to the kernel, which no slice may refer
// to.
#![allow(unsafe_code)]

use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::Region;

/// Process, user and group of the other end of a UNIX socket, when it connected (`SO_PEERCRED`). The process
/// is 0 when it is of a PID namespace that this process does not see.
///
/// # Errors
/// Those of `getsockopt`.
pub fn peer_credentials(socket: BorrowedFd<'_>) -> io::Result<(i32, u32, u32)> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes up to `bytes` bytes, which is as long as the structure is.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut bytes,
        )
    };
    match done {
        0 => Ok((found.pid, found.uid, found.gid)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The supplementary groups that the process at the other end of a UNIX socket had when it connected
/// (`SO_PEERGROUPS`).
///
/// # Errors
/// Those of `getsockopt`.
pub fn peer_groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let mut groups: Vec<u32> = vec![0; 64];
    loop {
        let mut bytes = (groups.len() * size_of::<u32>()) as libc::socklen_t;
        // SAFETY: the kernel writes up to `bytes` bytes, which is as long as the vector is, and says how many
        // there are, or would be.
        let done = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut bytes,
            )
        };
        let there = bytes as usize / size_of::<u32>();
        if done == 0 {
            groups.truncate(there);
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ERANGE) || there <= groups.len() {
            return Err(error);
        }
        groups.resize(there, 0);
    }
}

/// The real, the effective and the saved user of the calling thread (`getresuid`).
pub fn users_of_thread() -> [u32; 3] {
    let [mut first, mut effective, mut saved] = [0; 3];
    // SAFETY: the kernel writes three numbers, for which there is space. It cannot fail for such addresses.
    unsafe { libc::getresuid(&raw mut first, &raw mut effective, &raw mut saved) };
    [first, effective, saved]
}

/// Most pieces, or rooms, of one call: an array of this many addresses lives on the stack. Those beyond wait
/// for the next call.
pub const PIECES_MAX: usize = 64;

/// Bytes to send.
#[derive(Clone, Copy, Debug)]
pub enum Piece<'a> {
    /// Memory of this process.
    Bytes(&'a [u8]),
    /// A range of shared memory. What another party writes there meanwhile is sent in either state.
    Memory {
        /// The memory.
        region: &'a Region,
        /// First byte within it.
        offset: usize,
        /// Number of bytes.
        bytes: usize,
    },
}

impl<'a> Piece<'a> {
    /// Number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Memory { bytes, .. } => *bytes,
        }
    }

    /// Whether there is nothing to send.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The part from byte `from` on. Panics: when the piece is shorter than that.
    #[inline]
    #[must_use]
    pub fn skip(self, from: usize) -> Self {
        check(from, 0, self.len());
        match self {
            Self::Bytes(bytes) => Self::Bytes(&bytes[from..]),
            Self::Memory { region, offset, bytes } => {
                Self::Memory { region, offset: offset + from, bytes: bytes - from }
            }
        }
    }

    /// Copies the first bytes out, as many as there are and `target` takes; how many those were. Panics: when
    /// the piece is not within its region.
    pub fn copy_to(&self, target: &mut [u8]) -> usize {
        let count = self.len().min(target.len());
        match self {
            Self::Bytes(bytes) => target[..count].copy_from_slice(&bytes[..count]),
            Self::Memory { region, offset, .. } => region.read(*offset, &mut target[..count]),
        }
        count
    }

    fn vector(&self) -> libc::iovec {
        let (start, bytes) = match self {
            Self::Bytes(bytes) => (bytes.as_ptr().cast_mut(), bytes.len()),
            Self::Memory { region, offset, bytes } => (address(region, *offset, *bytes), *bytes),
        };
        libc::iovec { iov_base: start.cast(), iov_len: bytes }
    }
}

/// Where received bytes go.
#[derive(Debug)]
pub enum Room<'a> {
    /// Memory of this process.
    Bytes(&'a mut [u8]),
    /// A range of shared memory.
    Memory {
        /// The memory.
        region: &'a Region,
        /// First byte within it.
        offset: usize,
        /// Number of bytes.
        bytes: usize,
    },
}

impl<'a> Room<'a> {
    /// Number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Memory { bytes, .. } => *bytes,
        }
    }

    /// Whether there is no room.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies `source` in from byte `at` of the room, as much as it takes; how much that was. Panics: when
    /// `at` is beyond the room, or the room is not within its region.
    pub fn copy_from(&mut self, at: usize, source: &[u8]) -> usize {
        check(at, 0, self.len());
        let count = (self.len() - at).min(source.len());
        match self {
            Self::Bytes(bytes) => bytes[at..at + count].copy_from_slice(&source[..count]),
            Self::Memory { region, offset, .. } => region.write(*offset + at, &source[..count]),
        }
        count
    }

    fn vector(&mut self) -> libc::iovec {
        let (start, bytes) = match self {
            Self::Bytes(bytes) => (bytes.as_mut_ptr(), bytes.len()),
            Self::Memory { region, offset, bytes } => (address(region, *offset, *bytes), *bytes),
        };
        libc::iovec { iov_base: start.cast(), iov_len: bytes }
    }
}

/// Sends what the socket takes now of the first [`PIECES_MAX`] pieces, in their order; how many bytes that
/// was, 0 only when there are none.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] when the socket takes nothing now, [`io::ErrorKind::BrokenPipe`] or
/// [`io::ErrorKind::ConnectionReset`] when the other side is gone (no SIGPIPE), otherwise what sendmsg(2)
/// says.
///
/// # Panics
/// When a piece is not within its region.
pub fn send(fd: BorrowedFd<'_>, pieces: &[Piece<'_>]) -> io::Result<usize> {
    let mut message = Message::new(pieces.iter().map(Piece::vector));
    if message.bytes == 0 {
        return Ok(0);
    }
    message.run(|header| {
        // SAFETY: the header's vectors cover memory that the pieces borrow, or whose mapping they keep, for
        // this call; the kernel only reads it. Shared memory may change meanwhile: no reference to it exists.
        unsafe { libc::sendmsg(fd.as_raw_fd(), header, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) }
    })
}

/// Receives what is there now into the first [`PIECES_MAX`] rooms, one after the other; how many bytes that
/// was, 0 at the end of the stream.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] when nothing is there, otherwise what recvmsg(2) says.
///
/// # Panics
/// When there is no room for a single byte, or a room is not within its region.
pub fn receive(fd: BorrowedFd<'_>, rooms: &mut [Room<'_>]) -> io::Result<usize> {
    let mut message = Message::new(rooms.iter_mut().map(Room::vector));
    assert!(message.bytes > 0, "no room to receive into: 0 bytes would read as the end of the stream");
    message.run(|header| {
        // SAFETY: the header's vectors cover memory that the rooms borrow exclusively, or shared memory whose
        // mapping they keep, to which no reference exists and which any party may write; the kernel writes
        // nothing beyond it.
        unsafe { libc::recvmsg(fd.as_raw_fd(), header, libc::MSG_DONTWAIT) }
    })
}

/// The argument of both system calls; borrows what the vectors point to.
struct Message<'a> {
    vectors: [MaybeUninit<libc::iovec>; PIECES_MAX],
    count: usize,
    bytes: usize,
    memory: PhantomData<&'a mut [u8]>,
}

impl<'a> Message<'a> {
    fn new(parts: impl Iterator<Item = libc::iovec> + 'a) -> Self {
        let mut vectors = [const { MaybeUninit::uninit() }; PIECES_MAX];
        let (mut count, mut bytes) = (0, 0_usize);
        for (vector, part) in vectors.iter_mut().zip(parts.filter(|part| part.iov_len > 0)) {
            vector.write(part);
            count += 1;
            bytes += part.iov_len;
        }
        Self { vectors, count, bytes, memory: PhantomData }
    }

    fn run(&mut self, mut call: impl FnMut(&mut libc::msghdr) -> isize) -> io::Result<usize> {
        // SAFETY: msghdr is integers and pointers, for which zeroes are valid.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = self.vectors.as_mut_ptr().cast();
        header.msg_iovlen = self.count as _;
        loop {
            if let Ok(done) = usize::try_from(call(&mut header)) {
                return Ok(done);
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

fn address(region: &Region, offset: usize, bytes: usize) -> *mut u8 {
    check(offset, bytes, region.len());
    region.as_ptr().wrapping_add(offset)
}

#[inline]
fn check(offset: usize, bytes: usize, of: usize) {
    assert!(bytes <= of && offset <= of - bytes, "{bytes} bytes at {offset} of {of}");
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn memory(region: &Region, offset: usize, bytes: usize) -> Piece<'_> {
        Piece::Memory { region, offset, bytes }
    }

    #[test]
    fn pieces_arrive_in_order_in_rooms_of_other_sizes() {
        let (left, right) = UnixStream::pair().expect("a pair");
        let (from, to) = (Region::anonymous(4096).expect("memory"), Region::anonymous(4096).expect("memory"));
        from.write(100, b"shared");
        let sent = send(
            left.as_fd(),
            &[Piece::Bytes(b"head"), Piece::Bytes(b""), memory(&from, 100, 6), Piece::Bytes(b"tail")],
        );
        assert_eq!(sent.expect("sent"), 14);
        let mut head = [0; 3];
        let mut rooms = [
            Room::Bytes(&mut head),
            Room::Memory { region: &to, offset: 4086, bytes: 10 },
            Room::Bytes(&mut []),
        ];
        assert_eq!(receive(right.as_fd(), &mut rooms).expect("received"), 13);
        assert_eq!(&head, b"hea");
        let mut rest = [0; 10];
        to.read(4086, &mut rest);
        assert_eq!(&rest, b"dsharedtai");
    }

    #[test]
    fn neither_call_waits_and_a_closed_peer_is_the_end_and_no_signal() {
        let (left, right) = UnixStream::pair().expect("a pair");
        let mut byte = [0; 1];
        let error = receive(right.as_fd(), &mut [Room::Bytes(&mut byte)]).expect_err("nothing is there");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        let block = [7; 4096];
        let mut queued = 0;
        let error = loop {
            match send(left.as_fd(), &[Piece::Bytes(&block); 3]) {
                Ok(bytes) => queued += bytes,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(queued > 0);
        drop(left);
        let mut rooms = [0; 4096];
        while queued > 0 {
            queued -= receive(right.as_fd(), &mut [Room::Bytes(&mut rooms)]).expect("what was queued");
        }
        assert_eq!(receive(right.as_fd(), &mut [Room::Bytes(&mut byte)]).expect("the end"), 0);
        assert_eq!(
            send(right.as_fd(), &[Piece::Bytes(b"x")]).expect_err("gone").kind(),
            io::ErrorKind::BrokenPipe
        );
    }

    #[test]
    fn a_call_takes_the_first_sixty_four_pieces_that_are_not_empty() {
        let (left, right) = UnixStream::pair().expect("a pair");
        let pieces: Vec<Piece<'_>> =
            (0..200).map(|i| Piece::Bytes(if i % 2 == 0 { b"" } else { b"ab" })).collect();
        assert_eq!(send(left.as_fd(), &pieces).expect("sent"), 2 * PIECES_MAX);
        assert_eq!(send(left.as_fd(), &[Piece::Bytes(b"")]).expect("nothing to send"), 0);
        let mut rooms = [[0; 1]; 100];
        let mut rooms: Vec<Room<'_>> = rooms.iter_mut().map(|room| Room::Bytes(room)).collect();
        assert_eq!(receive(right.as_fd(), &mut rooms).expect("received"), PIECES_MAX);
    }

    #[test]
    #[should_panic(expected = "8 bytes at 4089 of 4096")]
    fn a_piece_beyond_its_region_is_not_sent() {
        let (left, _right) = UnixStream::pair().expect("a pair");
        let region = Region::anonymous(4096).expect("memory");
        let _ = send(left.as_fd(), &[memory(&region, 4089, 8)]);
    }

    #[test]
    #[should_panic(expected = "no room")]
    fn receiving_into_nothing_is_a_mistake_and_no_end_of_stream() {
        let (left, _right) = UnixStream::pair().expect("a pair");
        let _ = receive(left.as_fd(), &mut [Room::Bytes(&mut [])]);
    }

    #[test]
    fn what_is_left_of_a_piece_and_of_a_room_is_copied_by_hand() {
        let region = Region::anonymous(4096).expect("memory");
        region.write(10, b"0123456789");
        let piece = memory(&region, 10, 10).skip(4);
        let mut out = [0; 3];
        assert_eq!((piece.len(), piece.copy_to(&mut out)), (6, 3));
        assert_eq!(&out, b"456");
        let mut room = Room::Memory { region: &region, offset: 10, bytes: 4 };
        assert_eq!(room.copy_from(2, b"xyz"), 2);
        let mut back = [0; 6];
        region.read(10, &mut back);
        assert_eq!(&back, b"01xy45");
    }
}
