//! What is answered as a kernel without it would, sockets that have names in a folder, and calls that are
//! made by their numbers.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;

use libc::{AF_UNIX, AT_FDCWD, S_IFSOCK, sockaddr, sockaddr_un, socklen_t};
use rustix::io::Errno;
use unvme_fs::calls::{Reply, Request};

use crate::errno::{Result, done, set};
use crate::place::{self, Outcome, Place};
use crate::{gate, real, start};

/// Whether a path of C's is in a folder.
unsafe fn is_ours(path: *const c_char) -> bool {
    matches!(place::resolve(AT_FDCWD, path), Ok(Place::Ours(..)))
}

/// Where a socket is whose name is ours: in a folder of the kernel's, by the number of its inode.
fn socket_path(device: u64, ino: u64) -> std::path::PathBuf {
    let user = rustix::process::geteuid().as_raw();
    std::path::PathBuf::from(format!("/tmp/.unvme-sockets-{user}/{device:x}-{ino}"))
}

unsafe fn socket_address(
    address: *const sockaddr,
    bytes: socklen_t,
    is_new: bool,
) -> Result<Option<sockaddr_un>> {
    let head = std::mem::offset_of!(sockaddr_un, sun_path);
    if !start::is_on()
        || gate::is_inside()
        || address.is_null()
        || (bytes as usize) <= head
        || c_int::from((*address).sa_family) != AF_UNIX
    {
        return Ok(None);
    }
    let given = &*address.cast::<sockaddr_un>();
    let room = (bytes as usize - head).min(given.sun_path.len());
    let name: Vec<u8> =
        given.sun_path[..room].iter().map(|&byte| byte as u8).take_while(|&byte| byte != 0).collect();
    if name.is_empty() {
        return Ok(None);
    }
    let place = place::resolve_bytes(AT_FDCWD, &name)?;
    if !matches!(place, Place::Ours(..)) {
        return Ok(None);
    }
    if is_new {
        let mode = S_IFSOCK | crate::open::masked(0o777);
        let made = place::call_at(place, false, |mount, at| {
            mount.ask(&Request::Make { at, mode, rdev: 0, target: b"" })
        });
        if let Err(errno) = made {
            return Err(if errno == Errno::EXIST { Errno::ADDRINUSE } else { errno });
        }
    }
    let place = place::resolve_bytes(AT_FDCWD, &name)?;
    let found = place::call_at(place, true, |mount, at| mount.ask(&Request::Attributes { at }))?;
    let Outcome::Done(mount, Reply::Attributes(found)) = found else { return Ok(None) };
    if found.mode & libc::S_IFMT != S_IFSOCK {
        return Err(Errno::CONNREFUSED);
    }
    let device = mount.device.load(std::sync::atomic::Ordering::Relaxed);
    let path = socket_path(device, found.ino);
    if is_new {
        if let Some(folder) = path.parent() {
            let _ = rustix::fs::mkdir(folder, rustix::fs::Mode::RWXU);
        }
        let _ = rustix::fs::unlink(&path);
    }
    let mut other: sockaddr_un = std::mem::zeroed();
    other.sun_family = AF_UNIX as u16;
    for (to, from) in other.sun_path.iter_mut().zip(path.as_os_str().as_bytes()) {
        *to = *from as c_char;
    }
    Ok(Some(other))
}

/// A function of a library that may not be there. Where folders are wrapped it is not asked for.
///
/// # Safety
/// `F` is the type of the function.
unsafe fn next<F: Copy>(name: &CStr) -> Option<F> {
    if start::is_on() {
        return None;
    }
    let found = libc::dlsym(libc::RTLD_NEXT, name.as_ptr());
    (!found.is_null()).then(|| std::mem::transmute_copy(&found))
}

