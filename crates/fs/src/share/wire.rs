//! What goes between a client and its server, as bytes.
//!
//! Messages go by the socket, one in a packet, and have descriptors with them: they make a connection. Calls
//! go by a [slot](super::slot) of the connection's memory. Both are parsed from a copy that the other side
//! cannot change any more.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use unvme::cache::ShownSize;

use crate::access::Credentials;
use crate::calls::{OpenId, Reply, Request};
use crate::error::{Error, Result};

/// What both sides must agree on.
pub(super) const VERSION: u32 = 8;

/// Longest message.
pub(super) const MESSAGE_BYTES_MAX: usize = 512 << 10;

/// Most supplementary groups, as Linux has it.
pub(super) const GROUPS_MAX: usize = 65_536;

/// Who a client is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Process identifier, for those who ask who has a lock.
    pub pid: u32,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

impl Identity {
    /// This process's own: its effective user and group.
    pub fn own() -> Self {
        let groups = rustix::process::getgroups().unwrap_or_default();
        Self {
            pid: std::process::id(),
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            groups: groups.into_iter().map(rustix::fs::Gid::as_raw).collect(),
        }
    }

    /// In whose name the server does what is asked.
    pub(super) fn credentials(&self) -> Credentials {
        Credentials { uid: self.uid, gid: self.gid, groups: self.groups.clone(), are_checked: false }
    }
}

/// A process's number, and the namespace that it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Number {
    pub pid: u32,
    /// The inode number of `/proc/self/ns/pid`; 0 when it cannot be known.
    pub namespace: u64,
}

impl Number {
    /// This process's own.
    pub(super) fn own() -> Self {
        let namespace = rustix::fs::stat("/proc/self/ns/pid").map_or(0, |found| found.st_ino);
        Self { pid: std::process::id(), namespace }
    }
}

/// A message of a client.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Ask {
    /// One more process.
    Enter { version: u32, identity: Identity },
    /// The child that the process of a ticket is about to have.
    Fork { version: u32, ticket: u64 },
    /// The same process, which has forgotten its memory: by `execve`.
    Resume { version: u32 },
    /// The memory of a file that the process has mapped.
    Memory { ino: u64 },
    /// The same process has changed its user for good, and goes on by the socket that comes with this: it has
    /// made that since. What it had before is closed. `is_new_image`: see [`Ask::Resume`].
    Become { version: u32, identity: Identity, is_new_image: bool },
    /// A server without clients, that would end by itself, is to end now. EBUSY of any other one.
    Finish { version: u32 },
}

/// A message of the server.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// Comes with the descriptors of the control page and of the slots; and with those of the cache and of
    /// the sizes of files, if clients may read them. `server` is a number that no other server has.
    Welcome { index: u32, ticket: u64, server: u32, process: Number, pages: Option<ShownSize> },
    /// Comes with the descriptor of the file's memory, or says by an error's number that there is none.
    Memory { ino: u64, errno: Option<i32> },
    /// An error's number, and why.
    Refused { errno: i32, why: String },
    /// The server ends.
    Finishing,
}

