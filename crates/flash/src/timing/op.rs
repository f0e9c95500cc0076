//! Flash operations, as the data path notes them and the model takes them.

/// An operation on flash. Pages are physical pages of 4 KiB, units are reclaim units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlashOp {
    /// Reads a page.
    Read {
        /// Physical page number.
        ppn: u32,
    },
    /// Programs a page.
    Program {
        /// Physical page number.
        ppn: u32,
    },
    /// Erases a reclaim unit.
    Erase {
        /// Number of the unit: the physical page number of its first page divided by the pages of a unit.
        unit: u32,
    },
}

/// On whose behalf an operation is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The command's: it waits for the operation, or for a place in the write buffer.
    Host,
    /// The device's own (reclaim, wear levelling): nobody waits for it, but it keeps dies and channels busy.
    Reclaim,
}

/// An operation and its cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NotedOp {
    /// What is done.
    pub op: FlashOp,
    /// For whom.
    pub cause: Cause,
}

/// The operations of one command, in the order in which they depend on each other: what reclaim reads comes
/// before the program of the same page.
///
/// A list that is off takes no notes: noting costs one test of a bool then.
#[derive(Clone, Debug, Default)]
pub struct OpList {
    is_on: bool,
    ops: Vec<NotedOp>,
}

impl OpList {
    /// A list that takes notes, or none at all.
    pub const fn new(is_on: bool) -> Self {
        Self { is_on, ops: Vec::new() }
    }

    /// True when notes are taken; lets a caller skip work that only notes need.
    #[inline]
    pub const fn is_on(&self) -> bool {
        self.is_on
    }

    /// Notes an operation.
    #[inline]
    pub fn note(&mut self, op: FlashOp, cause: Cause) {
        if self.is_on {
            self.push(NotedOp { op, cause });
        }
    }

    #[cold]
    fn push(&mut self, noted: NotedOp) {
        self.ops.push(noted);
    }

    /// What was noted.
    pub fn ops(&self) -> &[NotedOp] {
        &self.ops
    }

    /// Takes over what another list has noted.
    pub fn append(&mut self, other: &mut Self) {
        if self.is_on {
            self.ops.append(&mut other.ops);
        }
    }

    /// Forgets what was noted; the memory is kept.
    pub fn clear(&mut self) {
        self.ops.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_keeps_the_order_and_one_that_is_off_keeps_nothing() {
        let (read, erase) = (FlashOp::Read { ppn: 7 }, FlashOp::Erase { unit: 1 });
        let mut list = OpList::new(true);
        list.note(read, Cause::Host);
        list.note(erase, Cause::Reclaim);
        let expected =
            [NotedOp { op: read, cause: Cause::Host }, NotedOp { op: erase, cause: Cause::Reclaim }];
        assert_eq!(list.ops(), expected);
        let mut more = OpList::new(true);
        more.note(read, Cause::Reclaim);
        list.append(&mut more);
        assert_eq!((list.ops().len(), more.ops().len()), (3, 0));
        list.clear();
        assert!(list.ops().is_empty() && list.is_on());
        let mut off = OpList::default();
        off.note(read, Cause::Host);
        assert!(off.ops().is_empty() && !off.is_on());
    }
}