exported! {
    fn bind(fd: c_int, address: *const sockaddr, bytes: socklen_t) -> c_int {
        match socket_address(address, bytes, true) {
            Ok(None) => real::bind(fd, address, bytes),
            Ok(Some(other)) => real::bind(fd, (&raw const other).cast(), size_of::<sockaddr_un>() as socklen_t),
            Err(errno) => done(Err(errno)),
        }
    }

    fn connect(fd: c_int, address: *const sockaddr, bytes: socklen_t) -> c_int {
        match socket_address(address, bytes, false) {
            Ok(None) => real::connect(fd, address, bytes),
            Ok(Some(other)) => {
                real::connect(fd, (&raw const other).cast(), size_of::<sockaddr_un>() as socklen_t)
            }
            Err(errno) => done(Err(errno)),
        }
    }

    /// As when there is no room for another watch: programs look again from time to time then.
    fn inotify_add_watch(fd: c_int, path: *const c_char, mask: u32) -> c_int {
        if is_ours(path) {
            set(Errno::NOSPC);
            return -1;
        }
        real::inotify_add_watch(fd, path, mask)
    }

    /// Its requests would go to the kernel, which knows nothing of our files.
    fn io_setup(depth: c_int, out: *mut c_void) -> c_int {
        match next::<unsafe extern "C-unwind" fn(c_int, *mut c_void) -> c_int>(c"io_setup") {
            Some(function) => function(depth, out),
            None => -libc::ENOSYS,
        }
    }

    fn io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint) -> c_int {
        match next::<unsafe extern "C-unwind" fn(c_uint, *mut c_void, c_uint) -> c_int>(c"io_uring_queue_init") {
            Some(function) => function(entries, ring, flags),
            None => -libc::ENOSYS,
        }
    }

    fn io_uring_queue_init_params(entries: c_uint, ring: *mut c_void, params: *mut c_void) -> c_int {
        type Function = unsafe extern "C-unwind" fn(c_uint, *mut c_void, *mut c_void) -> c_int;
        match next::<Function>(c"io_uring_queue_init_params") {
            Some(function) => function(entries, ring, params),
            None => -libc::ENOSYS,
        }
    }

    /// Calls by number: those that may be about our files are made by their names.
    fn syscall(n: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long {
        if !start::is_on() || gate::is_inside() {
            return real::syscall(n, a, b, c, d, e, f);
        }
        by_name(n, [a, b, c, d, e, f]).unwrap_or_else(|| real::syscall(n, a, b, c, d, e, f))
    }
}

/// # Safety
/// As for `syscall(2)`.
unsafe fn by_name(n: c_long, [a, b, c, d, e, f]: [usize; 6]) -> Option<c_long> {
    let fd = a as c_int;
    if let Some(result) = by_name_of_path(n, [a, b, c, d, e]) {
        return Some(result);
    }
    Some(match n {
        libc::SYS_io_uring_setup | libc::SYS_io_setup => {
            set(Errno::NOSYS);
            -1
        }
        libc::SYS_read => crate::data::read(fd, b as _, c) as c_long,
        libc::SYS_write => crate::data::write(fd, b as _, c) as c_long,
        libc::SYS_pread64 => crate::data::pread(fd, b as _, c, d as _) as c_long,
        libc::SYS_pwrite64 => crate::data::pwrite(fd, b as _, c, d as _) as c_long,
        libc::SYS_readv => crate::data::readv(fd, b as _, c as _) as c_long,
        libc::SYS_writev => crate::data::writev(fd, b as _, c as _) as c_long,
        libc::SYS_preadv => crate::data::preadv(fd, b as _, c as _, d as _) as c_long,
        libc::SYS_pwritev => crate::data::pwritev(fd, b as _, c as _, d as _) as c_long,
        libc::SYS_preadv2 => crate::data::preadv2(fd, b as _, c as _, d as _, f as _) as c_long,
        libc::SYS_pwritev2 => crate::data::pwritev2(fd, b as _, c as _, d as _, f as _) as c_long,
        libc::SYS_lseek => crate::data::lseek(fd, b as _, c as _),
        libc::SYS_fsync => crate::data::fsync(fd).into(),
        libc::SYS_fdatasync => crate::data::fdatasync(fd).into(),
        libc::SYS_sync => {
            crate::data::sync();
            0
        }
        libc::SYS_syncfs => crate::data::syncfs(fd).into(),
        libc::SYS_sync_file_range => crate::data::sync_file_range(fd, b as _, c as _, d as _).into(),
        libc::SYS_ftruncate => crate::data::ftruncate(fd, b as _).into(),
        libc::SYS_fallocate => crate::data::fallocate(fd, b as _, c as _, d as _).into(),
        libc::SYS_close => crate::open::close(fd).into(),
        libc::SYS_close_range => crate::open::close_range(a as _, b as _, c as _).into(),
        libc::SYS_dup => crate::open::dup(fd).into(),
        libc::SYS_dup2 => crate::open::dup2(fd, b as _).into(),
        libc::SYS_dup3 => crate::open::dup3(fd, b as _, c as _).into(),
        libc::SYS_fcntl => crate::open::fcntl(fd, b as _, c).into(),
        libc::SYS_ioctl => crate::open::ioctl(fd, b as _, c).into(),
        libc::SYS_flock => crate::locks::flock(fd, b as _).into(),
        libc::SYS_fstat => crate::attributes::fstat(fd, b as _).into(),
        libc::SYS_fstatfs => crate::attributes::fstatfs(fd, b as _).into(),
        libc::SYS_fchmod => crate::attributes::fchmod(fd, b as _).into(),
        libc::SYS_fchown => crate::attributes::fchown(fd, b as _, c as _).into(),
        libc::SYS_fchdir => crate::names::fchdir(fd).into(),
        libc::SYS_getdents64 => crate::directory::getdents64(fd, b as _, c) as c_long,
        libc::SYS_sendfile => crate::copy::sendfile(fd, b as _, c as _, d) as c_long,
        libc::SYS_copy_file_range => {
            crate::copy::copy_file_range(fd, b as _, c as _, d as _, e, f as _) as c_long
        }
        libc::SYS_mmap => crate::map::mmap(a as _, b, c as _, d as _, e as _, f as _) as c_long,
        libc::SYS_munmap => crate::map::munmap(a as _, b).into(),
        libc::SYS_mprotect => crate::map::mprotect(a as _, b, c as _).into(),
        libc::SYS_msync => crate::map::msync(a as _, b, c as _).into(),
        _ => return None,
    })
}

