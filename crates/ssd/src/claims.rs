//! Claims of namespaces: hosts that keep all others from changing one ([`unvme_spec::claim`]).
//!
//! The subsystem has the list. Each controller has a bit map of the namespaces that it must not change, so
//! that a command that changes one costs a load of a word, and a mounted file system no lock. A claim is
//! answered when every I/O queue has been locked once since the bits were set: no write that was admitted
//! before is still at work then.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use unvme_spec::{Nsid, Status};

use crate::limits::NAMESPACES_MAX;

/// What a command is refused with that a claim does not admit.
pub(crate) const CONFLICT: Status = Status::RESERVATION_CONFLICT.with_do_not_retry();
/// Words of a bit map of all namespaces.
const WORDS: usize = NAMESPACES_MAX.div_ceil(u64::BITS) as usize;

/// One claim.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) nsid: u32,
    pub(crate) cntlid: u16,
    /// This controller changes the namespace and no other; if not, none does.
    pub(crate) is_alone: bool,
    /// Who has it, in words.
    pub(crate) holder: String,
}

impl Claim {
    fn keeps_out(&self, cntlid: u16) -> bool {
        !self.is_alone || self.cntlid != cntlid
    }
}

/// The claims of all controllers of a subsystem.
#[derive(Debug, Default)]
pub(crate) struct Claims(pub(crate) Mutex<Vec<Claim>>);

/// The namespaces that a controller must not change.
#[derive(Debug, Default)]
pub(crate) struct Excluded {
    is_any: AtomicBool,
    words: [AtomicU64; WORDS],
}

impl Excluded {
    // Relaxed, here and below: a claim is in force after each queue has been locked since, which orders it.

    /// True when there is a namespace that the controller must not change.
    #[inline(always)]
    pub(crate) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Relaxed)
    }

    /// True when the controller must not change a namespace; of FFFFFFFFh, any of them.
    pub(crate) fn covers(&self, nsid: u32) -> bool {
        if Nsid(nsid) == Nsid::ALL {
            return self.is_any();
        }
        let index = nsid.wrapping_sub(1);
        let word = self.words.get((index / u64::BITS) as usize);
        word.is_some_and(|word| word.load(Ordering::Relaxed) >> (index % u64::BITS) & 1 != 0)
    }

    pub(crate) fn set(&self, claims: &[Claim], cntlid: u16) {
        let mut words = [0; WORDS];
        for claim in claims.iter().filter(|claim| claim.keeps_out(cntlid)) {
            let index = claim.nsid.wrapping_sub(1);
            if let Some(word) = words.get_mut((index / u64::BITS) as usize) {
                *word |= 1_u64 << (index % u64::BITS);
            }
        }
        for (word, value) in self.words.iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
        self.is_any.store(words.iter().any(|word| *word != 0), Ordering::Relaxed);
    }
}
