//! I/O handles: several ways to one device or to parts of it, each with policies of its own.
//!
//! A [`Handle`] leads to a partition, a range of blocks of a namespace. What it does about caching,
//! scheduling, completion, streams and queues is its own ([`Policies`]), and can be changed while it is
//! open. All handles of a [`Device`] know each other:
//!
//! - Their commands pass one arbiter, over all queues and threads of the process, which says who sends next
//!   ([`Schedule`], [`Limit`]). While more than one is awake, no more than a window is in flight
//!   ([`Device::set_handle_window`]), so that what one has sent does not stand before what another sends.
//! - What is cached is looked up in one table for the namespace: handles may overlap, and what one has
//!   written the others read, whatever their policies are. Each handle has a budget of its own. What goes to
//!   the namespace past all handles is not seen by the table.
//!
//! ```
//! use unvme::handle::HandleOptions;
//! use unvme::{Nsid, OpenOptions, open};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = open("mem:block:64M", &OpenOptions::default())?;
//! let log = HandleOptions { blocks: Some(0..8192), policies: "sched=share:8,queue=own".parse()? };
//! let data = HandleOptions { blocks: Some(8192..131_072), policies: "cache=write-back:16M".parse()? };
//! let (log, data) = (device.handle(Nsid(1), &log)?, device.handle(Nsid(1), &data)?);
//! data.write(0, &[7; 4096])?;
//! log.write(0, &[1; 512])?;
//! // Durable from here on.
//! data.flush()?;
//! // Another policy, at once.
//! data.set(&"cache=read:16M,limit=iops:5000".parse()?)?;
//! let mut block = [0; 512];
//! data.read(7, &mut block)?;
//! assert_eq!(block, [7; 512]);
//! # Ok(())
//! # }
//! ```
//!
//! # The contract
//!
//! **Who may call what.** Everything, from any thread.
//!
//! **Writing back.** A write of a handle that writes back has ended when it is in memory. It is on the device
//! after [`Handle::flush`], which returns when everything that was written before by way of the handle, and
//! what others have written to its blocks, is there and is durable. What could not be written stays in
//! memory and waits on; the error is that of the next flush, once, and every flush tries again. A handle
//! that is [closed](Handle::close) or dropped writes what waits; it does not flush. What it cannot write is
//! lost: the next flush of each handle that has blocks of it fails, too, as others may have written there. No
//! more waits than [`Caching::dirty_bytes`]: whoever writes more writes some of it to the device first.
//!
//! **Order.** As for queues: none between requests that are under way at a time. A flush covers what has
//! ended.
//!
//! **Requests** that are [submitted](Handle::submit) make progress when somebody polls or waits for any
//! handle of the device. Of a handle that caches they are answered at once when memory suffices, and a flush
//! is done in the call.
//!
//! What it does not implement: byte offsets that are no multiples of a block, reading ahead, and writing
//! back by a thread of its own after a time.

mod aio;
mod arbiter;
mod bucket;
mod claims;
mod flight;
mod hub;
mod inner;
mod policy;
mod request;
mod table;
mod text;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use unvme_bus::DmaBuf;
use unvme_spec::Nsid;

use crate::{Device, Error, Result};

pub use aio::OUTSTANDING_MAX;
pub use arbiter::{FIFO_DEADLINE, WINDOW};
pub(crate) use hub::Desk;
use inner::Inner;
pub use policy::{
    CACHE_BYTES_MIN, CacheMode, Caching, Chooser, Completing, Limit, Policies, Queueing, RATE_MAX, SHARE_MAX,
    Schedule, TIME_MAX,
};
pub use request::{Completed, NotTaken, Request, RequestKind};
pub use text::{NotAPolicy, POLICY_SYNTAX};
pub use unvme_spec::admin::QueuePriority;

