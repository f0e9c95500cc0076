//! Descriptors of this process that stand for files of ours.

use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use libc::{O_ACCMODE, O_APPEND, O_CLOEXEC, O_PATH, O_RDONLY, O_RDWR, O_WRONLY, S_IFDIR, S_IFMT, S_IFREG};
use rustix::io::Errno;
use unvme_fs::Vnode;
use unvme_fs::calls::{At, FileHandle, OpenId, Reply, Request};
use unvme_fs::share::Watched;

use crate::errno::Result;
use crate::gate::{self, Inside};
use crate::mount::{self, Mount};
use crate::own;
use crate::owner::Owner;
use crate::slot::{self, Slot};

/// Descriptors that are looked at: a process may have more, but not of ours.
pub(crate) const DESCRIPTORS: usize = 1 << 20;

static TABLE: [AtomicPtr<OpenFile>; DESCRIPTORS] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; DESCRIPTORS];

/// One above the highest descriptor that ever stood for a file of ours.
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

/// A file that this process has open.
pub(crate) struct OpenFile {
    pub number: u32,
    pub slot: &'static Slot,
    pub mount: &'static Mount,
    /// Its name with the file system, which is this process's own: others may have opened it anew.
    open: AtomicU64,
    /// Descriptors of this process. From 0 on nobody finds it.
    descriptors: AtomicUsize,
    /// This process has locks on it, as far as is known: whoever gives up all of them says so.
    is_locked: AtomicBool,
    /// This process holds the slot no more.
    is_given_back: AtomicBool,
    /// `None` when the file system is behind a server. Changed while the gate is closed, and then only.
    vnode: UnsafeCell<Option<Vnode>>,
    /// How a server shows what it has of the file, once it was asked to.
    watched: UnsafeCell<OnceLock<Option<Watched>>>,
    reads: AtomicU32,
    /// A directory's path below the folder, when it was opened.
    pub path: Mutex<Vec<u8>>,
    /// Entries that were read, and not given out.
    pub listing: Mutex<crate::directory::Listing>,
    /// Bits of `F_SETFD` have no room here; this has how far space is reserved.
    pub reserved: AtomicU32,
    pub owner: Owner,
}

// SAFETY: `vnode` is changed while nobody is inside; what else there is can be shared.
unsafe impl Sync for OpenFile {}
// SAFETY: as above.
unsafe impl Send for OpenFile {}

impl OpenFile {
    pub(crate) fn open(&self) -> OpenId {
        OpenId(self.open.load(Ordering::Relaxed))
    }

    /// The file system knows it by another name from now on.
    pub(crate) fn set_open(&self, open: OpenId) {
        self.open.store(open.0, Ordering::Relaxed);
    }

