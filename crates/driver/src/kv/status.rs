//! What a status says about a pair, in either dialect.

use unvme_spec::{Status, samsung_kv};

/// What a status says about a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvVerdict {
    /// The command succeeded.
    Done,
    /// The key does not exist.
    NotFound,
    /// The key exists, which a store was not to find.
    Exists,
    /// The iterator has no more keys; what came with the completion is valid.
    EndOfIteration,
    /// There is no space for the pair.
    Full,
    /// Anything else: look at the status.
    Failed,
}

impl KvVerdict {
    /// Reads the status of a key-value command of either dialect.
    #[inline]
    pub fn of(status: Status) -> Self {
        if status.is_success() { Self::Done } else { Self::of_error(status.kind()) }
    }

    #[cold]
    fn of_error(kind: Status) -> Self {
        match kind {
            Status::KEY_NOT_FOUND | samsung_kv::status::KEY_NOT_FOUND => Self::NotFound,
            Status::KEY_EXISTS | samsung_kv::status::IDEMPOTENT_STORE_FAIL => Self::Exists,
            Status::CAPACITY_EXCEEDED | samsung_kv::status::CAPACITY_EXCEEDED => Self::Full,
            samsung_kv::status::ITERATE_END => Self::EndOfIteration,
            _ => Self::Failed,
        }
    }
}
