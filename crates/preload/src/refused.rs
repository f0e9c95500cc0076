//! What is answered as a kernel without it would, and calls that are made by their numbers.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};

use libc::AT_FDCWD;
use rustix::io::Errno;

use crate::errno::set;
use crate::place::{self, Place};
use crate::sockets::{bind, connect, getpeername, getsockname, sendmsg, sendto};
use crate::{gate, kinds, memory, ready, real, state};

/// Whether a path of C's is in a folder.
unsafe fn is_ours(path: *const c_char) -> bool {
    matches!(place::resolve_through_links(AT_FDCWD, path, true), Ok(Place::Ours(..)))
}

/// A function of a library that may not be there. Where folders are wrapped it is not asked for.
///
/// # Safety
/// `F` is the type of the function.
unsafe fn next<F: Copy>(name: &CStr) -> Option<F> {
    if state::is_on() {
        return None;
    }
    let found = libc::dlsym(libc::RTLD_NEXT, name.as_ptr());
    (!found.is_null()).then(|| std::mem::transmute_copy(&found))
}

mod behind {
    use super::*;

    functions! {
        fn name_to_handle_at(
            dir: c_int, path: *const c_char, handle: *mut c_void, mount: *mut c_int, flags: c_int,
        ) -> c_int;
        fn fanotify_mark(fd: c_int, flags: c_uint, mask: u64, dir: c_int, path: *const c_char) -> c_int;
    }
}

/// What makes queues of the kernel's: their requests would go to it, and it knows nothing of our files.
macro_rules! queues_of_kernel {
    ($(fn $name:ident($($arg:ident: $type:ty),*);)*) => {
        exported! {
            $(fn $name($($arg: $type),*) -> c_int {
                const NAME: &[u8] = concat!(stringify!($name), "\0").as_bytes();
                let name = const {
                    match CStr::from_bytes_with_nul(NAME) {
                        Ok(name) => name,
                        Err(_) => panic!("a name without a NUL"),
                    }
                };
                match next::<unsafe extern "C-unwind" fn($($type),*) -> c_int>(name) {
                    Some(function) => function($($arg),*),
                    None => -libc::ENOSYS,
                }
            })*
        }
    };
}

queues_of_kernel! {
    fn io_setup(depth: c_int, out: *mut c_void);
    fn io_queue_init(depth: c_int, out: *mut c_void);
    fn io_uring_setup(entries: c_uint, params: *mut c_void);
    fn io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint);
    fn io_uring_queue_init_params(entries: c_uint, ring: *mut c_void, params: *mut c_void);
    fn io_uring_queue_init_mem(
        entries: c_uint, ring: *mut c_void, params: *mut c_void, memory: *mut c_void, bytes: usize
    );
}