/// How a handle is opened.
#[derive(Clone, Debug, Default)]
pub struct HandleOptions {
    /// Its partition; the whole namespace without.
    pub blocks: Option<Range<u64>>,
    /// What it does.
    pub policies: Policies,
}

/// What a handle has, and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandleStatistics {
    /// Its cache; all 0 without one.
    pub cache: crate::cache::Counts,
    /// Requests that were submitted and not polled.
    pub outstanding: usize,
}

/// A way to a partition of a device, with policies. See the [module](self).
#[derive(Debug)]
pub struct Handle {
    inner: Arc<Inner>,
    is_closed: bool,
}

impl Device {
    /// Opens a handle of a namespace.
    ///
    /// # Errors
    /// [`Error::Argument`] for a partition that the namespace does not have, policies out of range, and a
    /// placement identifier that the namespace does not have; as [`Device::block`] and
    /// [`crate::Worker::open`].
    pub fn handle(&self, nsid: Nsid, options: &HandleOptions) -> Result<Handle> {
        let mut block = self.block(nsid)?;
        let blocks = options.blocks.clone().unwrap_or(0..block.blocks());
        if blocks.start >= blocks.end || blocks.end > block.blocks() {
            return Err(Error::Argument(format!(
                "{} namespace {nsid}: a partition of blocks {} to {}: it begins before it ends, and the namespace \
                 has {} blocks",
                self.name(),
                blocks.start,
                blocks.end,
                block.blocks()
            )));
        }
        if let Some(stream) = options.policies.stream {
            block.check_placements(&[stream])?;
        }
        let hub = self.desk().hub(self.name(), self.controller(), *block.namespace());
        Ok(Handle { inner: Inner::new(&hub, blocks, options.policies.clone())?, is_closed: false })
    }

    /// How much may be in flight while several handles are awake: bytes, to which each command adds 16 KiB.
    /// [`WINDOW`] without. Less has those with a greater share wait less for those with more to send, and
    /// more is what a device needs that does much at a time.
    pub fn set_handle_window(&self, bytes: u64) {
        self.desk().arbiter().set_window(bytes);
    }

    /// See [`Device::set_handle_window`].
    pub fn handle_window(&self) -> u64 {
        self.desk().arbiter().window()
    }
}

