//! Invalidation of the kernel's page cache by direct writes.
//!
//! The kernel drops the cached pages of a direct write before it sends the request. After one that is
//! asynchronous it does not do so again: a page that a reader fills while the request is in flight stays
//! stale. `FUSE_NOTIFY_INVAL_INODE` drops it, between the write and its reply.
//!
//! The kernel waits in the notification for pages that are locked, and thereby for answers to requests that
//! read or write them. So no thread that answers requests may notify: a thread of its own does, and sends the
//! reply of the direct write afterwards. No request waits for that thread while it holds a page lock, as
//! direct writes hold none. The queue has no bound of its own, as a full one would make an answering thread
//! wait: the kernel's bound of requests in flight is its bound.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread;

use fuser::{Errno, INodeNo, Notifier, ReplyWrite};

/// A direct write that has ended, and whose pages the kernel may have.
struct Write {
    ino: INodeNo,
    offset: u64,
    bytes: usize,
    done: Result<u32, Errno>,
    reply: ReplyWrite,
}

/// The queue of the invalidating thread. It has none before a session exists, and no requests come before.
#[derive(Clone, Default)]
pub(super) struct Invalidator(Arc<OnceLock<Sender<Write>>>);

impl Invalidator {
    /// Starts the thread. It ends with the last clone of the invalidator.
    pub(super) fn start(&self, notifier: Notifier) -> io::Result<()> {
        let (sender, receiver) = channel();
        thread::Builder::new().name("unvme-pages".into()).spawn(move || run(&receiver, &notifier))?;
        self.0.get_or_init(|| sender);
        Ok(())
    }

    /// Drops the pages of `bytes` at `offset` that the kernel has, then replies. A write that has failed may
    /// have written a part.
    pub(super) fn reply_after(
        &self,
        ino: INodeNo,
        (offset, bytes): (u64, usize),
        done: Result<u32, Errno>,
        reply: ReplyWrite,
    ) {
        let write = Write { ino, offset, bytes, done, reply };
        match self.0.get() {
            Some(queue) => match queue.send(write) {
                Ok(()) => {}
                Err(unsent) => unsent.0.finish(),
            },
            None => write.finish(),
        }
    }
}

fn run(queue: &Receiver<Write>, notifier: &Notifier) {
    while let Ok(write) = queue.recv() {
        // A length of 0 would mean all pages behind the offset.
        let (offset, bytes) = (write.offset as i64, write.bytes as i64);
        if bytes > 0
            && let Err(e) = notifier.inval_inode(write.ino, offset, bytes)
        {
            tracing::warn!("inode {}: drop cached pages at {offset}: {e}", write.ino.0);
        }
        write.finish();
    }
}

impl Write {
    fn finish(self) {
        match self.done {
            Ok(written) => self.reply.written(written),
            Err(e) => self.reply.error(e),
        }
    }
}
