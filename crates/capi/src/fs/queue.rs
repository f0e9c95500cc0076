//! Calls that do not wait.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::time::Duration;

use rustix::io::Errno;
use sdk::QueueOptions;
use unvme_fs::{Error, FileId, FileQueue, Refused};

use super::{File, Mounted, bytes, call, call_int, given, invalid};

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
    files: HashMap<u64, FileId>,
    under: Vec<Option<Under>>,
}

impl Queue {
    fn file(&mut self, file: &File) -> FileId {
        let Self { queue, files, .. } = self;
        *files.entry(file.node.ino()).or_insert_with(|| queue.add(&file.node))
    }

    fn submit(
        &mut self,
        under: Under,
        send: impl FnOnce(&mut FileQueue, u64) -> Result<(), Refused>,
    ) -> Result<(), Error> {
        let free = self.under.iter().position(Option::is_none).ok_or(Error::Posix(Errno::AGAIN))?;
        send(&mut self.queue, free as u64).map_err(|refused| refused.error)?;
        self.under[free] = Some(under);
        self.queue.ring()
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
        let id = queue.file(file);
        let under = Under { callback: callback.ok_or_else(invalid)?, arg, out: buf.cast() };
        let memory = queue.queue.alloc(size)?;
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
        if data.is_empty() {
            return Err(invalid());
        }
        let id = queue.file(file);
        let under = Under { callback: callback.ok_or_else(invalid)?, arg, out: std::ptr::null_mut() };
        let mut memory = queue.queue.alloc(size)?;
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
        let id = queue.file(file);
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
            if queue.queue.outstanding() == 0
                || !queue.queue.wait(Duration::from_millis(timeout_ms.into()))?
            {
                return Ok(0);
            }
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
                done.push((under, result));
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