impl Handle {
    /// Its namespace.
    pub fn nsid(&self) -> Nsid {
        self.inner.hub.nsid()
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> u32 {
        self.inner.hub.namespace.block_bytes()
    }

    /// Blocks of its partition.
    pub fn blocks(&self) -> u64 {
        self.inner.range.end - self.inner.range.start
    }

    /// Its partition, in blocks of the namespace.
    pub fn partition(&self) -> Range<u64> {
        self.inner.range.clone()
    }

    /// What it does.
    pub fn policies(&self) -> Policies {
        self.inner.active().policies.clone()
    }

    /// Has it do something else from now on. What waits to be written is written before another cache takes
    /// its place, and counts in no limit.
    ///
    /// # Errors
    /// As [`Device::handle`]; [`Error::Device`] when what waits could not be written. Then the limit is the
    /// new one, and the schedule unless one of the two is the device's, and nothing else.
    pub fn set(&self, policies: &Policies) -> Result<()> {
        if let Some(stream) = policies.stream.filter(|_| policies.stream != self.policies().stream) {
            let hub = &self.inner.hub;
            crate::Block::open(&hub.name, &hub.controller, hub.nsid())?.check_placements(&[stream])?;
        }
        self.inner.set(policies.clone())
    }

    /// What it has, and has done.
    pub fn statistics(&self) -> HandleStatistics {
        let cache = self.inner.active().pool.as_ref().map(|pool| pool.cache.counts()).unwrap_or_default();
        let outstanding = self.inner.outstanding.load(std::sync::atomic::Ordering::Relaxed);
        HandleStatistics { cache, outstanding }
    }

    /// What commands of a kind and size have taken lately, as far as [`Completing::Hybrid`] had to know.
    pub fn learnt(&self, kind: RequestKind, bytes: u64) -> Duration {
        self.inner.habits.of(kind, bytes).mean()
    }

    /// Reads blocks from `lba` of the partition on until `out` is full.
    ///
    /// # Errors
    /// [`Error::Argument`] for a length that is no multiple of the block, or blocks beyond the end;
    /// [`Error::Device`] with the first blocks that failed; [`Error::Driver`].
    #[inline]
    pub fn read(&self, lba: u64, out: &mut [u8]) -> Result<()> {
        self.inner.read(lba, out)
    }

    /// Writes `data` to blocks from `lba` of the partition on.
    ///
    /// # Errors
    /// As [`Handle::read`].
    #[inline]
    pub fn write(&self, lba: u64, data: &[u8]) -> Result<()> {
        self.inner.write(lba, data)
    }

    /// Has everything that was written before on the device, and durable.
    ///
    /// # Errors
    /// [`Error::Device`] for what could not be written, now or since the last flush; it waits on.
    pub fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    /// Tells the device that `blocks` blocks from `lba` on are not needed any more.
    ///
    /// # Errors
    /// As [`Handle::read`].
    pub fn discard(&self, lba: u64, blocks: u64) -> Result<()> {
        self.inner.discard(lba, blocks)
    }

    /// A zeroed buffer for requests.
    ///
    /// # Errors
    /// [`Error::Driver`] when memory is used up.
    pub fn alloc(&self, bytes: usize) -> Result<DmaBuf> {
        self.inner.hub.alloc(bytes as u64)
    }

    /// Takes a request and returns. What becomes of it comes out of [`Handle::poll`], with `token`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use unvme::handle::{HandleOptions, Request};
    /// use unvme::{Nsid, OpenOptions, open};
    ///
    /// # fn main() -> Result<(), unvme::Error> {
    /// let device = open("mem:block:64M", &OpenOptions::default())?;
    /// let handle = device.handle(Nsid(1), &HandleOptions::default())?;
    /// for token in 0..8 {
    ///     let buf = Some(handle.alloc(512)?);
    ///     handle.submit(Request::read(token, 1), buf, token).map_err(|refused| refused.error)?;
    /// }
    /// let mut done = Vec::new();
    /// while done.len() < 8 {
    ///     handle.wait(&mut done, Duration::from_secs(1));
    /// }
    /// assert!(done.iter().all(|done| done.status.is_success() && done.buf.is_some()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`NotTaken`], with the buffer: blocks beyond the end, a buffer that is missing or too short, or
    /// [`OUTSTANDING_MAX`] requests that nobody has polled.
    pub fn submit(
        &self,
        request: Request,
        buf: Option<DmaBuf>,
        token: u64,
    ) -> std::result::Result<(), NotTaken> {
        self.inner.submit(request, buf, token)
    }

    /// Takes what is over, and adds it to `done`; returns how much that was. Sends what has its turn.
    pub fn poll(&self, done: &mut Vec<Completed>) -> usize {
        self.inner.poll(done)
    }

    /// As [`Handle::poll`], and waits for the first, as [`Completing`] says, or until `limit` has passed.
    pub fn wait(&self, done: &mut Vec<Completed>, limit: Duration) -> usize {
        self.inner.wait(done, limit)
    }

    /// Requests that were submitted and not polled.
    pub fn outstanding(&self) -> usize {
        self.statistics().outstanding
    }

    /// Writes what waits, and closes the handle. Requests that were not sent are over, and those that were
    /// are waited for.
    ///
    /// # Errors
    /// [`Error::Device`] for what could not be written: it is lost.
    pub fn close(mut self) -> Result<()> {
        self.is_closed = true;
        self.inner.close()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.is_closed
            && let Err(error) = self.inner.close()
        {
            tracing::error!(%error, "a handle was dropped with data that could not be written: it is lost");
        }
    }
}