/// # Safety
/// As for `syscall(2)`.
unsafe fn by_name_of_path(n: c_long, [a, b, c, d, e]: [usize; 5]) -> Option<c_long> {
    let fd = a as c_int;
    Some(match n {
        libc::SYS_open => crate::open::open(a as _, b as _, c as _).into(),
        libc::SYS_openat => crate::open::openat(fd, b as _, c as _, d as _).into(),
        libc::SYS_openat2 if c != 0 => {
            // Flags, mode, and how the path is followed. Who asks for more goes on without it.
            let [flags, mode, resolve] = (c as *const [u64; 3]).read_unaligned();
            if flags >> 23 != 0 || mode != 0 && flags as c_int & (libc::O_CREAT | libc::O_TMPFILE) == 0 {
                set(Errno::INVAL);
                return Some(-1);
            }
            if resolve != 0 {
                set(Errno::NOSYS);
                return Some(-1);
            }
            crate::open::openat(fd, b as _, flags as c_int, mode as libc::mode_t).into()
        }
        libc::SYS_creat => crate::open::creat(a as _, b as _).into(),
        libc::SYS_stat => crate::attributes::stat(a as _, b as _).into(),
        libc::SYS_lstat => crate::attributes::lstat(a as _, b as _).into(),
        libc::SYS_newfstatat => crate::attributes::fstatat(fd, b as _, c as _, d as _).into(),
        libc::SYS_statx => crate::attributes::statx(fd, b as _, c as _, d as _, e as _).into(),
        libc::SYS_access => crate::attributes::access(a as _, b as _).into(),
        libc::SYS_faccessat => crate::attributes::faccessat(fd, b as _, c as _, 0).into(),
        libc::SYS_faccessat2 => crate::attributes::faccessat(fd, b as _, c as _, d as _).into(),
        libc::SYS_statfs => crate::attributes::statfs(a as _, b as _).into(),
        libc::SYS_utimensat => crate::attributes::utimensat(fd, b as _, c as _, d as _).into(),
        libc::SYS_chmod => crate::attributes::chmod(a as _, b as _).into(),
        libc::SYS_fchmodat => crate::attributes::fchmodat(fd, b as _, c as _, 0).into(),
        libc::SYS_fchownat => crate::attributes::fchownat(fd, b as _, c as _, d as _, e as _).into(),
        libc::SYS_truncate => crate::data::truncate(a as _, b as _).into(),
        libc::SYS_mkdir => crate::names::mkdir(a as _, b as _).into(),
        libc::SYS_mkdirat => crate::names::mkdirat(fd, b as _, c as _).into(),
        libc::SYS_mknodat => crate::names::mknodat(fd, b as _, c as _, d as _).into(),
        libc::SYS_unlink => crate::names::unlink(a as _).into(),
        libc::SYS_unlinkat => crate::names::unlinkat(fd, b as _, c as _).into(),
        libc::SYS_rmdir => crate::names::rmdir(a as _).into(),
        libc::SYS_rename => crate::names::rename(a as _, b as _).into(),
        libc::SYS_renameat => crate::names::renameat(fd, b as _, c as _, d as _).into(),
        libc::SYS_renameat2 => crate::names::renameat2(fd, b as _, c as _, d as _, e as _).into(),
        libc::SYS_link => crate::names::link(a as _, b as _).into(),
        libc::SYS_linkat => crate::names::linkat(fd, b as _, c as _, d as _, e as _).into(),
        libc::SYS_symlink => crate::names::symlink(a as _, b as _).into(),
        libc::SYS_symlinkat => crate::names::symlinkat(a as _, b as _, c as _).into(),
        libc::SYS_readlinkat => crate::names::readlinkat(fd, b as _, c as _, d) as c_long,
        libc::SYS_chdir => crate::names::chdir(a as _).into(),
        _ => return None,
    })
}
