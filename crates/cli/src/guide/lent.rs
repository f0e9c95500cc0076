//! Values in buffers of the device: a thread fills them, they go with their commands, and nothing is copied.

use anyhow::Result;
use unvme::DmaBuf;
use unvme_guide::session::{Key, OpError, Returned, StoreOptions};

use super::lane::{Lane, Operands, Operation, room};
use super::pair::Target;
use super::record::Kind;

/// Bytes of a buffer for values of no bytes: a command takes one along all the same.
const BYTES_MIN: usize = 512;

impl Lane {
    /// Takes a buffer, and makes the value in it when it is to be stored.
    pub(super) fn prepare_lent(&self, operation: &Operation, operands: &mut Operands) -> Result<()> {
        let buf = match operands.buf.take().or_else(|| self.in_flight.take_buffer()) {
            Some(buf) => buf,
            None => {
                let bytes = (self.pairs.bytes_max() as usize).next_multiple_of(BYTES_MIN).max(BYTES_MIN);
                self.member.device().admin(|controller| controller.alloc(bytes))?
            }
        };
        if operation.kind == Kind::Store {
            self.pairs.fill_region(operation.id, buf.region(), &mut operands.value);
        }
        operands.buf = Some(buf);
        Ok(())
    }

    /// Does an operation with the buffer; the bytes of the value that was retrieved.
    pub(super) fn call_lent(
        &self,
        operation: &Operation,
        target: Target<'_>,
        operands: &mut Operands,
    ) -> Result<u64, OpError> {
        let (member, queue, stores) = (&self.member, self.choice, operation.kind == Kind::Store);
        let bytes = operation.size.value_bytes;
        let buf = taken(operands)?;
        let done = match target {
            Target::Key(key) => {
                let key = Key { keyspace: self.keyspace, bytes: key };
                if stores {
                    let options = StoreOptions::default();
                    member.store_from(queue, key, buf, bytes as usize, options).map(|buf| (0, buf))
                } else {
                    let retrieved = member.retrieve_into(queue, key, 0, buf, room(operation));
                    retrieved.map(|(got, buf)| (got.value_bytes, buf))
                }
            }
            Target::Blocks { lba, blocks } if stores => {
                member.write_from(queue, lba, blocks, buf).map(|buf| (0, buf))
            }
            Target::Blocks { lba, blocks } => {
                member.read_into(queue, lba, blocks, buf).map(|buf| (u64::from(bytes), buf))
            }
        };
        match done {
            Ok((value_bytes, buf)) => {
                operands.buf = Some(buf);
                Ok(value_bytes)
            }
            Err(Returned { error, buf }) => {
                operands.buf = buf;
                Err(error)
            }
        }
    }

    /// Submits an operation with the buffer, which comes back when it has ended.
    pub(super) fn submit_lent(
        &self,
        operation: &Operation,
        target: Target<'_>,
        operands: &mut Operands,
        token: u64,
    ) -> Result<(), OpError> {
        let (member, queue, stores) = (&self.member, self.choice, operation.kind == Kind::Store);
        let buf = taken(operands)?;
        let submitted = match target {
            Target::Key(bytes) => {
                let key = Key { keyspace: self.keyspace, bytes };
                if stores {
                    let (bytes, options) = (operation.size.value_bytes as usize, StoreOptions::default());
                    member.store_from_async(queue, key, buf, bytes, options, token)
                } else {
                    member.retrieve_into_async(queue, key, 0, buf, room(operation), token)
                }
            }
            Target::Blocks { lba, blocks } if stores => {
                member.write_from_async(queue, lba, blocks, buf, token)
            }
            Target::Blocks { lba, blocks } => member.read_into_async(queue, lba, blocks, buf, token),
        };
        submitted.map_err(|Returned { error, buf }| {
            operands.buf = buf;
            error
        })
    }
}

/// The buffer that was prepared.
fn taken(operands: &mut Operands) -> Result<DmaBuf, OpError> {
    // Only a device that was lost keeps a buffer, and after that nothing else is submitted.
    operands.buf.take().ok_or(OpError::Closed)
}