    /// The file itself, for a call that takes a path as well.
    pub(crate) fn at(&self) -> At<'static> {
        At { base: self.open(), path: b"", follows: true }
    }

    pub(crate) fn mode(&self) -> u32 {
        self.slot.mode.load(Ordering::Relaxed)
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.mode() & S_IFMT == S_IFDIR
    }

    pub(crate) fn is_regular(&self) -> bool {
        self.mode() & S_IFMT == S_IFREG
    }

    pub(crate) fn flags(&self) -> c_int {
        self.slot.flags.load(Ordering::Relaxed) as c_int
    }

    pub(crate) fn appends(&self) -> bool {
        self.flags() & O_APPEND != 0
    }

    /// Whether it is more than a path.
    ///
    /// # Errors
    /// EBADF.
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.flags() & O_PATH != 0 { Err(Errno::BADF) } else { Ok(()) }
    }

    /// # Errors
    /// EBADF.
    pub(crate) fn check_readable(&self) -> Result<()> {
        // The fourth way, `O_ACCMODE`, is neither: the kernel has it for `ioctl` alone.
        let flags = self.flags() & (O_PATH | O_ACCMODE);
        if flags == O_RDONLY || flags == O_RDWR { Ok(()) } else { Err(Errno::BADF) }
    }

    /// # Errors
    /// EBADF.
    pub(crate) fn check_writable(&self) -> Result<()> {
        let flags = self.flags() & (O_PATH | O_ACCMODE);
        if flags == O_WRONLY || flags == O_RDWR { Ok(()) } else { Err(Errno::BADF) }
    }

    /// The file itself, where it is in this process and its data are not in a mapping.
    #[inline]
    pub(crate) fn vnode(&self) -> Option<&Vnode> {
        // SAFETY: who asks is inside, and it is changed while nobody is.
        unsafe { &*self.vnode.get() }.as_ref()
    }

    /// The file itself, where its data are not in a mapping.
    #[inline]
    pub(crate) fn direct(&self) -> Option<&Vnode> {
        self.vnode().filter(|_| !self.mount.is_any_mapped())
    }

    /// # Safety
    /// The gate is closed.
    pub(crate) unsafe fn set_vnode(&self, vnode: Option<Vnode>) {
        *self.vnode.get() = vnode;
        (*self.watched.get()).take();
    }

    /// In the child of a `fork`: what it would give back is the parent's.
    pub(crate) fn forget_parent(&self) {
        // SAFETY: there is one thread, and it is here.
        unsafe {
            std::mem::forget((*self.vnode.get()).take());
            std::mem::forget((*self.watched.get()).take());
        }
        self.reads.store(0, Ordering::Relaxed);
    }

    fn give_back(&self) {
        if !self.is_given_back.swap(true, Ordering::AcqRel) {
            slot::give_back(self.slot);
        }
    }

    /// Reads what a server has in memory, without asking it. `None` when it is to be asked.
    #[inline]
    pub(crate) fn read_shown(&self, offset: u64, out: &mut [u8]) -> Option<usize> {
        /// Files of which less is read are not worth a question more.
        const READS: u32 = 4;
        let reads = self.reads.load(Ordering::Relaxed);
        if reads <= READS {
            self.reads.store(reads + 1, Ordering::Relaxed);
            return None;
        }
        // SAFETY: changed while nobody is inside alone; who asks is.
        let watched = unsafe { &*self.watched.get() };
        watched.get_or_init(|| self.mount.watch(self.open())).as_ref()?.read(offset, out)
    }

    /// Whether what was written may be lost, since a server was killed after `known` was written: true once
    /// for each open file description, whichever of its processes asks, as with the kernel's `errseq_t`.
    /// Which files had data that the server had not written yet, no process knows: it is all that were open.
    pub(crate) fn take_lost(&self, known: &AtomicU32) -> bool {
        if !self.mount.is_shared() {
            return false;
        }
        let (now, before) = (self.mount.server(), known.load(Ordering::Acquire));
        now != 0
            && now != before
            && known.compare_exchange(before, now, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// # Errors
    /// Those of the call.
    pub(crate) fn call(&self, request: &Request<'_>) -> Result<Reply> {
        let done = self.mount.call(request, &[], &mut [])?;
        let own = |is_locked: bool| self.slot.is_locked.store(is_locked.into(), Ordering::Relaxed);
        let of_process = |is_locked| self.is_locked.store(is_locked, Ordering::Relaxed);
        match request {
            Request::Lock { range, .. } | Request::AwaitLock { range, .. } if range.is_of_open => own(true),
            Request::Lock { .. } | Request::AwaitLock { .. } => of_process(true),
            Request::Flock { is_exclusive, .. } => own(is_exclusive.is_some()),
            Request::Unlock { range, .. } if (range.start, range.end) == (0, u64::MAX) => {
                if range.is_of_open { own(false) } else { of_process(false) }
            }
            _ => {}
        }
        Ok(done)
    }

    pub(crate) fn is_locked(&self) -> bool {
        self.is_locked.load(Ordering::Relaxed) || self.slot.is_locked.load(Ordering::Relaxed) != 0
    }
}

/// An open file, by a thread that is inside.
pub(crate) struct Held {
    file: *const OpenFile,
    _inside: Inside,
}

impl Deref for Held {
    type Target = OpenFile;

    #[inline]
    fn deref(&self) -> &OpenFile {
        // SAFETY: it was found while inside, and is dropped when nobody who may have found it is.
        unsafe { &*self.file }
    }
}

/// What a descriptor stands for, if it is ours.
#[inline]
pub(crate) fn get(fd: c_int) -> Option<Held> {
    let place = TABLE.get(fd as usize)?;
    if place.load(Ordering::Acquire).is_null() {
        return None;
    }
    let inside = gate::enter();
    let file = place.load(Ordering::Acquire);
    (!file.is_null()).then_some(Held { file, _inside: inside })
}

/// Whether a descriptor is ours.
#[inline]
pub(crate) fn is_ours(fd: c_int) -> bool {
    TABLE.get(fd as usize).is_some_and(|place| !place.load(Ordering::Relaxed).is_null())
}

/// Whether any descriptor ever was.
#[inline]
pub(crate) fn is_any() -> bool {
    HIGHEST.load(Ordering::Relaxed) > 0
}

fn put(fd: c_int, file: *mut OpenFile) {
    HIGHEST.fetch_max(fd as usize + 1, Ordering::Relaxed);
    TABLE[fd as usize].store(file, Ordering::Release);
}

/// What was opened.
pub(crate) struct Opened {
    pub open: OpenId,
    pub file: FileHandle,
    pub mode: u32,
}

/// A descriptor for a file that is about to be opened.
pub(crate) struct Reserved {
    number: u32,
    /// Until it is used.
    slot: Option<&'static Slot>,
    fd: Option<OwnedFd>,
}

/// Takes a descriptor, for [`add`].
///
/// # Errors
/// EMFILE, ENFILE.
pub(crate) fn reserve(flags: c_int) -> Result<Reserved> {
    let (number, slot) = slot::take()?;
    let mut reserved = Reserved { number, slot: Some(slot), fd: None };
    let fd = slot::descriptor(number, flags & O_CLOEXEC != 0)?;
    if (fd.as_raw_fd() as usize) >= DESCRIPTORS {
        return Err(Errno::MFILE);
    }
    reserved.fd = Some(fd);
    Ok(reserved)
}

impl Drop for Reserved {
    fn drop(&mut self) {
        drop(self.fd.take());
        if let Some(slot) = self.slot.take() {
            slot::give_back(slot);
        }
    }
}

/// Gives a file that was opened a descriptor: one that was taken before, or another one.
///
/// # Errors
/// EMFILE, ENFILE.
pub(crate) fn add(
    mount: &'static Mount,
    reserved: Option<Reserved>,
    opened: &Opened,
    flags: c_int,
    path: Vec<u8>,
) -> Result<c_int> {
    let mut reserved = reserved.map_or_else(|| reserve(flags), Ok)?;
    let (Some(slot), Some(fd)) = (reserved.slot.take(), reserved.fd.take()) else { return Err(Errno::MFILE) };
    slot.flags.store((flags & !O_CLOEXEC) as u32, Ordering::Relaxed);
    slot.open.store(opened.open.0, Ordering::Relaxed);
    slot.ino.store(opened.file.ino, Ordering::Relaxed);
    slot.generation.store(opened.file.generation, Ordering::Relaxed);
    slot.mode.store(opened.mode, Ordering::Relaxed);
    let server = mount.server();
    slot.synced.store(server, Ordering::Relaxed);
    slot.all_synced.store(server, Ordering::Relaxed);
    slot.mount.store(mount.number, Ordering::Release);
    let (fd, vnode) = (fd.into_raw_fd(), mount.file(opened.open));
    put(fd, Box::into_raw(Box::new(new_file((reserved.number, slot), opened.open, mount, vnode, path))));
    Ok(fd)
}

fn new_file(
    (number, slot): (u32, &'static Slot),
    open: OpenId,
    mount: &'static Mount,
    vnode: Option<Vnode>,
    path: Vec<u8>,
) -> OpenFile {
    OpenFile {
        number,
        slot,
        mount,
        open: AtomicU64::new(open.0),
        descriptors: AtomicUsize::new(1),
        is_locked: AtomicBool::new(false),
        is_given_back: AtomicBool::new(false),
        vnode: UnsafeCell::new(vnode),
        watched: UnsafeCell::default(),
        reads: AtomicU32::new(0),
        path: Mutex::new(path),
        listing: Mutex::default(),
        reserved: AtomicU32::new(0),
        owner: Owner::default(),
    }
}

/// A descriptor that was copied stands for the same file. Whether it does: not when the file was closed
/// meanwhile.
#[must_use]
pub(crate) fn copy(held: &Held, to: c_int) -> bool {
    if to < 0 || to as usize >= DESCRIPTORS {
        return true;
    }
    let one_more = |count: usize| (count > 0).then_some(count + 1);
    let is_open = held.descriptors.fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_more).is_ok();
    if is_open {
        put(to, held.file.cast_mut());
    }
    is_open
}

/// As [`copy`], of a descriptor that nobody closes meanwhile.
fn copy_of(from: c_int, to: c_int) {
    if let Some(held) = get(from) {
        let _ = copy(&held, to);
    }
}

/// A descriptor that was taken out of the table. When this is dropped, the file is closed, if it was the last
/// one. Who has this is inside: whoever closes the gate finds each file in the table, or put aside.
pub(crate) struct Taken {
    found: *mut OpenFile,
    inside: Option<Inside>,
}

/// Takes a descriptor out of the table. The descriptor itself stays open.
pub(crate) fn take(fd: c_int) -> Option<Taken> {
    let place = TABLE.get(fd as usize)?;
    if place.load(Ordering::Relaxed).is_null() {
        return None;
    }
    let inside = Some(gate::enter());
    let found = place.swap(std::ptr::null_mut(), Ordering::AcqRel);
    (!found.is_null()).then_some(Taken { found, inside })
}

/// Puts a descriptor back that was not closed.
pub(crate) fn put_back(fd: c_int, taken: Taken) {
    let mut taken = ManuallyDrop::new(taken);
    put(fd, taken.found);
    drop(taken.inside.take());
}

/// As [`take`], and closes the file.
pub(crate) fn remove(fd: c_int) {
    drop(take(fd));
}

impl Drop for Taken {
    fn drop(&mut self) {
        // SAFETY: the descriptor that stood for it counts until here.
        let file = unsafe { &*self.found };
        if file.descriptors.fetch_sub(1, Ordering::AcqRel) > 1 {
            let _ = file.call(&Request::CloseOne { open: file.open() });
            return;
        }
        let _ = file.call(&Request::Close { open: file.open() });
        file.give_back();
        // SAFETY: it was the last one in the table: from here on nobody finds it.
        gate::put_aside(unsafe { Box::from_raw(self.found) });
        drop(self.inside.take());
        gate::sweep();
    }
}

/// Shows all files, each once.
pub(crate) fn each(mut show: impl FnMut(c_int, &OpenFile)) {
    let mut seen: Vec<*mut OpenFile> = Vec::new();
    for (fd, place) in TABLE.iter().enumerate().take(HIGHEST.load(Ordering::Relaxed)) {
        let found = place.load(Ordering::Acquire);
        if found.is_null() || seen.contains(&found) {
            continue;
        }
        seen.push(found);
        // SAFETY: the caller is inside, or nobody else is.
        show(fd as c_int, unsafe { &*found });
    }
}

/// Descriptors of ours in a range of numbers.
pub(crate) fn ours_in(first: usize, last: usize) -> Vec<c_int> {
    let end = HIGHEST.load(Ordering::Relaxed).min(last.saturating_add(1));
    (first..end).filter(|&fd| is_ours(fd as c_int)).map(|fd| fd as c_int).collect()
}

/// A descriptor has come from another process, and may stand for a file of ours.
pub(crate) fn receive(fd: c_int) {
    if fd < 0 || fd as usize >= DESCRIPTORS || is_ours(fd) {
        return;
    }
    // SAFETY: only asked about.
    let Some(number) = slot::of_descriptor(unsafe { BorrowedFd::borrow_raw(fd) }) else { return };
    let mut known = None;
    {
        let _inside = gate::enter();
        each(|other, file| {
            if file.number == number {
                known = Some(other);
            }
        });
    }
    if let Some(other) = known {
        copy_of(other, fd);
        return;
    }
    let Some(slot) = slot::get(number) else { return };
    let Some(mount) = mount::by_number(slot.mount.load(Ordering::Acquire)) else { return };
    let _inside = gate::enter();
    slot.holders.fetch_add(1, Ordering::AcqRel);
    // The sender may have closed it by now: it is opened again, by its number.
    let open = match mount.ask(&slot.adopt(slot.flags.load(Ordering::Relaxed))) {
        Ok(Reply::Opened(open, ..)) => open,
        _ => OpenId(slot.open.load(Ordering::Relaxed)),
    };
    put(fd, Box::into_raw(Box::new(new_file((number, slot), open, mount, mount.file(open), Vec::new()))));
}

/// One process more has all files, or does not after all.
pub(crate) fn count_child(is_there: bool) {
    each(|_, file| {
        if is_there {
            file.slot.holders.fetch_add(1, Ordering::AcqRel);
        } else {
            slot::give_back(file.slot);
        }
    });
}

/// This process ends.
pub(crate) fn end() {
    each(|_, file| file.give_back());
    slot::leave();
}

/// What the next image of a process is told of its open files, and of their names with the file system: each
/// with a comma before it. Those that it has no descriptors for are closed. There may be more than there is
/// room for in an environment: what is left is found when slots are needed.
pub(crate) fn handed() -> String {
    const MOST: usize = 4096;
    let mut told = Vec::new();
    each(|_, file| told.push((file.number, file.open().0)));
    told.truncate(MOST);
    told.iter().map(|(number, open)| format!(",s{number}:{open}")).collect()
}

/// As [`handed`], from the image before this one.
pub(crate) fn parse_handed<'a>(words: impl Iterator<Item = &'a str>) -> HashMap<u32, OpenId> {
    let pair = |word: &str| {
        let (number, open) = word.strip_prefix('s')?.split_once(':')?;
        Some((number.parse().ok()?, OpenId(open.parse().ok()?)))
    };
    words.filter_map(pair).collect()
}

