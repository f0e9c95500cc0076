//! Processes: what `fork` and `exec` do to files that are open.

use std::any::Any;
use std::ffi::{CString, c_char, c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use libc::pid_t;
use rustix::io::Errno;
use unvme::lock::lock;
use unvme_fs::share::{Client, Forked};

use crate::environment::{Environment, Taker};
use crate::errno::number;
use crate::gate::Closed;
use crate::loader::Told;
use crate::mount::{self, Backend, Mount, Shared, identity};
use crate::program::{self, Program};
use crate::{gate, libraries, memory, own, place, reach, real, share, signals, slot, state, table};

/// What is there between `fork` in a process and in its child.
struct Prepared {
    forked: Vec<(u32, Forked)>,
    /// Locks that are taken for a moment, also by who is not inside: the child would find them taken.
    still: Vec<Box<dyn Any>>,
    _closed: Closed,
}

// SAFETY: it stays with the thread that forks, in the parent and in the child.
unsafe impl Send for Prepared {}

static PREPARED: Mutex<Option<Prepared>> = Mutex::new(None);

unsafe extern "C" fn before_fork() {
    if !state::is_on() || gate::is_inside() || gate::makes_others() {
        return;
    }
    // As the C library does a little later, when it must not wait for who waits at the gate.
    _IO_list_lock();
    let closed = gate::close();
    slot::prepare();
    let forked = gate::as_other(|| connections(&closed));
    table::count_child(true);
    // None of them is held by who waits for anything else.
    let still: Vec<Box<dyn Any>> = vec![
        gate::still(),
        crate::map::still(),
        crate::stdio::still(),
        crate::directory::still(),
        place::still(),
        Box::new(lock(&FOR_CHILDREN)),
        crate::children::still(),
    ];
    *lock(&PREPARED) = Some(Prepared { forked, still, _closed: closed });
}

unsafe extern "C" {
    fn _IO_list_lock();
    fn _IO_list_unlock();
    fn _IO_list_resetlock();
}

/// Makes a process. The C library does not tell `in_parent` whether there is one.
pub(crate) unsafe fn fork_any() -> pid_t {
    let child = real::fork();
    if child < 0 && state::is_on() && !gate::is_ours() && !gate::makes_others() {
        let _inside = gate::enter();
        table::count_child(false);
    }
    child
}

/// Connections for a child.
fn connections(closed: &Closed) -> Vec<(u32, Forked)> {
    let mut forked = Vec::new();
    for mount in mount::all() {
        match share::prepare_fork(mount, closed) {
            Ok(Some(connection)) => forked.push((mount.number, connection)),
            Ok(None) => {}
            Err(e) => state::say(&e),
        }
    }
    forked
}

unsafe extern "C" fn in_parent() {
    if !gate::makes_others() {
        let prepared = lock(&PREPARED).take();
        if prepared.is_some() {
            _IO_list_unlock();
        }
        drop(prepared);
    }
}

unsafe extern "C" fn in_child() {
    if !state::is_on() || gate::makes_others() {
        return;
    }
    let Some(prepared) = lock(&PREPARED).take() else { return };
    _IO_list_resetlock();
    gate::forget_others();
    slot::join(std::process::id());
    let Prepared { mut forked, still, _closed } = prepared;
    drop(still);
    crate::children::become_child();
    let is_any_alone = mount::all().iter().any(|mount| matches!(mount.backend(), Some(Backend::Alone(_))));
    for mount in mount::all() {
        let connection = forked.iter().position(|(number, _)| *number == mount.number);
        let connection = connection.map(|at| forked.swap_remove(at).1);
        become_child(mount, connection);
    }
    if is_any_alone {
        // The parent's device, and what says that it has it, end with the parent.
        own::close_all();
    }
    // What is in this process is the server's from now on.
    table::each(|_, file| file.forget_parent());
    drop(_closed);
}

/// The child of a process goes on as a client of its own. What the parent has in memory is left alone: it
/// must not be dropped here.
fn become_child(mount: &'static Mount, connection: Option<Forked>) {
    let Some(mut before) = mount.take() else { return };
    if let Backend::Alone(alone) = before.as_mut() {
        if let Some(hold) = lock(&alone.hold).as_mut() {
            hold.forget();
        }
        if let Some(own) = lock(&alone.server).as_mut() {
            own.server.forget_hold();
        }
    }
    let before: &'static Backend = Box::leak(before);
    let Some(connection) = connection else { return };
    let made = match before {
        Backend::Shared(shared) => connection.into_child(&shared.client),
        Backend::Alone(_) => connection.into_child_of_server().inspect(|client| mount.start_again(client)),
    };
    match made {
        Ok(client) => mount.install(Backend::Shared(Shared::new(client))),
        Err(e) => state::say(&e.to_string()),
    }
}

/// Before `main`.
pub(crate) fn start() {
    // SAFETY: functions that stay as long as the process.
    unsafe {
        libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child));
    }
}

