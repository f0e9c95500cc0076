//! What a die did when, for tests: that no plane is used twice at a time. Outside of tests it is nothing.

/// Times during which planes were used.
#[derive(Default)]
pub(super) struct Trace {
    #[cfg(test)]
    pub(super) uses: Vec<Use>,
    /// Work that was queued, in nanoseconds.
    #[cfg(test)]
    pub(super) pushed_ns: u64,
}

/// From `start` to before `end`.
#[cfg(test)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Use {
    /// `None` for all of them.
    pub(super) plane: Option<usize>,
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Trace {
    #[cfg(test)]
    pub(super) fn plane(&mut self, plane: usize, start: u64, end: u64) {
        self.uses.push(Use { plane: Some(plane), start, end });
    }

    #[cfg(test)]
    pub(super) fn all(&mut self, start: u64, end: u64) {
        self.uses.push(Use { plane: None, start, end });
    }

    #[cfg(test)]
    pub(super) const fn pushed(&mut self, duration: u64) {
        self.pushed_ns += duration;
    }

    #[cfg(not(test))]
    #[inline(always)]
    #[allow(clippy::unused_self)]
    pub(super) const fn pushed(&mut self, _duration: u64) {}

    #[cfg(not(test))]
    #[inline(always)]
    #[allow(clippy::unused_self)]
    pub(super) const fn plane(&mut self, _plane: usize, _start: u64, _end: u64) {}

    #[cfg(not(test))]
    #[inline(always)]
    #[allow(clippy::unused_self)]
    pub(super) const fn all(&mut self, _start: u64, _end: u64) {}
}