fn close_at_exec(number: u32, open: OpenId) {
    let Some(slot) = slot::get(number) else { return };
    if let Some(mount) = mount::by_number(slot.mount.load(Ordering::Acquire))
        && mount.is_mounted()
    {
        let _ = mount.ask(&Request::Close { open });
    }
    slot::give_back(slot);
}

/// Descriptors of this process that are copies of marks: the slots that they stand for, and their numbers.
fn marks() -> Vec<(u32, c_int)> {
    // SAFETY: only asked about.
    let number = |fd: c_int| slot::of_descriptor(unsafe { BorrowedFd::borrow_raw(fd) });
    let ours = own::open().into_iter().filter(|&fd| (fd as usize) < DESCRIPTORS);
    let mut found: Vec<_> = ours.filter_map(|fd| Some((number(fd)?, fd))).collect();
    found.sort_unstable();
    found
}

/// As [`inherit`], for a process that has got descriptors without having been told: it opens the files anew.
pub(crate) fn adopt() {
    marks().into_iter().for_each(|(_, fd)| receive(fd));
}

/// Takes on the descriptors that this process has from the one before `exec`, and closes the files of the
/// others.
pub(crate) fn inherit(had: &HashMap<u32, OpenId>) {
    let found = marks();
    had.iter()
        .filter(|(had, _)| !found.iter().any(|(number, _)| number == *had))
        .for_each(|(&had, &open)| close_at_exec(had, open));
    let mut last: Option<(u32, c_int)> = None;
    for (number, fd) in found {
        if let Some((before, first)) = last
            && before == number
        {
            copy_of(first, fd);
            continue;
        }
        let Some(slot) = slot::get(number) else { continue };
        let Some(mount) = mount::by_number(slot.mount.load(Ordering::Acquire)) else { continue };
        let open = had.get(&number).copied();
        let open = open.unwrap_or_else(|| OpenId(slot.open.load(Ordering::Relaxed)));
        put(fd, Box::into_raw(Box::new(new_file((number, slot), open, mount, None, Vec::new()))));
        last = Some((number, fd));
    }
}

/// Where an open directory is below its folder: with a slash before each name.
pub(crate) fn path_of(file: &OpenFile) -> Result<Vec<u8>> {
    match file.call(&Request::Path { open: file.open() })? {
        Reply::Bytes(path) => Ok(path),
        _ => Err(Errno::IO),
    }
}
