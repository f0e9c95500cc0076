//! Processes: what `fork` and `exec` do to files that are open.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, OnceLock};

use libc::{FILE, pid_t};
use rustix::io::Errno;
use unvme::lock::lock;
use unvme_fs::share::{Client, Forked};

use crate::errno::{number, set};
use crate::gate::Closed;
use crate::mount::{self, Backend, Mount, Shared, identity};
use crate::program::{self, Program};
use crate::{gate, place, reach, real, share, signals, slot, start, table};

/// What is there between `fork` in a process and in its child.
struct Prepared {
    forked: Vec<(u32, Forked)>,
    _closed: Closed,
}

static PREPARED: Mutex<Option<Prepared>> = Mutex::new(None);

thread_local! {
    /// What this thread makes is another program: a server, or one that was given a connection already.
    static IS_OTHER: Cell<bool> = const { Cell::new(false) };
}

/// Makes a process that has nothing of our files.
pub(crate) fn as_other<R>(act: impl FnOnce() -> R) -> R {
    let before = IS_OTHER.replace(true);
    let done = act();
    IS_OTHER.set(before);
    done
}

unsafe extern "C" fn before_fork() {
    if !start::is_on() || gate::is_inside() || IS_OTHER.get() {
        return;
    }
    let closed = gate::close();
    slot::prepare();
    let forked = as_other(|| connections(&closed));
    table::each(|_, file| {
        file.slot.holders.fetch_add(1, Ordering::AcqRel);
    });
    *lock(&PREPARED) = Some(Prepared { forked, _closed: closed });
}

/// Connections for a child.
fn connections(closed: &Closed) -> Vec<(u32, Forked)> {
    let mut forked = Vec::new();
    for mount in mount::all() {
        match share::prepare_fork(mount, closed) {
            Ok(Some(connection)) => forked.push((mount.number, connection)),
            Ok(None) => {}
            Err(e) => start::say(&e),
        }
    }
    forked
}

unsafe extern "C" fn in_parent() {
    if !IS_OTHER.get() {
        let prepared = lock(&PREPARED).take();
        drop(prepared);
    }
}

unsafe extern "C" fn in_child() {
    if !start::is_on() || IS_OTHER.get() {
        return;
    }
    let Some(prepared) = lock(&PREPARED).take() else { return };
    gate::forget_others();
    let Prepared { mut forked, _closed } = prepared;
    for mount in mount::all() {
        let connection = forked.iter().position(|(number, _)| *number == mount.number);
        let connection = connection.map(|at| forked.swap_remove(at).1);
        become_child(mount, connection);
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
        Backend::Alone(_) => connection.into_child_of_server(),
    };
    match made {
        Ok(client) => mount.install(Backend::Shared(Shared::new(client))),
        Err(e) => start::say(&e.to_string()),
    }
}

/// Descriptors that are our own beside those of the slots.
pub(crate) fn own_descriptors() -> impl Iterator<Item = c_int> {
    mount::all().iter().filter_map(|mount| match mount.backend() {
        Some(Backend::Shared(shared)) => shared.client.descriptor(),
        _ => None,
    })
}

/// Before `main`.
pub(crate) fn start() {
    // SAFETY: functions that stay as long as the process.
    unsafe {
        libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child));
        __cxa_at_quick_exit(at_quick_exit, std::ptr::null_mut());
    }
}

unsafe extern "C" {
    fn __cxa_at_quick_exit(act: unsafe extern "C" fn(*mut c_void), of: *mut c_void) -> c_int;
}

/// The last that `quick_exit` does: the C library ends the process by a call of its own.
unsafe extern "C" fn at_quick_exit(_: *mut c_void) {
    let _inside = gate::enter();
    mount::end_all();
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
        if let Some(socket) = mount.socket_path()
            && let Ok(client) = Client::resume(&socket, identity(), fd)
        {
            mount.install(Backend::Shared(Shared::new(client)));
        }
    }
}

/// A variable that other programs need to go on with our files.
struct Needed {
    text: CString,
    /// As this process has found it, if it has: as long as it says this, it is to say the other.
    found: Option<CString>,
    /// A program that is given none gets it.
    is_added: bool,
}

static NEEDED: OnceLock<Vec<Needed>> = OnceLock::new();

