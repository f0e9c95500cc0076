//! Pages on their way to or from the device.

use std::ops::Range;

/// Why pages are claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// They are being read. What was read is not kept when somebody wrote meanwhile.
    Filling { is_spoiled: bool },
    /// They are being written, or are to be, by one at a time.
    Writing,
}

/// Pages on their way to or from the device.
///
/// Those who write stand in line: a claim holds when no older one is on any of its pages. So nobody is passed
/// over, however often others come back. Whoever claims pages to write has his turn to send a command
/// already ([`super::arbiter`]), and keeps it: nobody waits for a turn while others wait for his claim.
#[derive(Debug, Default)]
pub(super) struct Claims {
    next: u64,
    list: Vec<(u64, Range<u64>, Use)>,
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

impl Claims {
    fn add(&mut self, pages: Range<u64>, what: Use) -> u64 {
        self.next += 1;
        self.list.push((self.next, pages, what));
        self.next
    }

    pub(super) fn fill(&mut self, pages: Range<u64>) -> u64 {
        // Whoever writes now may be done before this is, and after what is read.
        let is_spoiled = self.is_written(&pages);
        self.add(pages, Use::Filling { is_spoiled })
    }

    /// Whether somebody writes any of these pages, or is to.
    pub(super) fn is_written(&self, pages: &Range<u64>) -> bool {
        self.written(pages).next().is_some()
    }

    /// What of these pages somebody writes, or is to.
    pub(super) fn written<'a>(&'a self, pages: &'a Range<u64>) -> impl Iterator<Item = Range<u64>> + 'a {
        let of_them = move |(_, other, what): &(u64, Range<u64>, Use)| {
            (*what == Use::Writing && overlap(other, pages))
                .then(|| other.start.max(pages.start)..other.end.min(pages.end))
        };
        self.list.iter().filter_map(of_them)
    }

    /// A claim to write pages, behind those that there are.
    pub(super) fn write(&mut self, pages: Range<u64>) -> u64 {
        for (_, other, what) in &mut self.list {
            if let Use::Filling { is_spoiled } = what {
                *is_spoiled |= overlap(other, &pages);
            }
        }
        self.add(pages, Use::Writing)
    }

    /// Whether a claim to write holds.
    pub(super) fn holds(&self, claim: u64) -> bool {
        let Some((_, pages, _)) = self.list.iter().find(|(id, ..)| *id == claim) else { return false };
        let is_before = |(id, other, what): &(u64, Range<u64>, Use)| {
            *id < claim && *what == Use::Writing && overlap(other, pages)
        };
        !self.list.iter().any(is_before)
    }

    /// A claim is over. Returns whether what was read may be kept.
    pub(super) fn end(&mut self, claim: u64) -> bool {
        let Some(at) = self.list.iter().position(|(id, _, _)| *id == claim) else { return false };
        self.list.swap_remove(at).2 == Use::Filling { is_spoiled: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_to_write_hold_in_the_order_they_came() {
        let mut claims = Claims::default();
        let [first, second, third, apart] = [0..4, 3..6, 0..2, 6..8].map(|pages| claims.write(pages));
        assert!(claims.holds(first) && !claims.holds(second) && !claims.holds(third) && claims.holds(apart));
        claims.end(first);
        assert!(claims.holds(second) && claims.holds(third));
        // One that comes is behind one that waits.
        let again = claims.write(5..9);
        assert!(!claims.holds(again));
        claims.end(second);
        assert!(!claims.holds(again));
        claims.end(apart);
        assert!(claims.holds(again));
    }

    #[test]
    fn what_was_read_while_somebody_wrote_is_not_kept() {
        let mut claims = Claims::default();
        let [before, apart] = [0..4, 4..8].map(|pages| claims.fill(pages));
        let write = claims.write(2..3);
        let behind = claims.fill(0..8);
        assert!(!claims.end(before) && claims.end(apart));
        claims.end(write);
        assert!(!claims.end(behind));
    }
}
