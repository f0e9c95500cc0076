//! A lane that does what was recorded.

use anyhow::Result;
use unvme::{BlockRange, Lba, Op, WriteOptions};

use super::{Generator, Lane, Slot, Start};
use crate::perf::blend::{Kind, Sent};
use crate::perf::replay::Due;
use crate::perf::split::{Command, token};
use crate::trace;

impl Lane<'_> {
    /// Submits what was recorded and is due.
    pub(super) fn submit_recorded(&mut self, submitted_ns: u64) -> Result<usize> {
        let mut submitted = 0;
        while !self.generator.free.is_empty() {
            let Some(due) = self.generator.replay.as_mut().and_then(|replay| replay.take(submitted_ns))
            else {
                break;
            };
            self.left = self.left.map(|left| left.saturating_sub(1));
            let start = Start { due_ns: due.due_ns, submitted_ns };
            let Some((index, buf)) = self.generator.free.pop() else { break };
            match self.generator.begin_recorded(index, due, start) {
                None => self.generator.free.push((index, buf)),
                Some(Command::Op(op @ (Op::Read(..) | Op::Write(..)))) => self.launch(op, buf, index)?,
                Some(command) => self.send_whole(command, buf, token(index, 0))?,
            }
            submitted += 1;
        }
        Ok(submitted)
    }
}

impl Generator<'_> {
    /// The command of a request that was recorded; `None` where it covers no block.
    fn begin_recorded(&mut self, index: u32, due: Due, start: Start) -> Option<Command> {
        let Due { kind, lba, blocks, stream, .. } = due;
        if blocks == 0 && kind != trace::Kind::Flush {
            return None;
        }
        let range = BlockRange::new(Lba(lba), blocks);
        let placement = self.placements.as_ref().map(|placements| placements.of(stream));
        let options = WriteOptions { placement, ..WriteOptions::default() };
        let (kind, command) = match kind {
            trace::Kind::Read => (Kind::Data, Command::Op(Op::Read(range, Default::default()))),
            trace::Kind::Write => (Kind::Data, Command::Op(Op::Write(range, options))),
            trace::Kind::Trim => (Kind::Trim, Command::Deallocate(range)),
            trace::Kind::Flush => (Kind::Flush, Command::Op(Op::Flush)),
        };
        if let Some(blend) = &mut self.blend {
            blend.keep(index, Sent { kind, blocks });
        }
        let read = matches!(command, Command::Op(Op::Read(..)));
        self.slots[index as usize] = Slot { start, unit: lba, read, generation: 0 };
        Some(command)
    }
}