/// What is asked through a slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Call<'a> {
    /// A request.
    Do(#[serde(borrow)] Request<'a>),
    /// The data are kept for the [`Call::DoStaged`] that follows.
    Stage,
    /// A request whose data begin with those that were kept.
    DoStaged(#[serde(borrow)] Request<'a>),
    /// Nothing: for those who want to know whether the server is there.
    Ping,
    /// See [`crate::FileSystem::reap_unnamed`].
    Reap,
    /// The process is another one, or acts for another user.
    Identify(Identity),
    /// See [`crate::calls::Process::keep_only`]; the data are the numbers of what stays open.
    KeepOnly,
    /// See [`crate::calls::Process::map`].
    Map { open: OpenId, is_stored_to: bool },
    /// See [`crate::calls::Process::store_to`].
    StoreTo { ino: u64 },
    /// See [`crate::calls::Process::sync_map`].
    SyncMap { ino: u64 },
    /// See [`crate::calls::Process::unmap`].
    Unmap { ino: u64 },
    /// An open file is to be read without asking.
    Watch { open: OpenId },
    /// As [`Request::Read`], of what the client reads in the server's memory then: no data come back.
    Fetch { open: OpenId, offset: u64 },
    /// As [`Call::Do`], for a thread that acts for another user than its process.
    DoAs(Identity, #[serde(borrow)] Request<'a>),
    /// See [`crate::calls::Process::map_range`].
    MapRange { open: OpenId, is_stored_to: bool, start: u64, end: u64 },
    /// See [`crate::calls::Process::load_map`].
    LoadMap { ino: u64, start: u64, end: u64 },
    /// As [`Call::DoStaged`], for a thread that acts for another user than its process.
    DoStagedAs(Identity, #[serde(borrow)] Request<'a>),
}

/// What comes of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Answered {
    Reply(Reply),
    /// Inode number, size.
    Mapped(u64, u64),
    /// Inode number, and the place of its size.
    Watched(u64, u32),
    /// An error's number.
    Error(i32),
}

/// Parses all of `bytes`.
pub(super) fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    let (value, rest) = postcard::take_from_bytes(bytes).ok()?;
    rest.is_empty().then_some(value)
}

pub(super) fn to_bytes<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    postcard::to_allocvec(value).map_err(|_| Error::Posix(Errno::OVERFLOW))
}

/// A number that the other side sent, as an error.
pub(super) fn error_of(errno: i32) -> Error {
    let is_one = (1..4096).contains(&errno);
    Error::Posix(if is_one { Errno::from_raw_os_error(errno) } else { Errno::IO })
}

/// Parses what a client can send, as the server does: whether it is something. For those who try everything.
#[doc(hidden)]
pub fn is_call(bytes: &[u8]) -> bool {
    let call = parse::<Call<'_>>(bytes);
    if let Some(call) = &call {
        // What was understood can be said, and is understood again.
        let said = to_bytes(call).unwrap_or_default();
        assert_eq!(parse::<Call<'_>>(&said).as_ref(), Some(call));
    }
    call.is_some() || parse::<Ask>(bytes).is_some()
}

/// As [`is_call`], of what a server can send.
#[doc(hidden)]
pub fn is_answer(bytes: &[u8]) -> bool {
    parse::<Answered>(bytes).is_some() || parse::<Answer>(bytes).is_some()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::calls::At;

    #[test]
    fn a_request_is_the_same_on_the_other_side() {
        let at = At { base: OpenId(7), path: b"a/b", follows: true };
        for request in [
            Request::Open { at, flags: 2, mode: 0o644 },
            Request::Rename { from: at, to: At { path: b"", ..at }, flags: 1 },
            Request::SetXattr { at, name: b"user.x", value: &[9; 300], flags: 0 },
            Request::List { open: OpenId(u64::MAX), cookie: 5, bytes: 32768 },
            Request::SyncAll,
        ] {
            let call = Call::Do(request);
            let bytes = to_bytes(&call).expect("encoded");
            assert_eq!(parse::<Call<'_>>(&bytes), Some(call.clone()));
            assert_eq!(parse::<Call<'_>>(&bytes[..bytes.len() - 1]), None, "{call:?} cut");
            let longer = [bytes.as_slice(), b"\0"].concat();
            assert_eq!(parse::<Call<'_>>(&longer), None, "{call:?} and more");
        }
    }

    #[test]
    fn numbers_that_are_no_errors_are_not_believed() {
        for (number, errno) in [(2, Errno::NOENT), (0, Errno::IO), (-3, Errno::IO), (70_000, Errno::IO)] {
            assert_eq!(error_of(number).errno(), errno);
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_is_parsed_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            is_call(&bytes);
            is_answer(&bytes);
        }

        #[test]
        fn what_was_changed_on_the_way_is_parsed_or_refused(at in 0_usize..40, to in any::<u8>()) {
            let at_path = At { base: OpenId(7), path: b"some/path", follows: true };
            let mut bytes = to_bytes(&Call::Do(Request::Link { from: at_path, to: at_path })).expect("encoded");
            if let Some(byte) = bytes.get_mut(at) {
                *byte = to;
            }
            is_call(&bytes);
        }
    }
}
