//! The C library's own functions: those that come behind ours in the order of libraries.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{
    DIR, FILE, dev_t, dirent, gid_t, iovec, mode_t, off_t, pid_t, size_t, sockaddr, socklen_t, ssize_t,
    stat as Stat, statfs as Statfs, statvfs as Statvfs, statx as Statx, timespec, timeval, uid_t, utimbuf,
};

/// Finds a function once. A C library that does not have it makes the program end with a message: there is
/// nothing that could be called instead.
#[cold]
pub(crate) unsafe fn find(at: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let found = libc::dlsym(libc::RTLD_NEXT, name.as_ptr());
    if found.is_null() {
        crate::state::die(&format!("the C library has no {}", name.to_string_lossy()));
    }
    at.store(found, Ordering::Release);
    found
}

macro_rules! functions {
    ($(fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $ret:ty)?;)*) => {$(
        #[inline]
        pub(crate) unsafe fn $name($($arg: $type),*) $(-> $ret)? {
            static AT: std::sync::atomic::AtomicPtr<std::ffi::c_void> =
                std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());
            const NAME: &std::ffi::CStr = match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name without a NUL"),
            };
            let mut found = AT.load(std::sync::atomic::Ordering::Acquire);
            if found.is_null() {
                found = $crate::real::find(&AT, NAME);
            }
            let function: unsafe extern "C-unwind" fn($($type),*) $(-> $ret)? = std::mem::transmute(found);
            function($($arg),*)
        }
    )*};
}

/// Functions that C calls, by their names. A thread that is canceled is unwound through them.
macro_rules! exported {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $ret:ty)? $body:block)*) => {$(
        $(#[$meta])*
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C-unwind" fn $name($($arg: $type),*) $(-> $ret)? $body
    )*};
}

/// Functions with arguments of any number, which are put where a list of arguments has them. Of each: the
/// bytes of registers that named arguments take, how a named one comes to its place, the register in which
/// the list goes on, and who is called.
macro_rules! variadic {
    ($($name:ident: $fixed:literal, $move:literal, $list:literal, $handler:path;)*) => {$(
        #[cfg(target_arch = "x86_64")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name() -> std::ffi::c_int {
            std::arch::naked_asm!(
                ".cfi_startproc",
                "sub rsp, 216",
                // Threads that are canceled are unwound through this.
                ".cfi_adjust_cfa_offset 216",
                "mov [rsp + 32], rdi",
                "mov [rsp + 40], rsi",
                "mov [rsp + 48], rdx",
                "mov [rsp + 56], rcx",
                "mov [rsp + 64], r8",
                "mov [rsp + 72], r9",
                "movaps [rsp + 80], xmm0",
                "movaps [rsp + 96], xmm1",
                "movaps [rsp + 112], xmm2",
                "movaps [rsp + 128], xmm3",
                "movaps [rsp + 144], xmm4",
                "movaps [rsp + 160], xmm5",
                "movaps [rsp + 176], xmm6",
                "movaps [rsp + 192], xmm7",
                concat!("mov dword ptr [rsp], ", $fixed),
                "mov dword ptr [rsp + 4], 48",
                "lea rax, [rsp + 224]",
                "mov [rsp + 8], rax",
                "lea rax, [rsp + 32]",
                "mov [rsp + 16], rax",
                $move,
                concat!("mov ", $list, ", rsp"),
                "call {handler}",
                "add rsp, 216",
                ".cfi_adjust_cfa_offset -216",
                "ret",
                ".cfi_endproc",
                handler = sym $handler,
            )
        }
    )*};
}

