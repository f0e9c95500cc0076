//! The functions of `unvme_fs.h`. What they do is described there.
// UNSAFETY: functions that C calls, with the pointers it passes. What is opened is a box that C has the
// address of, from the call that opens it to the one that closes it; the header says that nobody uses it
// afterwards.
#![allow(unsafe_code)]

mod opening;
mod queue;

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::{MaybeUninit, offset_of};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use sdk::{Device, Nsid, OpenOptions};
use unvme_fs::{
    Allocation, Attributes, CacheOptions, Credentials, Error, FileSettings, FileSystem, MakeOptions,
    MountOptions, NewAttributes, NewFile, Placement, PlacementTable, Policy, Rename, SetXattr, Time, Vnode,
};

use crate::boundary;
use crate::result::{Code, Failure};

/// A mounted file system.
pub(crate) struct Mounted {
    fs: FileSystem,
    who: Credentials,
    /// How many of them have been closed.
    closed: Arc<AtomicU64>,
    /// Last: it is closed when everything is written.
    _device: Device,
}

/// An open file.
pub(crate) struct File {
    node: Vnode,
    who: Credentials,
    can_read: bool,
    can_write: bool,
    appends: bool,
    is_direct: bool,
    /// What is written is durable when the call returns.
    durable: Durable,
    /// No other open file has this one.
    number: u64,
    /// Queues have what tells them that it is closed.
    presence: Arc<Presence>,
}

/// What a write makes durable.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Durable {
    Nothing,
    /// `O_DSYNC`.
    Data,
    /// `O_SYNC`.
    All,
}

impl File {
    fn new(fs: &Mounted, node: Vnode, flags: OFlags) -> Self {
        let access = flags & OFlags::RWMODE;
        Self {
            node,
            who: fs.who.clone(),
            can_read: access != OFlags::WRONLY,
            can_write: access != OFlags::RDONLY,
            appends: flags.contains(OFlags::APPEND),
            is_direct: flags.contains(OFlags::DIRECT),
            durable: match flags {
                _ if flags.contains(OFlags::SYNC) => Durable::All,
                _ if flags.contains(OFlags::DSYNC) => Durable::Data,
                _ => Durable::Nothing,
            },
            number: OPENED.fetch_add(1, Ordering::Relaxed),
            presence: Arc::new(Presence(Arc::clone(&fs.closed))),
        }
    }
}

/// Numbers for the open files of all mounts.
static OPENED: AtomicU64 = AtomicU64::new(0);

/// Counts in the mount when it ends.
struct Presence(Arc<AtomicU64>);

impl Drop for Presence {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

type Result<T> = std::result::Result<T, Error>;

/// Runs the body of a function: its number, or a negative errno.
fn call(body: impl FnOnce() -> Result<usize>) -> isize {
    let mut errno = Errno::IO;
    let done = boundary::value(None, || {
        body().map(Some).map_err(|e| {
            errno = e.errno();
            Failure::new(Code::IO, e.to_string())
        })
    });
    done.map_or(-(errno.raw_os_error() as isize), |number| number as isize)
}

fn call_int(body: impl FnOnce() -> Result<()>) -> c_int {
    call(|| body().map(|()| 0)) as c_int
}

fn invalid() -> Error {
    Errno::INVAL.into()
}

/// What a pointer of C leads to.
///
/// # Safety
/// It is NULL, or leads to a `T` that nobody changes meanwhile.
unsafe fn given<'a, T>(pointer: *const T) -> Result<&'a T> {
    // SAFETY: as this function's.
    unsafe { pointer.as_ref() }.ok_or_else(invalid)
}

/// The bytes of a text.
///
/// # Safety
/// It is NULL, or ends with a NUL.
unsafe fn text<'a>(pointer: *const c_char) -> Result<&'a [u8]> {
    if pointer.is_null() {
        return Err(invalid());
    }
    // SAFETY: as this function's.
    Ok(unsafe { CStr::from_ptr(pointer) }.to_bytes())
}

/// # Safety
/// As [`text`].
unsafe fn name_of<'a>(pointer: *const c_char) -> Result<&'a str> {
    // SAFETY: as this function's.
    std::str::from_utf8(unsafe { text(pointer) }?).map_err(|_| invalid())
}

/// # Safety
/// There are `size` bytes, unless it is 0.
unsafe fn bytes<'a>(pointer: *const c_void, size: usize) -> Result<&'a [u8]> {
    if size == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() || size > isize::MAX as usize {
        return Err(invalid());
    }
    // SAFETY: as this function's.
    Ok(unsafe { std::slice::from_raw_parts(pointer.cast(), size) })
}

/// # Safety
/// There are `size` bytes that nobody else uses meanwhile, unless it is 0.
unsafe fn bytes_mut<'a>(pointer: *mut c_void, size: usize) -> Result<&'a mut [u8]> {
    if size == 0 {
        return Ok(&mut []);
    }
    if pointer.is_null() || size > isize::MAX as usize {
        return Err(invalid());
    }
    // SAFETY: as this function's.
    Ok(unsafe { std::slice::from_raw_parts_mut(pointer.cast(), size) })
}

/// `unvme_fs_options`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Options {
    size: usize,
    cache_bytes: u64,
    cache_policy: u32,
    commit_ms: u32,
    uid: u32,
    gid: u32,
    read_only: bool,
    no_access_times: bool,
    no_placement: bool,
    has_placement: bool,
    /// Indexes of placement handles: without a hint, of the four lives, the journal, the metadata.
    placement: [u16; 7],
    /// 0: the first.
    nsid: u32,
}

