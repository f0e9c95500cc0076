//! What a controller has claimed ([`unvme_spec::claim`]).

use std::sync::Mutex;

use unvme_bus::lock;
use unvme_spec::claim::{ClaimSend, HOLDER_BYTES_MAX};
use unvme_spec::{Nsid, Sqe};

/// Whether the claims of one namespace admit others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimKind {
    /// This controller changes the namespace, and no other does.
    Alone,
    /// No host changes the namespace: several hosts may claim it so.
    WithOthers,
}

/// What a controller has claimed: it is claimed again after each reset, before any queue is created.
#[derive(Debug, Default)]
pub(crate) struct Claimed(Mutex<Vec<(Nsid, ClaimKind, String)>>);

impl Claimed {
    /// The commands that claim all of it again, with their data.
    pub(crate) fn commands(&self) -> Vec<(Sqe, Vec<u8>)> {
        let claims = lock(&self.0);
        claims.iter().map(|(nsid, kind, holder)| command(*nsid, *kind, holder)).collect()
    }

    pub(crate) fn add(&self, nsid: Nsid, kind: ClaimKind, holder: &str) {
        lock(&self.0).push((nsid, kind, holder.to_owned()));
    }

    pub(crate) fn remove(&self, nsid: Nsid, kind: ClaimKind) {
        let mut claims = lock(&self.0);
        if let Some(index) = claims.iter().position(|claim| (claim.0, claim.1) == (nsid, kind)) {
            claims.remove(index);
        }
    }
}

/// Claim Send, and its data.
pub(crate) fn command(nsid: Nsid, kind: ClaimKind, holder: &str) -> (Sqe, Vec<u8>) {
    // A name that is too long is cut between two characters; the process's number comes first.
    let mut end = holder.len().min(HOLDER_BYTES_MAX as usize);
    while !holder.is_char_boundary(end) {
        end -= 1;
    }
    let words: String = holder[..end].chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    let bytes = words.len() as u32;
    let send = match kind {
        ClaimKind::Alone => ClaimSend::Alone { bytes },
        ClaimKind::WithOthers => ClaimSend::WithOthers { bytes },
    };
    (send.encode(nsid.0), words.into_bytes())
}