functions! {
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    fn close(fd: c_int) -> c_int;
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    fn dup(fd: c_int) -> c_int;
    fn dup2(from: c_int, to: c_int) -> c_int;
    fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int;
    fn fcntl(fd: c_int, cmd: c_int, arg: usize) -> c_int;
    fn ioctl(fd: c_int, request: libc::c_ulong, arg: usize) -> c_int;
    fn read(fd: c_int, buf: *mut c_void, count: size_t) -> ssize_t;
    fn write(fd: c_int, buf: *const c_void, count: size_t) -> ssize_t;
    fn pread(fd: c_int, buf: *mut c_void, count: size_t, offset: off_t) -> ssize_t;
    fn pwrite(fd: c_int, buf: *const c_void, count: size_t, offset: off_t) -> ssize_t;
    fn readv(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t;
    fn writev(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t;
    fn preadv(fd: c_int, iov: *const iovec, count: c_int, offset: off_t) -> ssize_t;
    fn pwritev(fd: c_int, iov: *const iovec, count: c_int, offset: off_t) -> ssize_t;
    fn preadv2(fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    fn pwritev2(fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    fn lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t;
    fn fsync(fd: c_int) -> c_int;
    fn fdatasync(fd: c_int) -> c_int;
    fn sync();
    fn syncfs(fd: c_int) -> c_int;
    fn sync_file_range(fd: c_int, offset: off_t, bytes: off_t, flags: c_uint) -> c_int;
    fn ftruncate(fd: c_int, size: off_t) -> c_int;
    fn truncate(path: *const c_char, size: off_t) -> c_int;
    fn fallocate(fd: c_int, mode: c_int, offset: off_t, bytes: off_t) -> c_int;
    fn posix_fallocate(fd: c_int, offset: off_t, bytes: off_t) -> c_int;
    fn posix_fadvise(fd: c_int, offset: off_t, bytes: off_t, advice: c_int) -> c_int;
    fn readahead(fd: c_int, offset: off_t, count: size_t) -> ssize_t;
    fn sendfile(out: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t;
    fn splice(
        from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, bytes: size_t, flags: c_uint,
    ) -> ssize_t;
    fn tee(from: c_int, to: c_int, bytes: size_t, flags: c_uint) -> ssize_t;
    fn copy_file_range(
        from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, bytes: size_t, flags: c_uint,
    ) -> ssize_t;
    fn mmap(
        at: *mut c_void, bytes: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t,
    ) -> *mut c_void;
    fn munmap(at: *mut c_void, bytes: size_t) -> c_int;
    fn mprotect(at: *mut c_void, bytes: size_t, protection: c_int) -> c_int;
    fn msync(at: *mut c_void, bytes: size_t, flags: c_int) -> c_int;
    fn madvise(at: *mut c_void, bytes: size_t, advice: c_int) -> c_int;
    fn mremap(
        at: *mut c_void, old: size_t, new: size_t, flags: c_int, to: *mut c_void,
    ) -> *mut c_void;
    fn fstatat(dir: c_int, path: *const c_char, out: *mut Stat, flags: c_int) -> c_int;
    fn stat(path: *const c_char, out: *mut Stat) -> c_int;
    fn lstat(path: *const c_char, out: *mut Stat) -> c_int;
    fn fstat(fd: c_int, out: *mut Stat) -> c_int;
    fn statx(dir: c_int, path: *const c_char, flags: c_int, mask: c_uint, out: *mut Statx) -> c_int;
    fn statfs(path: *const c_char, out: *mut Statfs) -> c_int;
    fn fstatfs(fd: c_int, out: *mut Statfs) -> c_int;
    fn statvfs(path: *const c_char, out: *mut Statvfs) -> c_int;
    fn fstatvfs(fd: c_int, out: *mut Statvfs) -> c_int;
    fn access(path: *const c_char, mode: c_int) -> c_int;
    fn faccessat(dir: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int;
    fn unlink(path: *const c_char) -> c_int;
    fn unlinkat(dir: c_int, path: *const c_char, flags: c_int) -> c_int;
    fn rmdir(path: *const c_char) -> c_int;
    fn mkdir(path: *const c_char, mode: mode_t) -> c_int;
    fn mkdirat(dir: c_int, path: *const c_char, mode: mode_t) -> c_int;
    fn mknod(path: *const c_char, mode: mode_t, device: dev_t) -> c_int;
    fn mknodat(dir: c_int, path: *const c_char, mode: mode_t, device: dev_t) -> c_int;
    fn renameat(from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char) -> c_int;
    fn renameat2(
        from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char, flags: c_uint,
    ) -> c_int;
    fn linkat(from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char, flags: c_int) -> c_int;
    fn symlink(target: *const c_char, path: *const c_char) -> c_int;
    fn symlinkat(target: *const c_char, dir: c_int, path: *const c_char) -> c_int;
    fn readlink(path: *const c_char, buf: *mut c_char, bytes: size_t) -> ssize_t;
    fn readlinkat(dir: c_int, path: *const c_char, buf: *mut c_char, bytes: size_t) -> ssize_t;
    fn realpath(path: *const c_char, out: *mut c_char) -> *mut c_char;
    fn getcwd(out: *mut c_char, bytes: size_t) -> *mut c_char;
    fn chdir(path: *const c_char) -> c_int;
    fn fchdir(fd: c_int) -> c_int;
    fn chroot(path: *const c_char) -> c_int;
    fn umask(mask: mode_t) -> mode_t;
    fn chmod(path: *const c_char, mode: mode_t) -> c_int;
    fn fchmod(fd: c_int, mode: mode_t) -> c_int;
    fn fchmodat(dir: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int;
    fn fchown(fd: c_int, uid: uid_t, gid: gid_t) -> c_int;
    fn fchownat(dir: c_int, path: *const c_char, uid: uid_t, gid: gid_t, flags: c_int) -> c_int;
    fn utime(path: *const c_char, times: *const utimbuf) -> c_int;
    fn utimes(path: *const c_char, times: *const timeval) -> c_int;
    fn lutimes(path: *const c_char, times: *const timeval) -> c_int;
    fn futimes(fd: c_int, times: *const timeval) -> c_int;
    fn futimesat(dir: c_int, path: *const c_char, times: *const timeval) -> c_int;
    fn futimens(fd: c_int, times: *const timespec) -> c_int;
    fn utimensat(dir: c_int, path: *const c_char, times: *const timespec, flags: c_int) -> c_int;
    fn getxattr(path: *const c_char, name: *const c_char, value: *mut c_void, bytes: size_t) -> ssize_t;
    fn lgetxattr(path: *const c_char, name: *const c_char, value: *mut c_void, bytes: size_t) -> ssize_t;
    fn fgetxattr(fd: c_int, name: *const c_char, value: *mut c_void, bytes: size_t) -> ssize_t;
    fn setxattr(
        path: *const c_char, name: *const c_char, value: *const c_void, bytes: size_t, flags: c_int,
    ) -> c_int;
    fn lsetxattr(
        path: *const c_char, name: *const c_char, value: *const c_void, bytes: size_t, flags: c_int,
    ) -> c_int;
    fn fsetxattr(
        fd: c_int, name: *const c_char, value: *const c_void, bytes: size_t, flags: c_int,
    ) -> c_int;
    fn listxattr(path: *const c_char, list: *mut c_char, bytes: size_t) -> ssize_t;
    fn llistxattr(path: *const c_char, list: *mut c_char, bytes: size_t) -> ssize_t;
    fn flistxattr(fd: c_int, list: *mut c_char, bytes: size_t) -> ssize_t;
    fn removexattr(path: *const c_char, name: *const c_char) -> c_int;
    fn lremovexattr(path: *const c_char, name: *const c_char) -> c_int;
    fn fremovexattr(fd: c_int, name: *const c_char) -> c_int;
    fn flock(fd: c_int, operation: c_int) -> c_int;
    fn lockf(fd: c_int, cmd: c_int, bytes: off_t) -> c_int;
    fn pathconf(path: *const c_char, name: c_int) -> c_long;
    fn fpathconf(fd: c_int, name: c_int) -> c_long;
    fn opendir(path: *const c_char) -> *mut DIR;
    fn fdopendir(fd: c_int) -> *mut DIR;
    fn readdir(dir: *mut DIR) -> *mut dirent;
    fn readdir_r(dir: *mut DIR, entry: *mut dirent, out: *mut *mut dirent) -> c_int;
    fn closedir(dir: *mut DIR) -> c_int;
    fn rewinddir(dir: *mut DIR);
    fn seekdir(dir: *mut DIR, at: c_long);
    fn telldir(dir: *mut DIR) -> c_long;
    fn dirfd(dir: *mut DIR) -> c_int;
    fn getdents64(fd: c_int, buf: *mut c_void, bytes: size_t) -> ssize_t;
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE;
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE;
    fn freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE;
    fn fclose(stream: *mut FILE) -> c_int;
    fn fileno(stream: *mut FILE) -> c_int;
    fn execve(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    fn fork() -> pid_t;
    fn syscall(n: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long;
    fn inotify_add_watch(fd: c_int, path: *const c_char, mask: u32) -> c_int;
    fn setuid(uid: uid_t) -> c_int;
    fn seteuid(uid: uid_t) -> c_int;
    fn setreuid(real: uid_t, effective: uid_t) -> c_int;
    fn setresuid(real: uid_t, effective: uid_t, saved: uid_t) -> c_int;
    fn setgid(gid: gid_t) -> c_int;
    fn setegid(gid: gid_t) -> c_int;
    fn setregid(real: gid_t, effective: gid_t) -> c_int;
    fn setresgid(real: gid_t, effective: gid_t, saved: gid_t) -> c_int;
    fn setgroups(count: size_t, groups: *const gid_t) -> c_int;
    fn initgroups(user: *const c_char, group: gid_t) -> c_int;
    fn recvmsg(fd: c_int, message: *mut libc::msghdr, flags: c_int) -> ssize_t;
    fn bind(fd: c_int, address: *const sockaddr, bytes: socklen_t) -> c_int;
    fn connect(fd: c_int, address: *const sockaddr, bytes: socklen_t) -> c_int;
}