/// Remembers what programs need that are given another environment; `told` has other values there than here.
/// Before `main`.
pub(crate) fn note_environment(told: Vec<(&str, Vec<u8>)>) {
    let text = |name: &str, value: &[u8]| CString::new([name.as_bytes(), b"=", value].concat()).ok();
    let found = |name: &str| text(name, &start::variable(name)?);
    let same = ["LD_PRELOAD", "UNVME_PRELOAD_SERVER", "UNVME_HOME"].into_iter().filter_map(|name| {
        let text = found(name)?;
        Some(Needed { found: Some(text.clone()), text, is_added: true })
    });
    let other = told.into_iter().filter_map(|(name, value)| {
        Some(Needed { text: text(name, &value)?, found: found(name), is_added: name == start::TEXT })
    });
    let _ = NEEDED.set(same.chain(other).collect());
}

fn name_of(text: &CStr) -> &[u8] {
    text.to_bytes().split(|&byte| byte == b'=').next().unwrap_or_default()
}

/// The environment of another program.
struct Environment {
    texts: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl Environment {
    /// What a program is given, and what it needs to go on with our files. `connections` are descriptors.
    unsafe fn new(
        given: *const *const c_char,
        connections: &[(u32, c_int)],
        program: Option<&Program>,
    ) -> Self {
        let mut texts: Vec<CString> = Vec::new();
        let mut at = given;
        while !at.is_null() && !(*at).is_null() {
            let text = CStr::from_ptr(*at);
            let own = [start::HANDED, start::WORKING_DIRECTORY, start::OPENS, program::OWN_PATH];
            if !own.iter().any(|name| name.as_bytes() == name_of(text)) {
                texts.push(text.to_owned());
            }
            at = at.add(1);
        }
        // A program that was given another environment has the folders all the same.
        for needed in NEEDED.get().into_iter().flatten() {
            match texts.iter_mut().find(|text| name_of(text) == name_of(&needed.text)) {
                None if needed.is_added => texts.push(needed.text.clone()),
                None => {}
                Some(there) if name_of(&needed.text) == b"LD_PRELOAD" => {
                    if let Some(both) = with_own_library(there, &needed.text) {
                        *there = both;
                    }
                }
                Some(there) if needed.found.as_ref() == Some(there) => *there = needed.text.clone(),
                Some(_) => {}
            }
        }
        let mut add = |name: &str, value: &[u8]| {
            if let Ok(text) = CString::new([name.as_bytes(), b"=", value].concat()) {
                texts.push(text);
            }
        };
        let (marks, memory) = slot::descriptors().unwrap_or((-1, -1));
        let mut handed = format!("{marks},{memory},{}", mount::digests());
        connections.iter().for_each(|(number, fd)| handed.push_str(&format!(",{number}:{fd}")));
        add(start::HANDED, handed.as_bytes());
        if let Some(path) = place::handed() {
            add(start::WORKING_DIRECTORY, &path);
        }
        if let Some(path) = program.and_then(|program| program.own_path.as_ref()) {
            add(program::OWN_PATH, path);
        }
        let opens = table::opens();
        if !opens.is_empty() {
            add(start::OPENS, opens.as_bytes());
        }
        let mut pointers: Vec<_> = texts.iter().map(|text| text.as_ptr()).collect();
        pointers.push(std::ptr::null());
        Self { texts, pointers }
    }
}

/// Puts this library before those that a program is to have; nothing, when it is among them.
fn with_own_library(given: &CStr, needed: &CStr) -> Option<CString> {
    const FILE: &[u8] = b"libunvme_preload.so";
    let libraries = |text: &CStr| text.to_bytes()[b"LD_PRELOAD=".len()..].to_vec();
    let is_own = |path: &[u8]| path.ends_with(FILE);
    let split = |&byte: &u8| byte == b':' || byte == b' ';
    let given = libraries(given);
    if given.split(split).any(is_own) {
        return None;
    }
    let needed = libraries(needed);
    let own = needed.split(split).find(|path| is_own(path))?;
    let colon: &[u8] = if given.is_empty() { b"" } else { b":" };
    CString::new([b"LD_PRELOAD=", own, colon, &given].concat()).ok()
}

/// Another program takes the place of this one.
unsafe fn execute(
    envp: *const *const c_char,
    program: Option<&Program>,
    act: impl FnOnce(*const *const c_char) -> c_int,
) -> c_int {
    if !start::is_on() || gate::is_inside() {
        return act(envp);
    }
    let closed = gate::close();
    slot::prepare();
    let mut passed = Vec::new();
    for mount in mount::all() {
        if let Some(Backend::Alone(_)) = mount.backend() {
            if mount.is_memory() {
                start::say(&format!(
                    "{}: it ends with this process, which becomes another program; a virtual slot or --shared keeps it",
                    mount.config.device
                ));
            } else if let Err(e) = share::share(mount, &closed) {
                start::say(&e);
            }
        }
        if let Some(Backend::Shared(shared)) = mount.backend()
            && let Ok(fd) = shared.client.pass_on()
        {
            passed.push((mount.number, fd));
        }
    }
    let environment = Environment::new(envp, &passed, program);
    let prompt = signals::promptly();
    let result = act(environment.pointers.as_ptr());
    drop(prompt);
    let failed = crate::errno::get();
    for mount in mount::all() {
        if let Some(Backend::Shared(shared)) = mount.backend() {
            let _ = shared.client.take_back();
        }
    }
    drop(environment.texts);
    drop(closed);
    crate::errno::put(failed);
    result
}

/// Makes a process that runs another program.
unsafe fn spawn(
    envp: *const *const c_char,
    program: Option<&Program>,
    act: impl FnOnce(*const *const c_char) -> c_int,
) -> c_int {
    if !start::is_on() || gate::is_inside() {
        return act(envp);
    }
    let closed = gate::close();
    slot::prepare();
    let forked = as_other(|| connections(&closed));
    let kept: Vec<(u32, OwnedFd)> = forked
        .into_iter()
        .filter_map(|(number, connection)| Some((number, connection.into_descriptor().ok()?)))
        .collect();
    let passed: Vec<_> = kept.iter().map(|(number, fd)| (*number, fd.as_raw_fd())).collect();
    // Its files are the child's as well, as long as the child has them.
    table::each(|_, file| {
        file.slot.holders.fetch_add(1, Ordering::AcqRel);
    });
    let environment = Environment::new(envp, &passed, program);
    let prompt = signals::promptly();
    let result = as_other(|| act(environment.pointers.as_ptr()));
    drop(prompt);
    drop(kept);
    drop(closed);
    result
}

unsafe fn environ() -> *const *const c_char {
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
        fn pclose(file: *mut FILE) -> c_int;
        fn posix_spawn_file_actions_addopen(
            actions: *mut Actions, fd: c_int, path: *const c_char, flags: c_int, mode: libc::mode_t,
        ) -> c_int;
        fn posix_spawn_file_actions_adddup2(actions: *mut Actions, from: c_int, to: c_int) -> c_int;
        fn posix_spawn_file_actions_addclose(actions: *mut Actions, fd: c_int) -> c_int;
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
    spawn(envp, Some(program), |envp| behind::posix_spawn(pid, path, actions, attributes, argv, envp))
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

/// What `dlopen` goes on with.
#[repr(C)]
struct Library {
    path: *const c_char,
    function: *mut c_void,
}

/// A library that is in a folder of ours is one in memory.
unsafe extern "C" fn find_library(path: *const c_char) -> Library {
    static AT: std::sync::atomic::AtomicPtr<c_void> = std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());
    let mut function = AT.load(Ordering::Acquire);
    if function.is_null() {
        function = real::find(&AT, c"dlopen");
    }
    Library { path: program::library(path).unwrap_or(path), function }
}

/// The C library's own looks at who has called it: it has to come back there.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn dlopen() -> *mut c_void {
    std::arch::naked_asm!(
        "push rsi",
        "call {find}",
        "pop rsi",
        "mov rdi, rax",
        "jmp rdx",
        find = sym find_library,
    )
}