exported! {
    /// As when there is no room for another watch: programs look again from time to time then.
    fn inotify_add_watch(fd: c_int, path: *const c_char, mask: u32) -> c_int {
        if is_ours(path) {
            set(Errno::NOSPC);
            return -1;
        }
        real::inotify_add_watch(fd, path, mask)
    }

    /// No event would ever come. As of a file system whose files have no handles.
    fn fanotify_mark(fd: c_int, flags: c_uint, mask: u64, dir: c_int, path: *const c_char) -> c_int {
        const FAN_MARK_DONT_FOLLOW: c_uint = 4;
        const FAN_MARK_FLUSH: c_uint = 0x80;
        let is_ours = if path.is_null() {
            crate::table::is_ours(dir) || dir == AT_FDCWD && place::our_mount().is_some()
        } else {
            let follows = flags & FAN_MARK_DONT_FOLLOW == 0;
            matches!(place::resolve_through_links(dir, path, follows), Ok(Place::Ours(..)))
        };
        if is_ours && flags & FAN_MARK_FLUSH == 0 {
            set(Errno::OPNOTSUPP);
            return -1;
        }
        behind::fanotify_mark(fd, flags, mask, dir, path)
    }

    /// A handle would be one of the kernel's.
    fn name_to_handle_at(
        dir: c_int, path: *const c_char, handle: *mut c_void, mount: *mut c_int, flags: c_int,
    ) -> c_int {
        let is_ours = match crate::errno::text(path).is_ok_and(<[u8]>::is_empty) {
            true => crate::table::is_ours(dir),
            false => matches!(
                place::resolve_through_links(dir, path, flags & libc::AT_SYMLINK_FOLLOW != 0),
                Ok(Place::Ours(..))
            ),
        };
        if is_ours {
            set(Errno::OPNOTSUPP);
            return -1;
        }
        behind::name_to_handle_at(dir, path, handle, mount, flags)
    }

    /// As the C library's own, by our `stat`.
    fn ftok(path: *const c_char, project: c_int) -> libc::key_t {
        let mut found: libc::stat = std::mem::zeroed();
        if crate::attributes::stat(path, &mut found) != 0 {
            return -1;
        }
        ((found.st_ino & 0xffff) as u32 | ((found.st_dev & 0xff) as u32) << 16 | (project as u32 & 0xff) << 24)
            as libc::key_t
    }

    /// Calls by number: those that may be about our files are made by their names.
    fn syscall(n: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long {
        if !state::is_on() || gate::is_inside() {
            return real::syscall(n, a, b, c, d, e, f);
        }
        by_name(n, [a, b, c, d, e, f]).unwrap_or_else(|| real::syscall(n, a, b, c, d, e, f))
    }
}

/// # Safety
/// As for `syscall(2)`.
unsafe fn by_name(n: c_long, [a, b, c, d, e, f]: [usize; 6]) -> Option<c_long> {
    let fd = a as c_int;
    let others = by_name_of_path(n, [a, b, c, d, e])
        .or_else(|| by_name_of_attribute(n, [a, b, c, d, e]))
        .or_else(|| by_name_of_other(n, [a, b, c, d, e, f]))
        .or_else(|| by_name_of_ready(n, [a, b, c, d, e, f]))
        .or_else(|| crate::users::by_number(n, [a, b, c]));
    if others.is_some() {
        return others;
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
        libc::SYS_splice => crate::pipes::splice(fd, b as _, c as _, d as _, e, f as _) as c_long,
        libc::SYS_tee => crate::pipes::tee(fd, b as _, c, d as _) as c_long,
        // This one says what was wrong by its result.
        libc::SYS_fadvise64 => by_errno(crate::data::posix_fadvise(fd, b as _, c as _, d as _)),
        libc::SYS_readahead => crate::data::readahead(fd, b as _, c) as c_long,
        libc::SYS_mremap => crate::map::mremap(a as _, b, c, d as _, e as _) as c_long,
        libc::SYS_umask => crate::open::umask(a as _).into(),
        libc::SYS_mmap => crate::map::mmap(a as _, b, c as _, d as _, e as _, f as _) as c_long,
        libc::SYS_munmap => crate::map::munmap(a as _, b).into(),
        libc::SYS_mprotect => crate::map::mprotect(a as _, b, c as _).into(),
        libc::SYS_msync => crate::map::msync(a as _, b, c as _).into(),
        _ => return None,
    })
}

/// The result of a call by number, of one that has the error as its result.
fn by_errno(failed: c_int) -> c_long {
    if failed == 0 {
        return 0;
    }
    crate::errno::put(failed);
    -1
}