/// Takes on the connections of the image before this one: pairs of a folder's number and a descriptor.
pub(crate) fn inherit<'a>(pairs: impl Iterator<Item = &'a str>) {
    for pair in pairs {
        let Some((number, fd)) = pair.split_once(':') else { continue };
        let (Ok(number), Ok(fd)) = (number.parse::<u32>(), fd.parse::<c_int>()) else { continue };
        let Some(mount) = mount::by_number(number) else { continue };
        // SAFETY: only asked about.
        if unsafe { real::fcntl(fd, libc::F_GETFD, 0) } < 0 {
            continue;
        }
        // SAFETY: the image before this one has left it for this.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let Ok(socket) = mount.socket() else { continue };
        match Client::resume(&socket, identity(), fd) {
            Ok(client) => {
                mount.start_again(&client);
                mount.install(Backend::Shared(Shared::new(client)));
            }
            Err(e) => state::say(&format!("{}: what was open is not any more: {e}", mount.config.device)),
        }
    }
}

/// What the image before this one had open and this one has not is closed.
pub(crate) fn keep_inherited() {
    for mount in mount::all() {
        let Some(Backend::Shared(shared)) = mount.backend() else { continue };
        let mut kept = Vec::new();
        table::each(|_, file| {
            if file.mount.number == mount.number {
                kept.push(file.open());
            }
        });
        if let Err(e) = shared.client.keep_only(&kept) {
            state::say(&e.to_string());
        }
    }
}

/// What the loader of a program is told that is run by a path. An environment that cannot be read is refused
/// later.
unsafe fn told_to(path: *const c_char, program: Option<&Program>, envp: *const *const c_char) -> Told {
    if memory::check_texts(envp).is_err() || crate::errno::text(path).is_err() {
        return Told::default();
    }
    Told::of(path, program.and_then(|program| program.own_path.as_deref()), envp)
}

/// As [`told_to`], of a program that a shell would find.
unsafe fn told_to_found(file: *const c_char, envp: *const *const c_char) -> Told {
    let before = crate::errno::get();
    let path = if state::is_on() && !gate::is_inside() { program::search(file) } else { None };
    crate::errno::put(before);
    path.map_or_else(Told::default, |path| told_to(path.as_ptr(), None, envp))
}

/// Another program takes the place of this one.
unsafe fn execute(
    envp: *const *const c_char,
    program: Option<&Program>,
    told: &Told,
    act: impl FnOnce(*const *const c_char) -> c_int,
) -> c_int {
    if !state::is_on() || gate::is_inside() {
        return act(envp);
    }
    if let Err(errno) = memory::check_texts(envp) {
        return number(Err(errno));
    }
    let closed = gate::close();
    slot::prepare();
    let mut passed = Vec::new();
    for mount in mount::all() {
        if let Some(Backend::Alone(_)) = mount.backend() {
            if mount.is_memory() {
                state::say(&format!(
                    "{}: it ends with this process, which becomes another program; a virtual slot or --shared keeps it",
                    mount.config.device
                ));
            } else if let Err(e) = share::share(mount, &closed) {
                state::say(&e);
            }
        }
        if let Some(Backend::Shared(shared)) = mount.backend() {
            shared.look(mount);
        }
        if let Some(Backend::Shared(shared)) = mount.backend()
            && let Ok(fd) = shared.client.pass_on()
        {
            passed.push((mount.number, fd));
        }
    }
    slot::keep_open();
    let environment = Environment::new(envp, &passed, program, told, Taker::Itself);
    let prompt = signals::promptly();
    let result = act(environment.pointers());
    drop(prompt);
    let failed = crate::errno::get();
    for mount in mount::all() {
        if let Some(Backend::Shared(shared)) = mount.backend() {
            let _ = shared.client.take_back();
        }
    }
    drop(environment);
    drop(closed);
    crate::errno::put(failed);
    result
}