/// As long as it was at first.
const OPTIONS_MIN: usize = 40;

const _: () = assert!(size_of::<Options>() == 56 && offset_of!(Options, nsid) == 52);

impl Options {
    /// What a program gives that may know fewer fields, or more.
    ///
    /// # Safety
    /// There is a number of bytes, and so many bytes.
    unsafe fn read(given: *const Self) -> Result<Self> {
        // SAFETY: the number is there.
        let size = unsafe { (&raw const (*given).size).read() };
        if size < OPTIONS_MIN {
            return Err(invalid());
        }
        let mut options = MaybeUninit::<Self>::zeroed();
        let known = size.min(size_of::<Self>());
        // SAFETY: that many bytes are there, and here.
        unsafe { given.cast::<u8>().copy_to_nonoverlapping(options.as_mut_ptr().cast(), known) };
        // SAFETY: a structure of numbers and of what C has as bool, zeros where nothing was given.
        Ok(unsafe { options.assume_init() })
    }
}

fn open_device(name: &str, nsid: u32) -> Result<(Device, sdk::Block)> {
    let device = sdk::open(name, &OpenOptions::default())?;
    let nsid = match nsid {
        0 => device.namespaces()?.first().copied().unwrap_or(Nsid(1)),
        some => Nsid(some),
    };
    let block = device.block(nsid)?;
    Ok((device, block))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_fs_make(device: *const c_char, label: *const c_char) -> c_int {
    call_int(|| {
        // SAFETY: the header asks for texts.
        let name = unsafe { name_of(device) }?;
        // SAFETY: the same.
        let label = if label.is_null() { "" } else { unsafe { name_of(label) }? };
        let (device, block) = open_device(name, 0)?;
        let options = MakeOptions { label: label.to_owned(), ..MakeOptions::default() };
        unvme_fs::make(&block, device.name(), &options, |_, _| ())
    })
}

fn mount_options(options: &Options) -> Result<MountOptions> {
    let defaults = MountOptions::default();
    let policy = match options.cache_policy {
        0 => Policy::S3Fifo,
        1 => Policy::Lru,
        2 => Policy::None,
        _ => return Err(invalid()),
    };
    let bytes = if options.cache_bytes == 0 { defaults.cache.bytes } else { options.cache_bytes as usize };
    Ok(MountOptions {
        is_read_only: options.read_only,
        keeps_access_times: !options.no_access_times,
        cache: CacheOptions { bytes, policy, ..defaults.cache },
        commit_interval: match options.commit_ms {
            0 => defaults.commit_interval,
            some => Duration::from_millis(some.into()),
        },
        placement: match options.placement {
            _ if options.no_placement => Placement::Off,
            [none, short, medium, long, extreme, journal, metadata] if options.has_placement => {
                Placement::Table(PlacementTable { none, short, medium, long, extreme, journal, metadata })
            }
            _ => defaults.placement,
        },
        ..defaults
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_fs_mount(
    device: *const c_char,
    options: *const Options,
    fs: *mut *mut Mounted,
) -> c_int {
    call_int(|| {
        // SAFETY: the header asks for a text.
        let name = unsafe { name_of(device) }?;
        let options = match options.is_null() {
            true => None,
            // SAFETY: the header asks for a structure that says how long it is.
            false => Some(unsafe { Options::read(options) }?),
        };
        if fs.is_null() {
            return Err(invalid());
        }
        let mount = options.as_ref().map(mount_options).transpose()?.unwrap_or_default();
        let who = options.map_or_else(Credentials::root, |options| Credentials {
            uid: options.uid,
            gid: options.gid,
            ..Credentials::default()
        });
        let (device, block) = open_device(name, options.map_or(0, |options| options.nsid))?;
        if device.name().starts_with("mem:") {
            // It has been empty until now, and is nobody else's.
            unvme_fs::make(&block, device.name(), &MakeOptions::default(), |_, _| ())?;
        }
        let mounted = FileSystem::mount(&block, device.name(), &mount)?;
        let mounted = Box::new(Mounted { fs: mounted, who, closed: Arc::default(), _device: device });
        // SAFETY: not NULL, and the header says what is there.
        unsafe { fs.write(Box::into_raw(mounted)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_fs_unmount(fs: *mut Mounted) -> c_int {
    call_int(|| {
        if fs.is_null() {
            return Err(invalid());
        }
        // SAFETY: it came from `unvme_fs_mount()`, and nobody uses it any more.
        let mounted = unsafe { Box::from_raw(fs) };
        mounted.fs.unmount()
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_fs_sync(fs: *mut Mounted) -> c_int {
    // SAFETY: the header asks for a mounted one.
    call_int(|| unsafe { given(fs) }?.fs.sync())
}

/// `unvme_fs_usage`.
#[repr(C)]
pub(crate) struct Usage([u64; 5]);

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_fs_usage_get(fs: *const Mounted, usage: *mut Usage) {
    call_int(|| {
        // SAFETY: the header asks for a mounted one.
        let found = unsafe { given(fs) }?.fs.usage();
        let numbers = [found.block_bytes, found.blocks, found.free_blocks, found.inodes, found.free_inodes];
        // SAFETY: the header asks for a place.
        unsafe { usage.as_mut() }.ok_or_else(invalid)?.0 = numbers;
        Ok(())
    });
}

/// `unvme_fs_cache`.
#[repr(C)]
pub(crate) struct CacheCounts([u64; 8]);

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_fs_cache_get(fs: *const Mounted, cache: *mut CacheCounts) {
    call_int(|| {
        // SAFETY: the header asks for a mounted one.
        let found = unsafe { given(fs) }?.fs.cache_statistics();
        // SAFETY: the header asks for a place.
        unsafe { cache.as_mut() }.ok_or_else(invalid)?.0 = [
            found.hits,
            found.misses,
            found.read_ahead,
            found.read_ahead_hits,
            found.evicted,
            found.written_back,
            found.pages,
            found.dirty,
        ];
        Ok(())
    });
}

impl Mounted {
    fn parent(&self, path: &[u8]) -> Result<(Vnode, Vec<u8>)> {
        self.fs.resolve_parent(path, &self.who)
    }

    fn make(&self, path: &[u8], new: &NewFile<'_>) -> Result<Vnode> {
        let (parent, name) = self.parent(path)?;
        parent.create(&name, new, &self.who)
    }
}

/// A function of a path.
macro_rules! of_path {
    ($name:ident, ($($argument:ident: $type:ty),*), |$fs:ident, $path:ident| $body:expr) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(fs: *mut Mounted, path: *const c_char $(, $argument: $type)*) -> c_int {
            call_int(|| {
                // SAFETY: the header asks for a mounted one.
                let $fs = unsafe { given(fs) }?;
                // SAFETY: the header asks for a text.
                let $path = unsafe { text(path) }?;
                $body
            })
        }
    };
}

of_path!(unvme_fs_mkdir, (mode: u32), |fs, path| fs.make(path, &NewFile::directory(mode & 0o7777)).map(drop));
of_path!(unvme_fs_rmdir, (), |fs, path| {
    let (parent, name) = fs.parent(path)?;
    parent.rmdir(&name, &fs.who)
});
of_path!(unvme_fs_unlink, (), |fs, path| {
    let (parent, name) = fs.parent(path)?;
    parent.unlink(&name, &fs.who)
});
of_path!(unvme_fs_link, (to: *const c_char), |fs, path| {
    let node = fs.fs.resolve(path, false, &fs.who)?;
    // SAFETY: the header asks for a text.
    let (parent, name) = fs.parent(unsafe { text(to) }?)?;
    node.link(&parent, &name, &fs.who)
});
of_path!(unvme_fs_symlink, (path_of_link: *const c_char), |fs, target| {
    let new = NewFile { file_type: FileType::Symlink, target, ..NewFile::regular(0o777) };
    // SAFETY: the header asks for a text.
    fs.make(unsafe { text(path_of_link) }?, &new).map(drop)
});
of_path!(unvme_fs_rename, (to: *const c_char, flags: u32), |fs, from| {
    let how = Rename::from_flags(flags)?;
    let (parent, name) = fs.parent(from)?;
    // SAFETY: the header asks for a text.
    let (new_parent, new_name) = fs.parent(unsafe { text(to) }?)?;
    parent.rename(&name, (&new_parent, &new_name), how, &fs.who)
});
of_path!(unvme_fs_stat_get, (follow: bool, stat: *mut Stat), |fs, path| {
    let found = fs.fs.attributes(path, follow, &fs.who)?;
    // SAFETY: the header asks for a place.
    unsafe { put_stat(&found, stat) }
});

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_fs_readlink(
    fs: *mut Mounted,
    path: *const c_char,
    buf: *mut c_char,
    size: usize,
) -> isize {
    call(|| {
        // SAFETY: the header asks for a mounted one, a text, and so many bytes.
        let (fs, path, out) = unsafe { (given(fs)?, text(path)?, bytes_mut(buf.cast(), size)?) };
        let target = fs.fs.resolve(path, false, &fs.who)?.target()?;
        let some = target.len().min(out.len());
        out[..some].copy_from_slice(&target[..some]);
        Ok(target.len())
    })
}

type Entry = unsafe extern "C" fn(*const c_char, u64, u32, *mut c_void) -> c_int;

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_fs_readdir(
    fs: *mut Mounted,
    path: *const c_char,
    entry: Option<Entry>,
    arg: *mut c_void,
) -> c_int {
    let mut ended = 0;
    let done = call_int(|| {
        // SAFETY: the header asks for a mounted one and a text.
        let (fs, path) = unsafe { (given(fs)?, text(path)?) };
        let entry = entry.ok_or_else(invalid)?;
        // Without the lock of the directory: the callback may change it.
        let mut entries = Vec::new();
        fs.fs.resolve(path, true, &fs.who)?.list(2, |entry| {
            entries.push(entry);
            ControlFlow::Continue(())
        })?;
        for found in entries {
            let name = CString::new(found.name).map_err(|_| invalid())?;
            // SAFETY: the program's own function.
            ended = unsafe { entry(name.as_ptr(), found.ino, found.file_type.as_raw_mode(), arg) };
            if ended != 0 {
                break;
            }
        }
        Ok(())
    });
    if done < 0 { done } else { ended }
}

/// `unvme_fs_time`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct TimeOfC {
    seconds: i64,
    nanoseconds: u32,
}

/// `unvme_fs_stat`.
#[repr(C)]
pub(crate) struct Stat {
    ino: u64,
    size: u64,
    sectors: u64,
    rdev: u64,
    mode: u32,
    links: u32,
    uid: u32,
    gid: u32,
    times: [TimeOfC; 4],
}

const _: () = assert!(size_of::<Stat>() == 112);

/// # Safety
/// `stat` is NULL, or there is place for one.
unsafe fn put_stat(found: &Attributes, stat: *mut Stat) -> Result<()> {
    let time = |time: Time| TimeOfC { seconds: time.seconds, nanoseconds: time.nanoseconds };
    let new = Stat {
        ino: found.ino,
        size: found.size,
        sectors: found.sectors,
        rdev: found.rdev,
        mode: found.mode,
        links: found.links,
        uid: found.uid,
        gid: found.gid,
        times: [found.accessed, found.modified, found.changed, found.created].map(time),
    };
    // SAFETY: as this function's.
    *unsafe { stat.as_mut() }.ok_or_else(invalid)? = new;
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_fs_open(
    fs: *mut Mounted,
    path: *const c_char,
    flags: c_int,
    mode: u32,
    file: *mut *mut File,
) -> c_int {
    call_int(|| {
        // SAFETY: the header asks for a mounted one and a text.
        let (fs, path) = unsafe { (given(fs)?, text(path)?) };
        if file.is_null() {
            return Err(invalid());
        }
        let opened = Box::new(opening::open(fs, path, flags, mode)?);
        // SAFETY: not NULL, and the header says what is there.
        unsafe { file.write(Box::into_raw(opened)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_file_close(file: *mut File) {
    call_int(|| {
        if !file.is_null() {
            // SAFETY: it came from `unvme_fs_open()`, and nobody uses it any more.
            drop(unsafe { Box::from_raw(file) });
        }
        Ok(())
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_file_pread(file: *mut File, buf: *mut c_void, size: usize, offset: u64) -> isize {
    call(|| {
        // SAFETY: the header asks for an open one, and so many bytes.
        let (file, out) = unsafe { (given(file)?, bytes_mut(buf, size)?) };
        if !file.can_read {
            return Err(Errno::BADF.into());
        }
        if file.is_direct { file.node.read_direct(offset, out) } else { file.node.read_at(offset, out) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_file_pwrite(
    file: *mut File,
    buf: *const c_void,
    size: usize,
    offset: u64,
) -> isize {
    call(|| {
        // SAFETY: the header asks for an open one, and so many bytes.
        let (file, data) = unsafe { (given(file)?, bytes(buf, size)?) };
        if !file.can_write {
            return Err(Errno::BADF.into());
        }
        let written = match (file.appends, file.is_direct) {
            (true, _) => file.node.append(data).map(|(_, bytes)| bytes),
            (_, true) => file.node.write_direct(offset, data),
            _ => file.node.write_at(offset, data),
        }?;
        match file.durable {
            Durable::Nothing => {}
            Durable::Data => file.node.sync_data()?,
            Durable::All => file.node.sync()?,
        }
        Ok(written)
    })
}

/// A function of an open file.
macro_rules! of_file {
    ($name:ident, ($($argument:ident: $type:ty),*), |$file:ident| $body:expr) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(file: *mut File $(, $argument: $type)*) -> c_int {
            call_int(|| {
                // SAFETY: the header asks for an open one.
                let $file = unsafe { given(file) }?;
                $body
            })
        }
    };
}

of_file!(unvme_file_fsync, (), |file| file.node.sync());
of_file!(unvme_file_fdatasync, (), |file| file.node.sync_data());
of_file!(unvme_file_truncate, (size: u64), |file| {
    if file.can_write { file.node.truncate(size) } else { Err(invalid()) }
});
of_file!(unvme_file_allocate, (mode: c_int, offset: u64, size: u64), |file| {
    if !file.can_write {
        return Err(Errno::BADF.into());
    }
    let what = Allocation::from_mode(mode)?;
    let end = offset.checked_add(size).ok_or(Error::Posix(Errno::FBIG))?;
    file.node.allocate(offset..end, what)
});
of_file!(unvme_file_stat_get, (stat: *mut Stat), |file| {
    // SAFETY: the header asks for a place.
    unsafe { put_stat(&file.node.attributes(), stat) }
});
of_file!(unvme_file_chmod, (mode: u32), |file| {
    let new = NewAttributes { permissions: Some(mode & 0o7777), ..NewAttributes::default() };
    file.node.set_attributes(&new, &file.who)
});
of_file!(unvme_file_chown, (uid: u32, gid: u32), |file| {
    let some = |id: u32| (id != u32::MAX).then_some(id);
    let new = NewAttributes { uid: some(uid), gid: some(gid), ..NewAttributes::default() };
    file.node.set_attributes(&new, &file.who)
});
of_file!(unvme_file_utime, (accessed: *const TimeOfC, modified: *const TimeOfC), |file| {
    let time = |time: *const TimeOfC| {
        // SAFETY: the header asks for NULL or a time.
        match unsafe { time.as_ref() } {
            Some(time) if time.nanoseconds >= 1_000_000_000 => Err(invalid()),
            some => Ok(some.map(|time| Time { seconds: time.seconds, nanoseconds: time.nanoseconds })),
        }
    };
    let new = NewAttributes { accessed: time(accessed)?, modified: time(modified)?, ..NewAttributes::default() };
    file.node.set_attributes(&new, &file.who)
});
of_file!(unvme_file_set_write_hint, (hint: c_int), |file| {
    let hint = hint.to_string();
    file.node.set_xattr(b"user.unvme.write_hint", hint.as_bytes(), SetXattr::Any, &file.who)
});
of_file!(unvme_file_removexattr, (name: *const c_char), |file| {
    // SAFETY: the header asks for a text.
    file.node.remove_xattr(unsafe { text(name) }?, &file.who)
});
of_file!(
    unvme_file_setxattr,
    (name: *const c_char, value: *const c_void, size: usize, flags: c_int),
    |file| {
        let how = SetXattr::from_flags(flags)?;
        // SAFETY: the header asks for a text, and so many bytes.
        let (name, value) = unsafe { (text(name)?, bytes(value, size)?) };
        file.node.set_xattr(name, value, how, &file.who)
    }
);

/// Puts what was found where C wants it, if there is room.
fn put(found: &[u8], out: &mut [u8]) -> Result<usize> {
    if !out.is_empty() {
        out.get_mut(..found.len()).ok_or(Error::Posix(Errno::RANGE))?.copy_from_slice(found);
    }
    Ok(found.len())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_file_getxattr(
    file: *mut File,
    name: *const c_char,
    value: *mut c_void,
    size: usize,
) -> isize {
    call(|| {
        // SAFETY: the header asks for an open one, a text, and so many bytes.
        let (file, name, out) = unsafe { (given(file)?, text(name)?, bytes_mut(value, size)?) };
        put(&file.node.xattr(name, &file.who)?, out)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_file_listxattr(file: *mut File, list: *mut c_char, size: usize) -> isize {
    call(|| {
        // SAFETY: the header asks for an open one, and so many bytes.
        let (file, out) = unsafe { (given(file)?, bytes_mut(list.cast(), size)?) };
        let names = file.node.xattrs(&file.who)?;
        let all: Vec<u8> = names.into_iter().flat_map(|name| name.into_iter().chain([0])).collect();
        put(&all, out)
    })
}

fn set(file: &File, change: impl FnOnce(&mut FileSettings)) -> Result<()> {
    let mut settings = file.node.settings();
    change(&mut settings);
    file.node.set_settings(&settings)
}

fn size_of_c(size: c_int) -> Result<u64> {
    u64::try_from(size).map_err(|_| invalid())
}

of_file!(unvme_file_set_retain_cache, (retain: bool), |file| set(file, |settings| settings.retain = retain));
of_file!(unvme_file_set_prefetch_size, (size: c_int), |file| {
    let size = size_of_c(size)?;
    set(file, |settings| settings.read_ahead = size)
});
of_file!(unvme_file_set_prefetch_threshold, (size: c_int), |file| {
    let size = size_of_c(size)?;
    set(file, |settings| settings.read_ahead_threshold = size)
});
of_file!(unvme_file_set_direct_io, (mask: c_int), |file| {
    if mask & !3 != 0 {
        return Err(invalid());
    }
    set(file, |settings| (settings.direct_read, settings.direct_write) = (mask & 1 != 0, mask & 2 != 0))
});
of_file!(unvme_file_prefetch, (offset: u64, size: u64), |file| {
    if !file.can_read {
        return Err(Errno::BADF.into());
    }
    file.node.prefetch(offset..offset.saturating_add(size))
});
of_file!(unvme_file_write_back, (), |file| file.node.write_back());
of_file!(unvme_file_cache_free, (), |file| file.node.drop_cache());

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_file_get_retain_cache(file: *const File) -> bool {
    // SAFETY: the header asks for an open one.
    boundary::quietly(false, || unsafe { given(file) }.is_ok_and(|file| file.node.settings().retain))
}

/// A number of a file's settings.
///
/// # Safety
/// As [`given`].
unsafe fn setting(file: *const File, of: impl FnOnce(&FileSettings) -> c_int) -> c_int {
    // SAFETY: as this function's.
    call(|| Ok(of(&unsafe { given(file) }?.node.settings()) as usize)) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_file_get_prefetch_size(file: *const File) -> c_int {
    // SAFETY: the header asks for an open one.
    unsafe { setting(file, |settings| settings.read_ahead as c_int) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_file_get_prefetch_threshold(file: *const File) -> c_int {
    // SAFETY: the header asks for an open one.
    unsafe { setting(file, |settings| settings.read_ahead_threshold as c_int) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_file_get_direct_io(file: *const File) -> c_int {
    // SAFETY: the header asks for an open one.
    unsafe {
        setting(file, |settings| c_int::from(settings.direct_read) | c_int::from(settings.direct_write) << 1)
    }
}
