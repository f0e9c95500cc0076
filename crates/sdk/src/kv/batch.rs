//! Several stores and deletes in one call.

use unvme_driver::{DmaBuf, KvBatchOp, KvKey, KvNamespace, Queue, StoreOptions};
use unvme_spec::Status;
use unvme_spec::samsung_kv::BATCH_COMMANDS_MAX;

use super::Kv;
use crate::block::collect;
use crate::{Error, Result};

/// Most bytes of a vendor batch that has more than one command.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// An operation of [`Kv::batch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BatchOp<'a> {
    /// Stores a pair.
    Store {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
        /// Options.
        options: StoreOptions,
    },
    /// Deletes a pair.
    Delete(&'a [u8]),
}

impl<'a> BatchOp<'a> {
    /// Stores a pair, whether or not there is one of that key.
    pub fn store(key: &'a [u8], value: &'a [u8]) -> Self {
        Self::Store { key, value, options: StoreOptions::default() }
    }

    fn in_keyspace(self, keyspace: u8) -> KvBatchOp<'a> {
        match self {
            Self::Store { key, value, options } => {
                KvBatchOp::Store { key: KvKey { keyspace, bytes: key }, value, options }
            }
            Self::Delete(key) => KvBatchOp::Delete(KvKey { keyspace, bytes: key }),
        }
    }
}

impl Kv {
    /// Does `ops` as if one after another, and returns the status of each: success, or what
    /// [`unvme_driver::KvVerdict::of`] understands. A batch is not atomic: some may succeed and others fail.
    ///
    /// On a device with the vendor's Batch, eight go in a command; on others, several commands are under way
    /// at a time.
    ///
    /// # Errors
    /// [`Error::Argument`] and [`Error::Unsupported`], as [`Kv::store`] and before anything is sent, when
    /// there is an operation the device cannot do; [`Error::Device`] when it refused a whole batch;
    /// [`Error::Driver`]. What was sent before is done.
    pub fn batch(&mut self, ops: &[BatchOp<'_>]) -> Result<Vec<Status>> {
        let ops: Vec<KvBatchOp<'_>> = ops.iter().map(|op| op.in_keyspace(self.keyspace)).collect();
        for op in &ops {
            self.made(encode(&self.namespace, op))?;
        }
        let mut statuses = Vec::with_capacity(ops.len());
        while let Some(rest) = ops.get(statuses.len()..).filter(|rest| !rest.is_empty()) {
            let together = self.together(rest);
            if together > 1 {
                self.run_batch(&rest[..together], &mut statuses)?;
            } else {
                let alone = if self.namespace.has_batch() { 1 } else { rest.len() };
                self.run_each(&rest[..alone], &mut statuses)?;
            }
        }
        Ok(statuses)
    }

    /// How many operations at the start of `ops` one vendor batch takes.
    fn together(&self, ops: &[KvBatchOp<'_>]) -> usize {
        let most = ops.len().min(BATCH_COMMANDS_MAX);
        (1..=most)
            .take_while(|count| {
                self.namespace.can_batch(&ops[count - 1])
                    && KvNamespace::batch_bytes(&ops[..*count]) <= BATCH_BYTES_MAX
            })
            .last()
            .unwrap_or(0)
    }

    fn run_batch(&mut self, ops: &[KvBatchOp<'_>], statuses: &mut Vec<Status>) -> Result<()> {
        let mut buf = self.buffer(KvNamespace::batch_bytes(ops))?;
        let command = self.made(self.namespace.batch(ops, &mut buf))?;
        let completion = self.run(command, Some(buf))?;
        if completion.result == 0 {
            // No command has failed, or none was looked at.
            self.check("batch", completion.status)?;
        }
        statuses.extend((0..ops.len()).map(|index| KvNamespace::batch_status(completion.result, index)));
        self.keep(completion.buf);
        Ok(())
    }

    /// One command for each operation, as many at a time as the queue takes. A device may do them in any
    /// order: before one on a key that is under way, all others have finished.
    fn run_each(&mut self, ops: &[KvBatchOp<'_>], statuses: &mut Vec<Status>) -> Result<()> {
        let mut queue = match self.queue.take() {
            Some(queue) => queue,
            None => Self::make_queue(&self.name, &self.controller, &self.namespace)?,
        };
        let first = statuses.len();
        statuses.resize(first + ops.len(), Status::SUCCESS);
        let done = self.submit_each(&mut queue, ops, &mut statuses[first..]);
        self.queue = Some(queue);
        self.part_from_queue();
        done
    }

    fn submit_each(
        &mut self,
        queue: &mut Queue,
        ops: &[KvBatchOp<'_>],
        statuses: &mut [Status],
    ) -> Result<()> {
        let mut buffers: Vec<DmaBuf> = self.buf.take().into_iter().collect();
        // The first of those that are under way: they are few, and all behind it.
        let mut begun = 0;
        for (index, op) in ops.iter().enumerate() {
            let is_busy = ops[begun..index].iter().any(|other| other.key() == op.key());
            if is_busy || queue.outstanding() == queue.capacity() {
                self.finish_each(queue, statuses, &mut buffers)?;
                begun = index;
            }
            let command = self.made(encode(&self.namespace, op))?;
            let value = op.value();
            let buf = match value.is_empty() {
                true => None,
                false => {
                    let fitting = buffers.iter().position(|buf| buf.len() >= value.len());
                    let mut buf = match fitting {
                        Some(at) => buffers.swap_remove(at),
                        None => self.buffer(value.len())?,
                    };
                    buf.write(0, value);
                    Some(buf)
                }
            };
            // An error here drops the queue, and with it what is outstanding.
            queue
                .submit_kv(command, buf, index as u64)
                .map_err(|rejected| Error::driver(self.name.as_str(), rejected.error))?;
        }
        self.finish_each(queue, statuses, &mut buffers)?;
        self.keep(buffers.into_iter().max_by_key(DmaBuf::len));
        Ok(())
    }

    fn finish_each(
        &self,
        queue: &mut Queue,
        statuses: &mut [Status],
        buffers: &mut Vec<DmaBuf>,
    ) -> Result<()> {
        collect(&self.name, queue, |completion| {
            if let Some(status) = statuses.get_mut(completion.token as usize) {
                *status = completion.status;
            }
            buffers.extend(completion.buf);
        })
    }
}

fn encode<'a>(
    namespace: &KvNamespace,
    op: &KvBatchOp<'a>,
) -> std::result::Result<unvme_driver::KvCommand<'a>, unvme_driver::Error> {
    match op {
        KvBatchOp::Delete(key) => namespace.delete(*key),
        KvBatchOp::Store { key, value, options } => namespace.store(*key, value.len(), *options),
        _ => unreachable!("operations of this module are stores and deletes"),
    }
}