/// Makes a process that runs another program.
unsafe fn spawn(
    envp: *const *const c_char,
    program: Option<&Program>,
    told: Told,
    act: impl FnOnce(*const *const c_char) -> c_int,
) -> c_int {
    if !state::is_on() || gate::is_inside() {
        return act(envp);
    }
    if let Err(errno) = memory::check_texts(envp) {
        return errno.raw_os_error();
    }
    let closed = gate::close();
    slot::prepare();
    let forked = gate::as_other(|| connections(&closed));
    let kept: Vec<(u32, OwnedFd)> = forked
        .into_iter()
        .filter_map(|(number, connection)| Some((number, connection.into_descriptor().ok()?)))
        .collect();
    let passed: Vec<_> = kept.iter().map(|(number, fd)| (*number, fd.as_raw_fd())).collect();
    // Its files are the child's as well, as long as the child has them.
    table::count_child(true);
    slot::keep_open();
    let environment = Environment::new(envp, &passed, program, &told, Taker::Child);
    let prompt = signals::promptly();
    let result = gate::as_other(|| act(environment.pointers()));
    drop(prompt);
    if result == 0 {
        told.hand_over();
    } else {
        table::count_child(false);
    }
    drop(kept);
    drop(closed);
    result
}

pub(crate) unsafe fn environ() -> *const *const c_char {
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    environ
}

/// The arguments of the functions that take them one by one: some in registers, which the caller's frame has
/// been made to hold, and the rest on the stack.
unsafe fn list(
    registers: *const *const c_char,
    count: usize,
    mut rest: *const *const c_char,
) -> Vec<*const c_char> {
    let mut found = Vec::new();
    for at in 0..count {
        let argument = *registers.add(at);
        found.push(argument);
        if argument.is_null() {
            return found;
        }
    }
    loop {
        found.push(*rest);
        if (*rest).is_null() {
            return found;
        }
        rest = rest.add(1);
    }
}

type Actions = libc::posix_spawn_file_actions_t;
type Spawned = libc::posix_spawnattr_t;

/// Files of ours that are open for children, by the actions that they are for.
static FOR_CHILDREN: Mutex<Vec<(usize, c_int)>> = Mutex::new(Vec::new());

mod behind {
    use super::*;