/// `openat2`. What is wrong with how a file is asked for is the kernel's to say; who asks for a path of ours
/// to be followed in a way of its own goes on without it.
///
/// # Safety
/// As for `openat2(2)`.
unsafe fn openat2(dir: c_int, path: *const c_char, how: usize, bytes: usize) -> Option<c_long> {
    const BYTES: usize = size_of::<[u64; 3]>();
    /// The flags of `open`, and those of the call itself.
    const FLAGS: u64 = (1 << 23) - 1;
    const RESOLVE: u64 = (1 << 6) - 1;
    if bytes != BYTES || memory::check_readable(how as *const c_void, BYTES).is_err() {
        return None;
    }
    let [flags, mode, resolve] = (how as *const [u64; 3]).read_unaligned();
    let makes = flags as c_int & libc::O_CREAT != 0 || flags as c_int & libc::O_TMPFILE == libc::O_TMPFILE;
    if flags & !FLAGS != 0 || resolve & !RESOLVE != 0 || mode & !0o7777 != 0 || mode != 0 && !makes {
        return None;
    }
    if resolve == 0 {
        return Some(crate::open::openat(dir, path, flags as c_int, mode as libc::mode_t).into());
    }
    let follows = flags as c_int & libc::O_NOFOLLOW == 0;
    let place = state::steadily(|| place::resolve_through_links(dir, path, follows));
    let wrong = match place {
        Ok(Place::Kernel) => return None,
        Ok(Place::Ours(..) | Place::Other(_)) => Errno::NOSYS,
        Err(errno) => errno,
    };
    set(wrong);
    Some(-1)
}

/// # Safety
/// As for `syscall(2)`.
unsafe fn by_name_of_path(n: c_long, [a, b, c, d, e]: [usize; 5]) -> Option<c_long> {
    let fd = a as c_int;
    Some(match n {
        libc::SYS_open => crate::open::open(a as _, b as _, c as _).into(),
        libc::SYS_openat => crate::open::openat(fd, b as _, c as _, d as _).into(),
        libc::SYS_openat2 => return openat2(fd, b as _, c, d),
        libc::SYS_creat => crate::open::creat(a as _, b as _).into(),
        libc::SYS_stat => crate::attributes::stat(a as _, b as _).into(),
        libc::SYS_lstat => crate::attributes::lstat(a as _, b as _).into(),
        libc::SYS_newfstatat => crate::attributes::fstatat(fd, b as _, c as _, d as _).into(),
        libc::SYS_statx => crate::attributes::statx(fd, b as _, c as _, d as _, e as _).into(),
        libc::SYS_access => crate::attributes::access(a as _, b as _).into(),
        libc::SYS_faccessat => crate::attributes::faccessat(fd, b as _, c as _, 0).into(),
        libc::SYS_faccessat2 => crate::attributes::faccessat(fd, b as _, c as _, d as _).into(),
        libc::SYS_statfs => crate::attributes::statfs(a as _, b as _).into(),
        libc::SYS_utimensat if b == 0 => crate::attributes::times_by_number(fd, c as _, d as _).into(),
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
        libc::SYS_readlink => crate::names::readlink(a as _, b as _, c) as c_long,
        // The kernel counts the NUL as well.
        libc::SYS_getcwd => match a {
            0 => {
                set(Errno::FAULT);
                -1
            }
            _ if crate::names::getcwd(a as _, b).is_null() => -1,
            _ => CStr::from_ptr(a as *const c_char).to_bytes_with_nul().len() as c_long,
        },
        libc::SYS_mknod => crate::names::mknod(a as _, b as _, c as _).into(),
        libc::SYS_chroot => crate::names::chroot(a as _).into(),
        libc::SYS_execve => crate::process::execve(a as _, b as _, c as _).into(),
        _ => return None,
    })
}

