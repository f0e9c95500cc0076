//! Who may put a value into a shard: the versions that the module's documentation explains.

use super::key::Scope;

/// Versions of a shard. Keys share them by hash: a value that is not kept because of another key is only kept
/// later.
const STRIPES: usize = 64;

/// One of a shard's versions, and what counts it on.
#[derive(Clone, Copy, Default)]
struct Stripe {
    /// Goes up whenever a write begins or ends.
    version: u64,
    /// Writes that have begun and not ended.
    writers: u32,
}

/// What may come into a shard.
pub(super) struct Gate {
    stripes: [Stripe; STRIPES],
    /// Goes up whenever a sweep begins or ends.
    sweep_version: u64,
    /// Sweeps that have begun and not ended, with what they are known by.
    sweeps: Vec<(u64, Scope)>,
}

/// The versions at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    version: u64,
    sweep_version: u64,
    /// Nothing was under way then that could change the pair.
    is_quiet: bool,
}

impl Gate {
    pub(super) fn new() -> Self {
        Self { stripes: [Stripe::default(); STRIPES], sweep_version: 0, sweeps: Vec::new() }
    }

    fn stripe_of(hash: u64) -> usize {
        // The highest bits choose the shard.
        (hash >> 32) as usize % STRIPES
    }

    fn is_swept(&self, key: &[u8]) -> bool {
        self.sweeps.iter().any(|(_, scope)| scope.covers(key))
    }

    pub(super) fn fill_begin(&self, hash: u64, key: &[u8]) -> Seen {
        let stripe = &self.stripes[Self::stripe_of(hash)];
        Seen {
            version: stripe.version,
            sweep_version: self.sweep_version,
            is_quiet: stripe.writers == 0 && !self.is_swept(key),
        }
    }

    /// Whether nothing has begun or ended since that could have changed the pair, nor was under way then.
    pub(super) fn is_unchanged(&self, hash: u64, seen: &Seen) -> bool {
        seen.is_quiet
            && self.stripes[Self::stripe_of(hash)].version == seen.version
            && self.sweep_version == seen.sweep_version
    }

    pub(super) fn write_begin(&mut self, hash: u64, key: &[u8]) -> Seen {
        let is_swept = self.is_swept(key);
        let stripe = &mut self.stripes[Self::stripe_of(hash)];
        let is_quiet = stripe.writers == 0 && !is_swept;
        stripe.writers += 1;
        stripe.version += 1;
        Seen { version: stripe.version, sweep_version: self.sweep_version, is_quiet }
    }

    /// True when the write was the only one from its beginning to its end.
    pub(super) fn write_end(&mut self, hash: u64, seen: &Seen) -> bool {
        let was_alone = self.is_unchanged(hash, seen);
        let stripe = &mut self.stripes[Self::stripe_of(hash)];
        stripe.writers -= 1;
        stripe.version += 1;
        was_alone
    }

    pub(super) fn sweep_begin(&mut self, sweep: u64, scope: Scope) {
        self.sweep_version += 1;
        self.sweeps.push((sweep, scope));
    }

    pub(super) fn sweep_end(&mut self, sweep: u64) {
        self.sweep_version += 1;
        self.sweeps.retain(|(other, _)| *other != sweep);
    }
}