    functions! {
        fn execvpe(file: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
        fn fexecve(fd: c_int, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
        fn posix_spawn(
            pid: *mut pid_t, path: *const c_char, actions: *const Actions, attributes: *const Spawned,
            argv: *const *const c_char, envp: *const *const c_char,
        ) -> c_int;
        fn posix_spawnp(
            pid: *mut pid_t, path: *const c_char, actions: *const Actions, attributes: *const Spawned,
            argv: *const *const c_char, envp: *const *const c_char,
        ) -> c_int;
        fn daemon(stays: c_int, keeps: c_int) -> c_int;
        fn posix_spawn_file_actions_addopen(
            actions: *mut Actions, fd: c_int, path: *const c_char, flags: c_int, mode: libc::mode_t,
        ) -> c_int;
        fn posix_spawn_file_actions_adddup2(actions: *mut Actions, from: c_int, to: c_int) -> c_int;
        fn posix_spawn_file_actions_addclose(actions: *mut Actions, fd: c_int) -> c_int;
        fn posix_spawn_file_actions_addclosefrom_np(actions: *mut Actions, first: c_int) -> c_int;
        fn posix_spawn_file_actions_destroy(actions: *mut Actions) -> c_int;
    }
}

unsafe extern "C" fn execl_list(registers: *const *const c_char, rest: *const *const c_char) -> c_int {
    let argv = list(registers.add(1), 5, rest);
    execve_any(*registers, argv.as_ptr(), environ())
}

unsafe extern "C" fn execlp_list(registers: *const *const c_char, rest: *const *const c_char) -> c_int {
    let argv = list(registers.add(1), 5, rest);
    execvpe_any(*registers, argv.as_ptr(), environ())
}

unsafe extern "C" fn execle_list(registers: *const *const c_char, rest: *const *const c_char) -> c_int {
    let argv = list(registers.add(1), 5, rest);
    // The environment is behind the last argument.
    let envp = if argv.len() < 5 { *registers.add(1 + argv.len()) } else { *rest.add(argv.len() - 5) };
    execve_any(*registers, argv.as_ptr(), envp.cast())
}

unsafe fn spawn_program(
    program: &Program,
    (pid, actions, attributes): (*mut pid_t, *const Actions, *const Spawned),
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    let (path, argv) = (program.path.as_ptr(), program.arguments(argv));
    let told = told_to(path, Some(program), envp);
    spawn(envp, Some(program), told, |envp| behind::posix_spawn(pid, path, actions, attributes, argv, envp))
}

/// Functions whose arguments come one by one: the registers are put into memory, one behind the other.
macro_rules! one_by_one {
    ($($name:ident = $list:ident;)*) => {$(
        #[cfg(target_arch = "x86_64")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name() -> c_int {
            std::arch::naked_asm!(
                "push rbp",
                "mov rbp, rsp",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "push rdi",
                "mov rdi, rsp",
                "lea rsi, [rbp + 16]",
                "call {list}",
                "leave",
                "ret",
                list = sym $list,
            )
        }
    )*};
}

one_by_one! {
    execl = execl_list;
    execlp = execlp_list;
    execle = execle_list;
}

/// What `dlopen` goes on with: the C library's function and a path for it; or no function, and a handle.
#[repr(C)]
struct Library {
    path: *const c_char,
    function: *mut c_void,
}

/// A library that is in a folder of ours is one in memory; `caller` is where `dlopen` returns to.
unsafe extern "C" fn find_library(path: *const c_char, flags: c_int, caller: *const c_void) -> Library {
    static AT: std::sync::atomic::AtomicPtr<c_void> = std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());
    let mut function = AT.load(Ordering::Acquire);
    if function.is_null() {
        function = real::find(&AT, c"dlopen");
    }
    let real: libraries::Open = std::mem::transmute(function);
    match libraries::open(path, flags, caller, real) {
        Some(handle) => Library { path: handle.cast_const().cast(), function: std::ptr::null_mut() },
        None => Library { path: program::library(path).unwrap_or(path), function },
    }
}

/// The C library's own looks at who has called it: it has to come back there.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn dlopen() -> *mut c_void {
    std::arch::naked_asm!(
        "mov rdx, [rsp]",
        "push rsi",
        "call {find}",
        "pop rsi",
        "test rdx, rdx",
        "jz 2f",
        "mov rdi, rax",
        "jmp rdx",
        "2:",
        "ret",
        find = sym find_library,
    )
}

pub(crate) unsafe fn execve_any(
    path: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    if let Some(refused) = reach::refused(reach::check(path, argv)) {
        return refused;
    }
    match program::find(path, argv) {
        Ok(None) => execute(envp, None, &told_to(path, None, envp), |envp| real::execve(path, argv, envp)),
        Ok(Some(program)) => run(&program, argv, envp),
        Err(errno) => number(Err(errno)),
    }
}

unsafe fn run(program: &Program, argv: *const *const c_char, envp: *const *const c_char) -> c_int {
    let (path, argv) = (program.path.as_ptr(), program.arguments(argv));
    let told = told_to(path, Some(program), envp);
    execute(envp, Some(program), &told, |envp| real::execve(path, argv, envp))
}

