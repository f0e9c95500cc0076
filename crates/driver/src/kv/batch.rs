//! Several pairs in one vendor command.

use unvme_spec::Status;
use unvme_spec::samsung_kv::{
    self, BATCH_COMMANDS_MAX, BatchCommand, BatchWriter, batch_result, delete_option, opcode, status,
};

use super::command::Need;
use super::{KvKey, KvNamespace, StoreOptions};
use crate::{DmaBuf, Error, KvCommand};

/// What a command in a batch takes at most besides its key and value: reserved bytes in front, and padding of
/// the two.
const BATCH_COMMAND_BYTES: usize = 3 * 64;

/// A command in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KvBatchOp<'a> {
    /// Stores a pair.
    Store {
        /// The key.
        key: KvKey<'a>,
        /// The value.
        value: &'a [u8],
        /// Options.
        options: StoreOptions,
    },
    /// Deletes a pair.
    Delete(KvKey<'a>),
}

impl<'a> KvBatchOp<'a> {
    /// The key it is about.
    pub fn key(&self) -> KvKey<'a> {
        match self {
            Self::Store { key, .. } | Self::Delete(key) => *key,
        }
    }

    /// The value it stores; empty for the others.
    pub fn value(&self) -> &'a [u8] {
        match self {
            Self::Store { value, .. } => value,
            Self::Delete(_) => &[],
        }
    }

    fn wire(&self) -> BatchCommand<'a> {
        let (opcode, option) = match self {
            Self::Store { options, .. } => (opcode::STORE, options.vendor()),
            Self::Delete(_) => (opcode::DELETE, delete_option::CHECK_EXISTENCE),
        };
        let KvKey { keyspace, bytes } = self.key();
        BatchCommand { opcode, keyspace, option, key: bytes, value: self.value() }
    }
}

impl KvNamespace {
    /// True when a vendor command could do this, and so a batch with it.
    pub fn can_batch(&self, op: &KvBatchOp<'_>) -> bool {
        let KvKey { keyspace, bytes } = op.key();
        self.has_batch()
            && (samsung_kv::KEY_BYTES_MIN..=samsung_kv::KEY_BYTES_MAX).contains(&bytes.len())
            && keyspace < samsung_kv::KEYSPACES
            && op.value().len() <= self.batch_value_bytes_max()
    }

    /// Most bytes of a value in a batch: all of it is in one buffer.
    fn batch_value_bytes_max(&self) -> usize {
        self.vendor_value_bytes_max().min(samsung_kv::VALUE_BYTES_MAX as usize)
    }

    /// Bytes of a data buffer that is enough for a batch of `ops`.
    pub fn batch_bytes(ops: &[KvBatchOp<'_>]) -> usize {
        ops.iter().fold(samsung_kv::BATCH_HEAD_BYTES, |sum, op| {
            sum.saturating_add(BATCH_COMMAND_BYTES + op.key().bytes.len()).saturating_add(op.value().len())
        })
    }

    /// Batch: writes the commands into `buf`, which goes with the command. What became of each is in the
    /// completion's result, see [`KvNamespace::batch_status`]. Errors: [`Error::Unsupported`] without the
    /// vendor's Batch; [`Error::InvalidArgument`] for no commands, more than [`BATCH_COMMANDS_MAX`], one that
    /// no vendor command can do, or more bytes than `buf` has.
    pub fn batch(&self, ops: &[KvBatchOp<'_>], buf: &mut DmaBuf) -> Result<KvCommand<'static>, Error> {
        if !self.has_batch() {
            return Err(self.lacking("batches"));
        }
        for op in ops {
            self.vendor_key(op.key(), Need::Nothing)?;
            self.vendor_bytes(op.key(), op.value().len())?;
        }
        let mut data = vec![0; Self::batch_bytes(ops).min(buf.len())];
        let mut batch = BatchWriter::new(&mut data);
        let written = batch.as_mut().is_some_and(|batch| ops.iter().all(|op| batch.push(op.wire())));
        let bytes = batch.map_or(0, |batch| batch.bytes());
        if ops.is_empty() || !written {
            return Err(Error::InvalidArgument(format!(
                "namespace {}: a batch of {} commands in a buffer of {} bytes: 1 to {BATCH_COMMANDS_MAX} commands are \
                 possible, and {} bytes are enough for these",
                self.nsid(),
                ops.len(),
                buf.len(),
                Self::batch_bytes(ops)
            )));
        }
        buf.write(0, &data[..bytes]);
        let command = samsung_kv::Command::Batch { commands: ops.len() as u8, dwords: (bytes / 4) as u32 };
        let sqe = command.encode(self.target(0), self.keyspace_field);
        Ok(KvCommand { sqe, bytes, long_key: None, is_prp_only: true })
    }

    /// What became of command `index` of a batch that was processed, as the status that the command alone
    /// would have ended with.
    pub fn batch_status(result: u64, index: usize) -> Status {
        match batch_result::of(result as u32, index as u32) {
            batch_result::SUCCESS => Status::SUCCESS,
            batch_result::INVALID_VALUE_SIZE => status::INVALID_VALUE_SIZE,
            batch_result::INVALID_KEY_SIZE => status::INVALID_KEY_SIZE,
            batch_result::UNSUPPORTED_OPCODE => Status::INVALID_OPCODE,
            batch_result::INVALID_OPTION => status::INVALID_OPTION,
            batch_result::INVALID_KEYSPACE => status::INVALID_KEYSPACE,
            batch_result::KEY_NOT_FOUND | batch_result::UPDATE_STORE_FAIL => status::KEY_NOT_FOUND,
            batch_result::UNRECOVERED_ERROR => status::UNRECOVERED_ERROR,
            batch_result::CAPACITY_EXCEEDED => status::CAPACITY_EXCEEDED,
            batch_result::IDEMPOTENT_STORE_FAIL => status::IDEMPOTENT_STORE_FAIL,
            // A code that nobody has given a meaning.
            _ => Status::INTERNAL_ERROR,
        }
    }
}
