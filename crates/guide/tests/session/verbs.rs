//! Operations by their names, for tests that are about what becomes of them.

use unvme::{BlockRange, DmaBuf, Lba, WriteOptions};
use unvme_guide::session::{
    Data, KvKey as Key, KvVerdict, Member, Op, OpError, QueueChoice, Returned, StoreOptions,
};

/// What a retrieve has brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Retrieved {
    pub(crate) copied: usize,
    pub(crate) value_bytes: u64,
}

type Queue = QueueChoice;
type Done<T = ()> = Result<T, OpError>;

/// Blocks of 512 bytes that hold so many bytes.
fn count(bytes: usize) -> u32 {
    bytes.div_ceil(512) as u32
}

fn placed(lba: u64, bytes: usize, options: WriteOptions) -> Op<'static> {
    Op::Write(BlockRange::new(Lba(lba), count(bytes)), options)
}

pub(crate) trait Verbs {
    fn member(&self) -> &Member;

    fn read(&self, queue: Queue, lba: u64, out: &mut [u8]) -> Done {
        Ok(self.member().call(queue, Op::read(lba, count(out.len())), Data::In(out)).map(drop)?)
    }
    fn write(&self, queue: Queue, lba: u64, data: &[u8]) -> Done {
        self.write_with(queue, lba, data, WriteOptions::default())
    }
    fn write_with(&self, queue: Queue, lba: u64, data: &[u8], options: WriteOptions) -> Done {
        Ok(self.member().call(queue, placed(lba, data.len(), options), Data::Out(data)).map(drop)?)
    }
    fn deallocate(&self, queue: Queue, lba: u64, blocks: u32) -> Done {
        let range = [BlockRange::new(Lba(lba), blocks)];
        Ok(self.member().call(queue, Op::Deallocate(&range), Data::None).map(drop)?)
    }
    fn read_async(&self, queue: Queue, lba: u64, blocks: u32, token: u64) -> Done {
        Ok(self.member().submit(queue, Op::read(lba, blocks), Data::None, token)?)
    }
    fn write_async(&self, queue: Queue, lba: u64, data: &[u8], token: u64) -> Done {
        self.write_async_with(queue, lba, data, WriteOptions::default(), token)
    }
    fn write_async_with(
        &self,
        queue: Queue,
        lba: u64,
        data: &[u8],
        options: WriteOptions,
        token: u64,
    ) -> Done {
        Ok(self.member().submit(queue, placed(lba, data.len(), options), Data::Out(data), token)?)
    }
    fn deallocate_async(&self, queue: Queue, lba: u64, blocks: u32, token: u64) -> Done {
        let range = [BlockRange::new(Lba(lba), blocks)];
        Ok(self.member().submit(queue, Op::Deallocate(&range), Data::None, token)?)
    }
    fn store(&self, queue: Queue, key: Key<'_>, value: &[u8], options: StoreOptions) -> Done {
        let op = Op::Store { key, bytes: value.len(), options };
        Ok(self.member().call(queue, op, Data::Out(value)).map(drop)?)
    }
    fn append(&self, queue: Queue, key: Key<'_>, value: &[u8]) -> Done {
        let op = Op::Append { key, bytes: value.len() };
        Ok(self.member().call(queue, op, Data::Out(value)).map(drop)?)
    }
    fn retrieve(&self, queue: Queue, key: Key<'_>, offset: u32, out: &mut [u8]) -> Done<Retrieved> {
        let op = Op::Retrieve { key, offset, bytes: out.len() };
        let outcome = self.member().call(queue, op, Data::In(out))?;
        Ok(Retrieved { copied: outcome.data_bytes, value_bytes: outcome.value_bytes })
    }
    fn delete(&self, queue: Queue, key: Key<'_>, must_exist: bool) -> Done {
        Ok(self.member().call(queue, Op::Delete { key, must_exist }, Data::None).map(drop)?)
    }
    fn exist(&self, queue: Queue, key: Key<'_>) -> Done<bool> {
        match self.member().call(queue, Op::Exist(key), Data::None).map_err(OpError::from) {
            Ok(_) => Ok(true),
            Err(OpError::Status(status)) if KvVerdict::of(status) == KvVerdict::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }
    fn store_async(
        &self,
        queue: Queue,
        key: Key<'_>,
        value: &[u8],
        options: StoreOptions,
        token: u64,
    ) -> Done {
        let op = Op::Store { key, bytes: value.len(), options };
        Ok(self.member().submit(queue, op, Data::Out(value), token)?)
    }
    fn append_async(&self, queue: Queue, key: Key<'_>, value: &[u8], token: u64) -> Done {
        let op = Op::Append { key, bytes: value.len() };
        Ok(self.member().submit(queue, op, Data::Out(value), token)?)
    }
    fn retrieve_async(&self, queue: Queue, key: Key<'_>, offset: u32, bytes: usize, token: u64) -> Done {
        Ok(self.member().submit(queue, Op::Retrieve { key, offset, bytes }, Data::None, token)?)
    }
    fn delete_async(&self, queue: Queue, key: Key<'_>, must_exist: bool, token: u64) -> Done {
        Ok(self.member().submit(queue, Op::Delete { key, must_exist }, Data::None, token)?)
    }
    fn exist_async(&self, queue: Queue, key: Key<'_>, token: u64) -> Done {
        Ok(self.member().submit(queue, Op::Exist(key), Data::None, token)?)
    }
    fn store_from(
        &self,
        queue: Queue,
        key: Key<'_>,
        buf: DmaBuf,
        bytes: usize,
        options: StoreOptions,
    ) -> Result<DmaBuf, Returned> {
        Ok(self.member().call(queue, Op::Store { key, bytes, options }, Data::Lent(buf))?.data.unwrap())
    }
    fn retrieve_into(
        &self,
        queue: Queue,
        key: Key<'_>,
        offset: u32,
        buf: DmaBuf,
        bytes: usize,
    ) -> Result<(Retrieved, DmaBuf), Returned> {
        let outcome = self.member().call(queue, Op::Retrieve { key, offset, bytes }, Data::Lent(buf))?;
        let got = Retrieved { copied: outcome.data_bytes, value_bytes: outcome.value_bytes };
        Ok((got, outcome.data.unwrap()))
    }
    fn store_from_async(
        &self,
        queue: Queue,
        key: Key<'_>,
        buf: DmaBuf,
        bytes: usize,
        options: StoreOptions,
        token: u64,
    ) -> Result<(), Returned> {
        self.member().submit(queue, Op::Store { key, bytes, options }, Data::Lent(buf), token)
    }
    fn retrieve_into_async(
        &self,
        queue: Queue,
        key: Key<'_>,
        offset: u32,
        buf: DmaBuf,
        bytes: usize,
        token: u64,
    ) -> Result<(), Returned> {
        self.member().submit(queue, Op::Retrieve { key, offset, bytes }, Data::Lent(buf), token)
    }
}

impl Verbs for Member {
    fn member(&self) -> &Member {
        self
    }
}