unsafe fn execvpe_any(file: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int {
    match program::find_in_path(file, argv) {
        Ok(None) => {
            let told = told_to_found(file, envp);
            execute(envp, None, &told, |envp| behind::execvpe(file, argv, envp))
        }
        Ok(Some(program)) => run(&program, argv, envp),
        Err(errno) => number(Err(errno)),
    }
}

/// A program by a path from an open directory on, or by a descriptor.
unsafe fn execveat_any(
    (dir, path): (c_int, *const c_char),
    argv: *const *const c_char,
    envp: *const *const c_char,
    flags: c_int,
) -> c_int {
    let Ok(name) = crate::errno::text(path) else { return number(Err(Errno::FAULT)) };
    if flags & libc::AT_SYMLINK_NOFOLLOW != 0 {
        let mut found: libc::stat = std::mem::zeroed();
        if crate::attributes::fstatat(dir, path, &mut found, flags) != 0 {
            return -1;
        }
        if found.st_mode & libc::S_IFMT == libc::S_IFLNK {
            return number(Err(Errno::LOOP));
        }
    }
    if name.first() == Some(&b'/') || dir == libc::AT_FDCWD && !name.is_empty() {
        return execve_any(path, argv, envp);
    }
    let whole = match name {
        b"" if flags & libc::AT_EMPTY_PATH == 0 => return number(Err(Errno::NOENT)),
        b"" => format!("/dev/fd/{dir}").into_bytes(),
        name => [format!("/dev/fd/{dir}/").as_bytes(), name].concat(),
    };
    match CString::new(whole) {
        Ok(whole) => execve_any(whole.as_ptr(), argv, envp),
        Err(_) => number(Err(Errno::INVAL)),
    }
}

exported! {
    fn execve(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int {
        execve_any(path, argv, envp)
    }

    fn execv(path: *const c_char, argv: *const *const c_char) -> c_int {
        execve_any(path, argv, environ())
    }

    fn execvp(file: *const c_char, argv: *const *const c_char) -> c_int {
        execvpe_any(file, argv, environ())
    }

    fn execvpe(file: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int {
        execvpe_any(file, argv, envp)
    }

    fn fexecve(fd: c_int, argv: *const *const c_char, envp: *const *const c_char) -> c_int {
        if table::is_ours(fd) {
            return execveat_any((fd, c"".as_ptr()), argv, envp, libc::AT_EMPTY_PATH);
        }
        if let Some(refused) = reach::refused(reach::check_open(fd, argv)) {
            return refused;
        }
        let told = CString::new(format!("/proc/self/fd/{fd}")).map(|path| told_to(path.as_ptr(), None, envp));
        execute(envp, None, &told.unwrap_or_default(), |envp| behind::fexecve(fd, argv, envp))
    }

    fn execveat(
        dir: c_int, path: *const c_char, argv: *const *const c_char, envp: *const *const c_char, flags: c_int,
    ) -> c_int {
        if !state::is_on() || gate::is_inside() {
            return real::syscall(
                libc::SYS_execveat, dir as usize, path as usize, argv as usize, envp as usize, flags as usize, 0,
            ) as c_int;
        }
        execveat_any((dir, path), argv, envp, flags)
    }

    /// A child that shared this process's memory would take its open files apart.
    fn vfork() -> pid_t {
        fork_any()
    }

    fn __vfork() -> pid_t {
        fork_any()
    }

    fn fork() -> pid_t {
        fork_any()
    }

    fn __fork() -> pid_t {
        fork_any()
    }

    fn posix_spawn(
        pid: *mut pid_t, path: *const c_char, actions: *const Actions, attributes: *const Spawned,
        argv: *const *const c_char, envp: *const *const c_char,
    ) -> c_int {
        if let Err(errno) = reach::check(path, argv) {
            return errno.raw_os_error();
        }
        match program::find(path, argv) {
            Ok(None) => {
                let told = told_to(path, None, envp);
                spawn(envp, None, told, |envp| {
                    behind::posix_spawn(pid, path, actions, attributes, argv, envp)
                })
            }
            Ok(Some(program)) => spawn_program(&program, (pid, actions, attributes), argv, envp),
            Err(errno) => errno.raw_os_error(),
        }
    }

    fn posix_spawnp(
        pid: *mut pid_t, file: *const c_char, actions: *const Actions, attributes: *const Spawned,
        argv: *const *const c_char, envp: *const *const c_char,
    ) -> c_int {
        match program::find_in_path(file, argv) {
            Ok(None) => {
                let told = told_to_found(file, envp);
                spawn(envp, None, told, |envp| {
                    behind::posix_spawnp(pid, file, actions, attributes, argv, envp)
                })
            }
            Ok(Some(program)) => spawn_program(&program, (pid, actions, attributes), argv, envp),
            Err(errno) => errno.raw_os_error(),
        }
    }

    /// The kernel would open it in the child: ours is open before, and copied there.
    fn posix_spawn_file_actions_addopen(
        actions: *mut Actions, fd: c_int, path: *const c_char, flags: c_int, mode: libc::mode_t,
    ) -> c_int {
        let is_ours = matches!(place::resolve(libc::AT_FDCWD, path), Ok(place::Place::Ours(..)));
        if !is_ours {
            return behind::posix_spawn_file_actions_addopen(actions, fd, path, flags, mode);
        }
        let opened = crate::open::open(path, flags & !libc::O_CLOEXEC, mode);
        if opened < 0 {
            // The child fails then, as it should.
            return behind::posix_spawn_file_actions_addopen(actions, fd, path, flags, mode);
        }
        gate::leaf(&FOR_CHILDREN).push((actions as usize, opened));
        match behind::posix_spawn_file_actions_adddup2(actions, opened, fd) {
            0 if opened != fd => behind::posix_spawn_file_actions_addclose(actions, opened),
            failed => failed,
        }
    }

    /// The C library would close what is our own as well, also what the child is given when it is made.
    fn posix_spawn_file_actions_addclosefrom_np(actions: *mut Actions, first: c_int) -> c_int {
        if !state::is_on() || gate::is_inside() || first < 0 {
            return behind::posix_spawn_file_actions_addclosefrom_np(actions, first);
        }
        let own = own::within(first, c_int::MAX);
        let large = own::open().into_iter().filter(|&fd| fd >= own::FIRST);
        for fd in (first..own::FIRST).chain(large).filter(|fd| *fd >= first && !own.contains(fd)) {
            // One that is not open is none that fails.
            let failed = behind::posix_spawn_file_actions_addclose(actions, fd);
            if failed != 0 && failed != libc::EBADF {
                return failed;
            }
        }
        0
    }

    fn posix_spawn_file_actions_destroy(actions: *mut Actions) -> c_int {
        let mut gone = Vec::new();
        gate::leaf(&FOR_CHILDREN).retain(|&(of, fd)| {
            if of == actions as usize {
                gone.push(fd);
            }
            of != actions as usize
        });
        gone.into_iter().for_each(|fd| {
            crate::open::close(fd);
        });
        behind::posix_spawn_file_actions_destroy(actions)
    }
}

exported! {
    /// As the C library's own, by our calls: the working directory and descriptors are left.
    fn daemon(stays: c_int, keeps: c_int) -> c_int {
        if !state::is_on() || gate::is_inside() {
            return behind::daemon(stays, keeps);
        }
        match libc::fork() {
            0 => {}
            child if child < 0 => return -1,
            _ => libc::_exit(0),
        }
        if libc::setsid() < 0 {
            return -1;
        }
        if stays == 0 {
            crate::names::chdir(c"/".as_ptr());
        }
        if keeps == 0 {
            let null = crate::open::open(c"/dev/null".as_ptr(), libc::O_RDWR, 0);
            if null < 0 {
                return -1;
            }
            for fd in 0..=2 {
                crate::open::dup2(null, fd);
            }
            if null > 2 {
                crate::open::close(null);
            }
        }
        0
    }
}

exported! {
    /// Descriptors of ours may come from another process.
    fn recvmsg(fd: c_int, message: *mut libc::msghdr, flags: c_int) -> libc::ssize_t {
        if crate::kinds::is_no_socket(fd) {
            return -1;
        }
        let received = real::recvmsg(fd, message, flags);
        if received >= 0 {
            receive(message);
        }
        received
    }
}

/// Takes on the descriptors of ours that a message has brought.
///
/// # Safety
/// It was received.
pub(crate) unsafe fn receive(message: *const libc::msghdr) {
    if !state::is_on() || gate::is_inside() {
        return;
    }
    let mut head = libc::CMSG_FIRSTHDR(message);
    while !head.is_null() {
        if (*head).cmsg_level == libc::SOL_SOCKET && (*head).cmsg_type == libc::SCM_RIGHTS {
            let bytes = (*head).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
            let first = libc::CMSG_DATA(head).cast::<c_int>();
            for at in 0..bytes / size_of::<c_int>() {
                table::receive(first.add(at).read_unaligned());
            }
        }
        head = libc::CMSG_NXTHDR(message, head);
    }
}
