//! Calls that do not wait.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::io::Errno;
use sdk::{DmaBuf, QueueOptions};
use unvme_fs::{Error, FileId, FileQueue, Refused};

use super::{Durable, File, Mounted, Presence, bytes, call, call_int, given, invalid};

type Callback = unsafe extern "C" fn(isize, *mut c_void);

/// A call under way.
struct Under {
    callback: Callback,
    arg: *mut c_void,
    /// Where what is read goes.
    out: *mut u8,
}

/// The queue of one thread.
pub(crate) struct Queue {
    queue: FileQueue,
    /// By the numbers of open files.
    files: HashMap<u64, (FileId, Weak<Presence>)>,
    /// Files that the mount has closed, and how many there were when the queue let go of its own.
    closed: Arc<AtomicU64>,
    let_go: u64,
    under: Vec<Option<Under>>,
    memory: Memory,
}

/// Buffers that no call uses, by their sizes.
#[derive(Default)]
struct Memory {
    buffers: HashMap<usize, Vec<DmaBuf>>,
    bytes: usize,
}

/// Memory that is kept for later calls.
const KEPT_BYTES: usize = 4 << 20;

impl Memory {
    /// At least `size` bytes. What is in them is anything.
    fn take(&mut self, queue: &FileQueue, size: usize) -> Result<DmaBuf, Error> {
        let bytes = size.checked_next_power_of_two().ok_or_else(invalid)?.max(4096);
        match self.buffers.get_mut(&bytes).and_then(Vec::pop) {
            Some(buf) => {
                self.bytes -= bytes;
                Ok(buf)
            }
            None => queue.alloc(bytes),
        }
    }

    fn give_back(&mut self, buf: DmaBuf) {
        if self.bytes + buf.len() <= KEPT_BYTES {
            self.bytes += buf.len();
            self.buffers.entry(buf.len()).or_default().push(buf);
        }
    }
}

impl Queue {
    fn file(&mut self, file: &File) -> Result<FileId, Error> {
        self.let_go();
        if let Some((id, _)) = self.files.get(&file.number) {
            return Ok(*id);
        }
        let id = self.queue.add(&file.node)?;
        self.files.insert(file.number, (id, Arc::downgrade(&file.presence)));
        Ok(id)
    }

    /// Lets go of the files that were closed since it was done last: they may have been unlinked, too.
    fn let_go(&mut self) {
        let closed = self.closed.load(Ordering::Acquire);
        if closed == self.let_go {
            return;
        }
        let Self { queue, files, .. } = self;
        let mut is_busy = false;
        files.retain(|_, (id, presence)| {
            let is_kept = presence.strong_count() > 0 || queue.remove(*id).is_err();
            is_busy |= is_kept && presence.strong_count() == 0;
            is_kept
        });
        if !is_busy {
            self.let_go = closed;
        }
    }

