//! A lane of pairs.

use anyhow::{Context, Result};
use unvme::{DmaBuf, KvCompletion, KvVerdict, Op, Status};
use unvme_spec::kv::LIST_HEADER_BYTES;

use super::{Generator, Lane, Sink, Slot, Start};
use crate::perf::pairs::Task;
use crate::perf::pattern::Verb;
use crate::perf::watch::Watch;

impl Lane<'_> {
    /// As [`Lane::submit`], of a pair.
    pub(super) fn submit_pair(&mut self, start: Start) -> Result<()> {
        let generator = &mut self.generator;
        let Some((index, buf)) = generator.free.pop() else { return Ok(()) };
        let drawn = generator.addresses.next_unit();
        let read = generator.addresses.next_is_read();
        let value_bytes = match &mut generator.blend {
            Some(blend) => blend.next(read).blocks,
            None => generator.unit.blocks,
        };
        let Some(pairs) = &mut generator.pairs else { return Ok(()) };
        let (verb, number) = pairs.next(drawn, read);
        pairs.keep(index, Task { verb, value_bytes });
        generator.slots[index as usize] = Slot { start, unit: number, read, generation: 0 };
        self.send_pair(index, buf)
    }

    /// Submits the second half of what has a first; how many commands that were.
    pub(super) fn go_on(&mut self) -> Result<usize> {
        let mut submitted = 0;
        while let Some((index, buf)) = self.generator.pairs.as_mut().and_then(|pairs| pairs.second.pop()) {
            self.send_pair(index, buf)?;
            submitted += 1;
        }
        Ok(submitted)
    }

    fn send_pair(&mut self, index: u32, buf: DmaBuf) -> Result<()> {
        let generator = &mut self.generator;
        let (Some(pairs), Sink::Pairs(queue)) = (&mut generator.pairs, &mut self.sink) else { return Ok(()) };
        let (task, number) = (pairs.task(index), generator.slots[index as usize].unit);
        pairs.keys.write(number, &mut pairs.key);
        let key = &pairs.key[..];
        let op = match task.verb {
            Verb::Retrieve | Verb::Modify => Op::retrieve(key, generator.unit.bytes()),
            Verb::Store | Verb::Insert => Op::store(key, task.value_bytes as usize),
            Verb::Exist => Op::Exist(key.into()),
            Verb::Delete => Op::Delete { key: key.into(), must_exist: true },
            Verb::List => {
                let keys = pairs.random.below(pairs.keys.scan_max.into()) as usize + 1;
                let bytes = LIST_HEADER_BYTES + keys * pairs.keys.entry_bytes();
                Op::List { start: key, bytes: bytes.next_multiple_of(4) }
            }
        };
        queue.submit(op, Some(buf), index.into()).with_context(|| generator.device.to_owned())
    }
}

impl Generator<'_> {
    /// As [`Generator::finish_all`], of pairs.
    pub(super) fn finish_pairs(
        &mut self,
        completions: impl Iterator<Item = KvCompletion>,
        watch: Watch<'_>,
    ) -> Result<Option<u64>> {
        let mut end_ns = None;
        for completion in completions {
            let end_ns = *end_ns.get_or_insert_with(|| watch.ns());
            self.finish_pair(completion, end_ns)?;
        }
        Ok(end_ns)
    }

    fn finish_pair(&mut self, completion: KvCompletion, end_ns: u64) -> Result<()> {
        let KvCompletion { token, status, value_bytes, buf } = completion;
        let index = token as u32;
        let slot = *self.slots.get(index as usize).context("a completion of no command")?;
        let task = self.pairs.as_ref().map(|pairs| pairs.task(index)).unwrap_or_default();
        let Some(buf) = buf else {
            let (device, what) = (self.device, self.name_pair(slot, task.verb));
            anyhow::bail!("{device}: {what}: {status}; the controller was lost with its buffers");
        };
        let verdict = KvVerdict::of(status);
        let missed = verdict == KvVerdict::NotFound;
        if verdict != KvVerdict::Done && !missed {
            self.fail_pair(slot, task.verb, status);
            self.free.push((index, buf));
            return Ok(());
        }
        let mut listed = 0;
        let bytes = match task.verb {
            Verb::Store | Verb::Insert => u64::from(task.value_bytes),
            Verb::Retrieve | Verb::Modify if !missed => u64::from(value_bytes).min(self.unit.bytes() as u64),
            Verb::List => {
                let mut header = [0; LIST_HEADER_BYTES];
                buf.read(0, &mut header);
                listed = u64::from(u32::from_le_bytes(header));
                let each = self.pairs.as_ref().map_or(0, |pairs| pairs.keys.entry_bytes());
                LIST_HEADER_BYTES as u64 + listed * each as u64
            }
            _ => 0,
        };
        self.counters.found(missed, listed, end_ns);
        self.counters.moved(bytes, end_ns);
        if let (Verb::Modify, Some(pairs)) = (task.verb, &mut self.pairs) {
            pairs.keep(index, Task { verb: Verb::Store, ..task });
            pairs.second.push((index, buf));
            return Ok(());
        }
        self.counters.succeeded(slot.read, slot.start.due_ns, end_ns);
        if let Some(device) = &mut self.counters.from_submission {
            device.succeeded(slot.start.submitted_ns, end_ns);
        }
        self.free.push((index, buf));
        if let Some(breaks) = &mut self.breaks {
            breaks.rest(&mut self.free, end_ns);
        }
        Ok(())
    }

    /// What has a second half does not get it any more.
    pub(super) fn end_pairs(&mut self) {
        if let Some(pairs) = &mut self.pairs {
            self.free.append(&mut pairs.second);
        }
    }

    #[cold]
    fn fail_pair(&mut self, slot: Slot, verb: Verb, status: Status) {
        let what = self.name_pair(slot, verb);
        let why = match (status.kind(), &self.controller) {
            (Status::ABORTED_BY_HOST, Some(controller)) => controller.ended_by(),
            _ => None,
        };
        self.counters.failed(|| match why {
            Some(why) => format!("{what}: {why} ({status})"),
            None => format!("{what}: {status}"),
        });
    }

    fn name_pair(&self, slot: Slot, verb: Verb) -> String {
        let mut key = Vec::new();
        if let Some(pairs) = &self.pairs {
            key.resize(pairs.key.len(), 0);
            pairs.keys.write(slot.unit, &mut key);
        }
        format!("{} of key {}", verb.name(), key.escape_ascii())
    }
}