/// # Safety
/// As for `syscall(2)`.
unsafe fn by_name_of_attribute(n: c_long, [a, b, c, d, e]: [usize; 5]) -> Option<c_long> {
    let fd = a as c_int;
    Some(match n {
        libc::SYS_chown => crate::attributes::chown(a as _, b as _, c as _).into(),
        libc::SYS_lchown => crate::attributes::lchown(a as _, b as _, c as _).into(),
        libc::SYS_utime => crate::attributes::utime(a as _, b as _).into(),
        libc::SYS_utimes => crate::attributes::utimes(a as _, b as _).into(),
        libc::SYS_futimesat => crate::attributes::futimesat(fd, b as _, c as _).into(),
        libc::SYS_getxattr => crate::xattrs::getxattr(a as _, b as _, c as _, d) as c_long,
        libc::SYS_lgetxattr => crate::xattrs::lgetxattr(a as _, b as _, c as _, d) as c_long,
        libc::SYS_fgetxattr => crate::xattrs::fgetxattr(fd, b as _, c as _, d) as c_long,
        libc::SYS_setxattr => crate::xattrs::setxattr(a as _, b as _, c as _, d, e as _).into(),
        libc::SYS_lsetxattr => crate::xattrs::lsetxattr(a as _, b as _, c as _, d, e as _).into(),
        libc::SYS_fsetxattr => crate::xattrs::fsetxattr(fd, b as _, c as _, d, e as _).into(),
        libc::SYS_listxattr => crate::xattrs::listxattr(a as _, b as _, c) as c_long,
        libc::SYS_llistxattr => crate::xattrs::llistxattr(a as _, b as _, c) as c_long,
        libc::SYS_flistxattr => crate::xattrs::flistxattr(fd, b as _, c) as c_long,
        libc::SYS_removexattr => crate::xattrs::removexattr(a as _, b as _).into(),
        libc::SYS_lremovexattr => crate::xattrs::lremovexattr(a as _, b as _).into(),
        libc::SYS_fremovexattr => crate::xattrs::fremovexattr(fd, b as _).into(),
        _ => return None,
    })
}

/// Waiting for descriptors, and calls on sockets. `pselect6` with a mask of signals is the kernel's, which
/// refuses what stands for a file.
///
/// # Safety
/// As for `syscall(2)`.
unsafe fn by_name_of_ready(n: c_long, [a, b, c, d, e, f]: [usize; 6]) -> Option<c_long> {
    let fd = a as c_int;
    Some(match n {
        libc::SYS_poll => ready::poll(a as _, b as _, c as _).into(),
        libc::SYS_ppoll => ready::ppoll(a as _, b as _, c as _, d as _).into(),
        libc::SYS_select => ready::select(fd, b as _, c as _, d as _, e as _).into(),
        libc::SYS_pselect6 if f == 0 => {
            ready::pselect(fd, b as _, c as _, d as _, e as _, std::ptr::null()).into()
        }
        libc::SYS_epoll_ctl => ready::epoll_ctl(fd, b as _, c as _, d as _).into(),
        libc::SYS_getsockopt => kinds::getsockopt(fd, b as _, c as _, d as _, e as _).into(),
        libc::SYS_setsockopt => kinds::setsockopt(fd, b as _, c as _, d as _, e as _).into(),
        libc::SYS_recvfrom => kinds::recvfrom(fd, b as _, c, d as _, e as _, f as _) as c_long,
        libc::SYS_shutdown => kinds::shutdown(fd, b as _).into(),
        _ => return None,
    })
}

/// Sockets, programs, and what is refused.
///
/// # Safety
/// As for `syscall(2)`.
unsafe fn by_name_of_other(n: c_long, [a, b, c, d, e, f]: [usize; 6]) -> Option<c_long> {
    let fd = a as c_int;
    Some(match n {
        libc::SYS_bind => bind(fd, b as _, c as _).into(),
        libc::SYS_connect => connect(fd, b as _, c as _).into(),
        libc::SYS_sendto => sendto(fd, b as _, c, d as _, e as _, f as _) as c_long,
        libc::SYS_sendmsg => sendmsg(fd, b as _, c as _) as c_long,
        libc::SYS_getsockname => getsockname(fd, b as _, c as _).into(),
        libc::SYS_getpeername => getpeername(fd, b as _, c as _).into(),
        libc::SYS_fanotify_mark => fanotify_mark(fd, b as _, c as _, d as _, e as _).into(),
        libc::SYS_inotify_add_watch => inotify_add_watch(fd, b as _, c as _).into(),
        libc::SYS_execveat => crate::process::execveat(fd, b as _, c as _, d as _, e as _).into(),
        libc::SYS_name_to_handle_at => name_to_handle_at(fd, b as _, c as _, d as _, e as _).into(),
        _ => return None,
    })
}