unsafe fn execve_any(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int {
    if let Some(refused) = reach::refused(reach::check(path, argv)) {
        return refused;
    }
    match program::find(path, argv) {
        Ok(None) => execute(envp, None, |envp| real::execve(path, argv, envp)),
        Ok(Some(program)) => run(&program, argv, envp),
        Err(errno) => number(Err(errno)),
    }
}

unsafe fn run(program: &Program, argv: *const *const c_char, envp: *const *const c_char) -> c_int {
    execute(envp, Some(program), |envp| real::execve(program.path.as_ptr(), program.arguments(argv), envp))
}

unsafe fn execvpe_any(file: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int {
    if let Some(refused) = reach::refused(reach::check_found(file, argv)) {
        return refused;
    }
    match program::find_in_path(file, argv) {
        Ok(None) => execute(envp, None, |envp| behind::execvpe(file, argv, envp)),
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
        execute(envp, None, |envp| behind::fexecve(fd, argv, envp))
    }

    fn execveat(
        dir: c_int, path: *const c_char, argv: *const *const c_char, envp: *const *const c_char, flags: c_int,
    ) -> c_int {
        if !start::is_on() || gate::is_inside() {
            return real::syscall(
                libc::SYS_execveat, dir as usize, path as usize, argv as usize, envp as usize, flags as usize, 0,
            ) as c_int;
        }
        execveat_any((dir, path), argv, envp, flags)
    }

    /// A child that shared this process's memory would take its open files apart.
    fn vfork() -> pid_t {
        real::fork()
    }

    fn __vfork() -> pid_t {
        real::fork()
    }

    fn posix_spawn(
        pid: *mut pid_t, path: *const c_char, actions: *const Actions, attributes: *const Spawned,
        argv: *const *const c_char, envp: *const *const c_char,
    ) -> c_int {
        if let Err(errno) = reach::check(path, argv) {
            return errno.raw_os_error();
        }
        match program::find(path, argv) {
            Ok(None) => spawn(envp, None, |envp| behind::posix_spawn(pid, path, actions, attributes, argv, envp)),
            Ok(Some(program)) => spawn_program(&program, (pid, actions, attributes), argv, envp),
            Err(errno) => errno.raw_os_error(),
        }
    }

    fn posix_spawnp(
        pid: *mut pid_t, file: *const c_char, actions: *const Actions, attributes: *const Spawned,
        argv: *const *const c_char, envp: *const *const c_char,
    ) -> c_int {
        if let Err(errno) = reach::check_found(file, argv) {
            return errno.raw_os_error();
        }
        match program::find_in_path(file, argv) {
            Ok(None) => {
                spawn(envp, None, |envp| behind::posix_spawnp(pid, file, actions, attributes, argv, envp))
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
        lock(&FOR_CHILDREN).push((actions as usize, opened));
        match behind::posix_spawn_file_actions_adddup2(actions, opened, fd) {
            0 => behind::posix_spawn_file_actions_addclose(actions, opened),
            failed => failed,
        }
    }

    fn posix_spawn_file_actions_destroy(actions: *mut Actions) -> c_int {
        let mut gone = Vec::new();
        lock(&FOR_CHILDREN).retain(|&(of, fd)| {
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

    fn system(command: *const c_char) -> c_int {
        system_any(command)
    }

    fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE {
        popen_any(command, mode)
    }

    fn pclose(file: *mut FILE) -> c_int {
        let found = lock(&PIPES).iter().position(|(of, _)| *of == file as usize);
        let Some(at) = found else { return behind::pclose(file) };
        let (_, child) = lock(&PIPES).swap_remove(at);
        libc::fclose(file);
        wait_for(child)
    }
}

/// After this process has become another user, its files are that user's.
unsafe fn as_user(changed: c_int) -> c_int {
    if changed == 0 && start::is_on() && !gate::is_inside() {
        let _inside = gate::enter();
        mount::all().iter().for_each(Mount::identify);
    }
    changed
}

exported! {
    fn setuid(uid: libc::uid_t) -> c_int {
        as_user(real::setuid(uid))
    }

    fn seteuid(uid: libc::uid_t) -> c_int {
        as_user(real::seteuid(uid))
    }

    fn setreuid(first: libc::uid_t, effective: libc::uid_t) -> c_int {
        as_user(real::setreuid(first, effective))
    }

    fn setresuid(first: libc::uid_t, effective: libc::uid_t, saved: libc::uid_t) -> c_int {
        as_user(real::setresuid(first, effective, saved))
    }

    fn setgid(gid: libc::gid_t) -> c_int {
        as_user(real::setgid(gid))
    }

    fn setegid(gid: libc::gid_t) -> c_int {
        as_user(real::setegid(gid))
    }

    fn setregid(first: libc::gid_t, effective: libc::gid_t) -> c_int {
        as_user(real::setregid(first, effective))
    }

    fn setresgid(first: libc::gid_t, effective: libc::gid_t, saved: libc::gid_t) -> c_int {
        as_user(real::setresgid(first, effective, saved))
    }

    fn setgroups(count: libc::size_t, groups: *const libc::gid_t) -> c_int {
        as_user(real::setgroups(count, groups))
    }

    fn initgroups(user: *const c_char, group: libc::gid_t) -> c_int {
        as_user(real::initgroups(user, group))
    }

    /// Descriptors of ours may come from another process.
    fn recvmsg(fd: c_int, message: *mut libc::msghdr, flags: c_int) -> libc::ssize_t {
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
    if !start::is_on() || gate::is_inside() {
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

/// Streams of `popen`, and the processes at their other ends.
static PIPES: Mutex<Vec<(usize, pid_t)>> = Mutex::new(Vec::new());

unsafe fn wait_for(child: pid_t) -> c_int {
    let mut status = 0;
    loop {
        if libc::waitpid(child, &mut status, 0) == child {
            return status;
        }
        if crate::errno::get() != libc::EINTR {
            return -1;
        }
    }
}

/// In a child: the shell.
unsafe fn shell(command: *const c_char) -> ! {
    let argv = [c"sh".as_ptr(), c"-c".as_ptr(), command, std::ptr::null()];
    execve_any(c"/bin/sh".as_ptr(), argv.as_ptr(), environ());
    start::leave(127)
}

unsafe fn system_any(command: *const c_char) -> c_int {
    if command.is_null() {
        return c_int::from(real::access(c"/bin/sh".as_ptr(), libc::X_OK) == 0);
    }
    let mut ignore: libc::sigaction = std::mem::zeroed();
    ignore.sa_sigaction = libc::SIG_IGN;
    let (mut interrupt, mut quit): (libc::sigaction, libc::sigaction) =
        (std::mem::zeroed(), std::mem::zeroed());
    let (mut block, mut before): (libc::sigset_t, libc::sigset_t) = (std::mem::zeroed(), std::mem::zeroed());
    libc::sigaction(libc::SIGINT, &ignore, &mut interrupt);
    libc::sigaction(libc::SIGQUIT, &ignore, &mut quit);
    libc::sigemptyset(&mut block);
    libc::sigaddset(&mut block, libc::SIGCHLD);
    libc::pthread_sigmask(libc::SIG_BLOCK, &block, &mut before);
    let child = real::fork();
    if child == 0 {
        libc::sigaction(libc::SIGINT, &interrupt, std::ptr::null_mut());
        libc::sigaction(libc::SIGQUIT, &quit, std::ptr::null_mut());
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        shell(command);
    }
    let status = if child > 0 { wait_for(child) } else { -1 };
    libc::sigaction(libc::SIGINT, &interrupt, std::ptr::null_mut());
    libc::sigaction(libc::SIGQUIT, &quit, std::ptr::null_mut());
    libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
    status
}

unsafe fn popen_any(command: *const c_char, mode: *const c_char) -> *mut FILE {
    let letters = crate::errno::text(mode).unwrap_or_default();
    let is_read = match letters.first() {
        Some(b'r') => true,
        Some(b'w') => false,
        _ => {
            set(Errno::INVAL);
            return std::ptr::null_mut();
        }
    };
    let mut ends = [0; 2];
    if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
        return std::ptr::null_mut();
    }
    let (own, other) = if is_read { (ends[0], ends[1]) } else { (ends[1], ends[0]) };
    let child = real::fork();
    if child == 0 {
        crate::open::dup2(other, c_int::from(is_read));
        shell(command);
    }
    real::close(other);
    let file = if child > 0 {
        real::fdopen(own, if is_read { c"r" } else { c"w" }.as_ptr())
    } else {
        std::ptr::null_mut()
    };
    if file.is_null() {
        real::close(own);
        return file;
    }
    if !letters.contains(&b'e') {
        real::fcntl(own, libc::F_SETFD, 0);
    }
    lock(&PIPES).push((file as usize, child));
    file
}