    fn submit(
        &mut self,
        under: Under,
        send: impl FnOnce(&mut FileQueue, u64) -> Result<(), Refused>,
    ) -> Result<(), Error> {
        let free = self.under.iter().position(Option::is_none).ok_or(Error::Posix(Errno::AGAIN))?;
        if let Err(refused) = send(&mut self.queue, free as u64) {
            refused.buf.into_iter().for_each(|buf| self.memory.give_back(buf));
            return Err(refused.error);
        }
        self.under[free] = Some(under);
        // The call is taken. What is wrong with the queue is told by whoever polls it.
        let _ = self.queue.ring();
        Ok(())
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_fs_queue_open(fs: *mut Mounted, depth: u16, queue: *mut *mut Queue) -> c_int {
    call_int(|| {
        // SAFETY: the header asks for a mounted one.
        let fs = unsafe { given(fs) }?;
        if queue.is_null() || depth == 0 {
            return Err(invalid());
        }
        let opened = Queue {
            queue: fs.fs.queue(&QueueOptions { depth, ..QueueOptions::default() })?,
            files: HashMap::new(),
            closed: Arc::clone(&fs.closed),
            let_go: 0,
            memory: Memory::default(),
            under: (0..depth).map(|_| None).collect(),
        };
        // SAFETY: not NULL, and the header says what is there.
        unsafe { queue.write(Box::into_raw(Box::new(opened))) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_fs_queue_close(queue: *mut Queue) {
    call_int(|| {
        if !queue.is_null() {
            // SAFETY: it came from `unvme_fs_queue_open()`, and nobody uses it any more.
            drop(unsafe { Box::from_raw(queue) });
        }
        Ok(())
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_file_pread_async(
    queue: *mut Queue,
    file: *mut File,
    buf: *mut c_void,
    size: usize,
    offset: u64,
    callback: Option<Callback>,
    arg: *mut c_void,
) -> c_int {
    call_int(|| {
        // SAFETY: the header asks for an open queue that one thread uses, and an open file.
        let (queue, file) = unsafe { (queue.as_mut().ok_or_else(invalid)?, given(file)?) };
        if !file.can_read {
            return Err(Errno::BADF.into());
        }
        if buf.is_null() || size == 0 {
            return Err(invalid());
        }
        let id = queue.file(file)?;
        let under = Under { callback: callback.ok_or_else(invalid)?, arg, out: buf.cast() };
        let memory = queue.memory.take(&queue.queue, size)?;
        queue.submit(under, |queue, token| queue.read(id, offset, size, memory, token))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_file_pwrite_async(
    queue: *mut Queue,
    file: *mut File,
    buf: *const c_void,
    size: usize,
    offset: u64,
    callback: Option<Callback>,
    arg: *mut c_void,
) -> c_int {
    call_int(|| {
        // SAFETY: the header asks for an open queue that one thread uses, an open file, and so many bytes.
        let (queue, file, data) =
            unsafe { (queue.as_mut().ok_or_else(invalid)?, given(file)?, bytes(buf, size)?) };
        if !file.can_write {
            return Err(Errno::BADF.into());
        }
        if data.is_empty() || file.durable != Durable::Nothing {
            return Err(invalid());
        }
        let id = queue.file(file)?;
        let under = Under { callback: callback.ok_or_else(invalid)?, arg, out: std::ptr::null_mut() };
        let mut memory = queue.memory.take(&queue.queue, size)?;
        memory.write(0, data);
        let appends = file.appends;
        queue.submit(under, |queue, token| match appends {
            true => queue.append(id, size, memory, token),
            false => queue.write(id, offset, size, memory, token),
        })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_file_fsync_async(
    queue: *mut Queue,
    file: *mut File,
    callback: Option<Callback>,
    arg: *mut c_void,
) -> c_int {
    call_int(|| {
        // SAFETY: the header asks for an open queue that one thread uses, and an open file.
        let (queue, file) = unsafe { (queue.as_mut().ok_or_else(invalid)?, given(file)?) };
        let id = queue.file(file)?;
        let under = Under { callback: callback.ok_or_else(invalid)?, arg, out: std::ptr::null_mut() };
        queue
            .submit(under, |queue, token| queue.sync(id, token).map_err(|error| Refused { error, buf: None }))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_fs_queue_poll(queue: *mut Queue, timeout_ms: u32) -> c_int {
    call(|| {
        let done = {
            // SAFETY: the header asks for an open queue that one thread uses.
            let queue = unsafe { queue.as_mut() }.ok_or_else(invalid)?;
            queue.let_go();
            if queue.queue.outstanding() == 0 {
                return Ok(0);
            }
            // What is over is over, whatever is wrong with the queue.
            let waited = queue.queue.wait(Duration::from_millis(timeout_ms.into()));
            let mut done = Vec::new();
            for completion in queue.queue.poll(usize::MAX) {
                let Some(under) = queue.under[completion.token as usize].take() else { continue };
                let result = completion.result.map_or_else(
                    |e| -(e.errno().raw_os_error() as isize),
                    |bytes| {
                        if let (Some(buf), false) = (&completion.buf, under.out.is_null()) {
                            // SAFETY: the header asks for as many bytes, until the callback.
                            buf.read(0, unsafe { std::slice::from_raw_parts_mut(under.out, bytes) });
                        }
                        bytes as isize
                    },
                );
                completion.buf.into_iter().for_each(|buf| queue.memory.give_back(buf));
                done.push((under, result));
            }
            if done.is_empty() {
                waited?;
            }
            done
        };
        // The queue is not borrowed here: a callback may submit.
        for (under, result) in &done {
            // SAFETY: the program's own function.
            unsafe { (under.callback)(*result, under.arg) };
        }
        Ok(done.len())
    }) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_fs_queue_outstanding(queue: *const Queue) -> usize {
    // SAFETY: the header asks for an open queue that one thread uses.
    unsafe { queue.as_ref() }.map_or(0, |queue| queue.queue.outstanding())
}
