//! From alone to shared: a server that takes the file system over, and who asks for it.

use std::collections::BTreeMap;
use std::ffi::{CString, c_int};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use unvme::EventFd;
use unvme::lock::lock;
use unvme_fs::calls::{OpenId, Range, Reply, Request};
use unvme_fs::share::{Client, Forked, Hold, Server, ServerOptions, alone_socket};

use crate::config::Folder;
use crate::mount::{self, Alone, Backend, Mount, OwnServer, identity};
use crate::{gate, map, real, state, table};

/// The program that serves.
const PROGRAM_VARIABLE: &str = "UNVME_PRELOAD_SERVER";

/// How long a server stays when nobody is there.
const IDLE_SECONDS: u32 = 5;

/// What an open file has locked.
struct Locks {
    number: u32,
    ranges: Vec<Range>,
    flock: Option<bool>,
}

/// Waits for somebody who asks for the file system to be shared.
pub(crate) fn listen(mount: &'static Mount, socket: &Path) {
    let path = alone_socket(socket);
    let _ = std::fs::remove_file(&path);
    let (Ok(listener), Ok(stop)) = (UnixListener::bind(&path), EventFd::new()) else { return };
    let end = stop.clone();
    let run = move || {
        // Who waits in `accept` has a small number already, which the program finds busy.
        let mut waiting = [PollFd::new(&listener, PollFlags::IN), PollFd::new(&end, PollFlags::IN)];
        while rustix::event::poll(&mut waiting, None) == Err(Errno::INTR) {}
        if !waiting[1].revents().is_empty() {
            return;
        }
        let Ok((asking, _)) = listener.accept() else { return };
        // Nobody comes after these.
        let _ = std::fs::remove_file(&path);
        let _ = listener.set_nonblocking(true);
        let mut all = vec![asking];
        all.extend(std::iter::from_fn(|| listener.accept().ok().map(|(asking, _)| asking)));
        let closed = gate::close();
        if let Some(Backend::Alone(alone)) = mount.backend() {
            let done = match is_movable(mount, alone) {
                true => share(mount, &closed).map(drop),
                false => serve_here(mount, alone),
            };
            if let Err(e) = done {
                state::say(&e);
            }
        }
        drop(closed);
        // Said, too: a child of this process may have the descriptor as well.
        all.iter_mut().for_each(|asking| drop(asking.write(&[0])));
    };
    // Without it the file system stays this process's own.
    if let Ok(thread) = std::thread::Builder::new().name("unvme-alone".into()).spawn(run) {
        let before = gate::leaf(&LISTENERS).insert(mount.number, Listener { stop, thread });
        // It was a thread of this process's parent, and its descriptor is closed.
        std::mem::forget(before);
    }
}

/// Who waits for somebody who asks.
struct Listener {
    stop: EventFd,
    thread: JoinHandle<()>,
}

static LISTENERS: Mutex<BTreeMap<u32, Listener>> = Mutex::new(BTreeMap::new());

/// Nobody need ask this process any more.
pub(crate) fn stop_listening(socket: &Path) {
    let _ = std::fs::remove_file(alone_socket(socket));
}

/// Ends the thread that waits for others. It may be one that waits for the gate.
fn end_listener(mount: &Mount) -> Option<JoinHandle<()>> {
    let Listener { stop, thread } = gate::leaf(&LISTENERS).remove(&mount.number)?;
    stop.signal();
    Some(thread)
}

/// Asks the process that has a file system to itself to share it, and waits until it has done so, or cannot.
pub(crate) fn ask(socket: &Path) {
    const PATIENCE: Duration = Duration::from_secs(10);
    if let Ok(mut other) = UnixStream::connect(alone_socket(socket)) {
        let _ = other.set_read_timeout(Some(PATIENCE));
        let _ = other.read(&mut [0]);
    }
}

/// Where the program `unvme` is: as this process was told, beside this library, or wherever a shell finds it.
fn program() -> PathBuf {
    if let Some(told) = std::env::var_os(PROGRAM_VARIABLE) {
        return told.into();
    }
    let own = own_library();
    let folder = own.parent().unwrap_or(Path::new("/"));
    let places = [folder.join("../../bin/unvme"), folder.join("unvme")];
    places.into_iter().find(|place| place.is_file()).unwrap_or_else(|| "/usr/local/bin/unvme".into())
}

fn own_library() -> PathBuf {
    // SAFETY: an address of this library, and a structure that is filled.
    unsafe {
        let mut found: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(own_library as *const () as *const _, &mut found) == 0 || found.dli_fname.is_null() {
            return PathBuf::new();
        }
        let name = std::ffi::CStr::from_ptr(found.dli_fname).to_bytes();
        PathBuf::from(std::ffi::OsStr::from_bytes(name))
    }
}

/// What a server does with files that have no names when it begins.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unnamed {
    /// Nobody has them open.
    Gone,
    /// Others may have them open, and open them again.
    Kept,
    /// This process has them open, and comes first.
    KeptForThis,
}

/// Starts a server, which takes `hold` over, and waits until it serves.
///
/// # Errors
/// What is wrong, in one line; the server itself has said more.
pub(crate) fn start_server(
    folder: &Folder,
    socket: &Path,
    hold: &mut Option<Hold>,
    unnamed: Unnamed,
) -> Result<(), String> {
    let program = program();
    let fail = |e: &dyn std::fmt::Display| format!("{}: fs serve: {e}", program.display());
    if !has_own_children() {
        return Err(fail(
            &"this process has its children in another PID namespace, where none outlives the first",
        ));
    }
    let (ready, told) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|e| fail(&e))?;
    let mut words: Vec<Vec<u8>> = vec![
        program.as_os_str().as_bytes().to_vec(),
        b"fs".to_vec(),
        b"serve".to_vec(),
        folder.device.clone().into_bytes(),
        b"--namespace-id".to_vec(),
        folder.nsid.0.to_string().into_bytes(),
        b"--socket".to_vec(),
        socket.as_os_str().as_bytes().to_vec(),
        b"--idle".to_vec(),
        IDLE_SECONDS.to_string().into_bytes(),
        b"--ready-fd".to_vec(),
        told.as_raw_fd().to_string().into_bytes(),
    ];
    let held = hold.as_ref().and_then(Hold::descriptor);
    if let Some(fd) = held {
        words.extend([b"--lock-fd".to_vec(), fd.to_string().into_bytes()]);
    }
    match unnamed {
        Unnamed::Gone => {}
        Unnamed::Kept => words.push(b"--keep-unnamed".to_vec()),
        Unnamed::KeptForThis => {
            words.push(format!("--keep-unnamed={}", std::process::id()).into_bytes());
        }
    }
    words.extend([b"--policy".to_vec(), folder.policy.name().as_bytes().to_vec()]);
    if let Some(bytes) = folder.cache_bytes {
        words.extend([b"--cache".to_vec(), bytes.to_string().into_bytes()]);
    }
    let words: Option<Vec<CString>> = words.into_iter().map(|word| CString::new(word).ok()).collect();
    let words = words.ok_or_else(|| fail(&"a name with a NUL"))?;
    let environment: Vec<CString> = std::env::vars_os()
        .filter(|(name, _)| {
            let name = name.as_bytes();
            name != b"LD_PRELOAD" && name != b"WRAPPER_CONFIG" && !name.starts_with(b"UNVME_PRELOAD")
        })
        .filter_map(|(name, value)| CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()).ok())
        .collect();
    let mut kept: Vec<RawFd> = held.into_iter().chain([told.as_raw_fd()]).collect();
    kept.sort_unstable();
    gate::as_other(|| launch(&words, &environment, &kept));
    drop(told);
    let mut byte = [0; 1];
    loop {
        match rustix::io::read(&ready, &mut byte) {
            Err(Errno::INTR) => {}
            Ok(1) => break,
            _ => return Err(fail(&"it has not started")),
        }
    }
    if let Some(hold) = hold.take() {
        hold.give();
    }
    Ok(())
}

/// Whether children of this thread are of the PID namespace that it is of itself.
fn has_own_children() -> bool {
    let of = |name: &str| rustix::fs::stat(format!("/proc/thread-self/ns/{name}")).map(|found| found.st_ino);
    match of("pid") {
        Ok(own) => of("pid_for_children") == Ok(own),
        // There is no /proc to look at.
        Err(_) => true,
    }
}

/// Closes descriptors in a row.
unsafe fn close_from_to(first: c_int, last: c_int) {
    if first <= last && real::syscall(libc::SYS_close_range, first as usize, last as usize, 0, 0, 0, 0) < 0 {
        // A kernel before 5.9.
        for fd in first..=last.min(4096) {
            real::close(fd);
        }
    }
}

/// Starts a program that is nobody's child. What is kept open is in ascending order.
fn launch(words: &[CString], environment: &[CString], kept: &[RawFd]) {
    let pointers = |texts: &[CString]| {
        let mut pointers: Vec<_> = texts.iter().map(|text| text.as_ptr()).collect();
        pointers.push(std::ptr::null());
        pointers
    };
    let (argv, envp) = (pointers(words), pointers(environment));
    // The server's signals are its own. No bit set is the empty set.
    // SAFETY: plain data.
    let none: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: between `fork` and `execve` the children make calls alone that are safe for handlers of
    // signals: everything they need is there before.
    unsafe {
        let child = real::fork();
        if child == 0 {
            libc::setsid();
            libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
            if real::fork() == 0 {
                for &fd in kept {
                    real::fcntl(fd, libc::F_SETFD, 0);
                }
                let null = real::open(c"/dev/null".as_ptr(), libc::O_RDWR, 0);
                real::dup2(null, 0);
                real::dup2(null, 1);
                let mut first = 3;
                for &fd in kept {
                    close_from_to(first, fd - 1);
                    first = fd + 1;
                }
                close_from_to(first, c_int::MAX);
                real::execve(argv[0], argv.as_ptr(), envp.as_ptr());
            }
            real::syscall(libc::SYS_exit_group, 0, 0, 0, 0, 0, 0);
        }
        if child > 0 {
            let mut status = 0;
            while libc::waitpid(child, &mut status, 0) < 0 && crate::errno::get() == libc::EINTR {}
        }
    }
}

/// Whether the file system can go to a server: no program has memory that is part of a file, and no process
/// that this one has made is served by it.
fn is_movable(mount: &Mount, alone: &Alone) -> bool {
    !mount.is_memory() && !map::has_any(mount) && lock(&alone.server).is_none()
}

/// Hands the file system over to a server, and goes on as one of its clients. The gate is closed. Returns a
/// thread of ours that is about to end: it may have to wait for the gate.
///
/// # Errors
/// What is wrong, in one line: then this process has the file system as before, or nobody has it.
pub(crate) fn share(mount: &'static Mount, closed: &gate::Closed) -> Result<Option<JoinHandle<()>>, String> {
    let Some(backend) = mount.take() else { return Ok(None) };
    let Backend::Alone(alone) = *backend else {
        mount.install(*backend);
        return Ok(None);
    };
    let mut locks: Vec<Locks> = Vec::new();
    table::each(|_, file| {
        if file.mount.number == mount.number {
            let open = file.open();
            locks.push(Locks {
                number: file.number,
                ranges: alone.process.locks(open).unwrap_or_default(),
                flock: alone.process.flock(open).unwrap_or_default(),
            });
            // SAFETY: the gate is closed.
            unsafe { file.set_vnode(None) };
        }
    });
    // What was closed while others were inside still has its file, and with it the file system.
    gate::drop_aside(closed);
    // Nobody else gets it between this process and the server. One in this process does nothing more.
    let own = lock(&alone.server).take();
    let mut hold = own.and_then(|own| own.server.end()).or_else(|| lock(&alone.hold).take());
    let written = alone.processes.write_back_maps();
    let handed = written.and_then(|()| alone.processes.fs().hand_over()).map_err(|e| e.to_string());
    drop(alone);
    let shared = handed.and_then(|()| mount.start_server(&mut hold));
    let (made, failed) = match shared {
        Ok(made) => (made, None),
        Err(e) if hold.is_some() => match mount.mount_alone(&mut hold, true) {
            Ok(made) => (made, Some(e)),
            Err(_) => return Err(e),
        },
        Err(e) => return Err(e),
    };
    if let (Backend::Shared(_), Ok(socket)) = (&made, mount.socket()) {
        stop_listening(&socket);
    }
    let listener = end_listener(mount);
    let is_own = matches!(made, Backend::Alone(_));
    mount.install(made);
    open_again(mount, true);
    let lost = lock_again(mount, &locks);
    // Files that have no names any more, and that nobody has opened again, can go.
    match mount.backend() {
        Some(Backend::Alone(alone)) => drop(alone.processes.fs().reap_unnamed()),
        Some(Backend::Shared(shared)) => drop(shared.client.reap_unnamed()),
        None => {}
    }
    if lost > 0 {
        state::say(&format!("{}: {lost} locks are lost", mount.config.device));
    }
    if is_own {
        listen(mount, &mount.socket()?);
    }
    failed.map_or(Ok(listener), Err)
}

/// Hands the file system over, where this process has it to itself and it can go. Returns a thread of ours
/// that is about to end.
///
/// # Errors
/// As for [`share`].
fn share_if_alone(mount: &'static Mount, closed: &gate::Closed) -> Result<Option<JoinHandle<()>>, String> {
    match mount.backend() {
        Some(Backend::Alone(alone)) if is_movable(mount, alone) => share(mount, closed),
        _ => Ok(None),
    }
}

/// As [`share_if_alone`], of all file systems; one that cannot be handed over is reported. Returns the
/// threads of this library that are about to end.
pub(crate) fn share_all_alone(closed: &gate::Closed) -> Vec<JoinHandle<()>> {
    let mut ending = Vec::new();
    for mount in mount::all() {
        match share_if_alone(mount, closed) {
            Ok(thread) => ending.extend(thread),
            Err(e) => state::say(&e),
        }
    }
    ending
}

/// Locks what was locked; how many locks somebody else has by now.
fn lock_again(mount: &'static Mount, locks: &[Locks]) -> usize {
    let mut lost = 0;
    table::each(|_, file| {
        let Some(held) = locks.iter().find(|held| held.number == file.number) else { return };
        if file.mount.number != mount.number {
            return;
        }
        let open = file.open();
        for &range in &held.ranges {
            lost += usize::from(mount.ask(&Request::Lock { open, range }).is_err());
        }
        if held.flock.is_some() {
            lost += usize::from(mount.ask(&Request::Flock { open, is_exclusive: held.flock }).is_err());
        }
    });
    lost
}

/// Another server has everything that was written to the one before: files that are open report no loss.
/// Without `has_all`, that is so where the one before has ended in order.
fn note_server(mount: &Mount, has_all: bool) {
    let now = mount.server();
    let has_ended = |server| match mount.backend() {
        Some(Backend::Shared(shared)) => shared.client.has_ended_in_order(server),
        _ => false,
    };
    table::each(|_, file| {
        if file.mount.number != mount.number {
            return;
        }
        for known in [&file.slot.synced, &file.slot.all_synced] {
            let before = known.load(Ordering::Acquire);
            if has_all || has_ended(before) {
                let _ = known.compare_exchange(before, now, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    });
}

/// Has another server open what was open: by the numbers of inodes.
///
/// Where its locks are not taken again, a file that has some is not open any more: whoever trusts in them
/// must not go on without. Nor is one that is mapped: that memory was the other server's.
pub(crate) fn open_again(mount: &'static Mount, are_locks_kept: bool) {
    crate::place::reopen_working(mount);
    note_server(mount, are_locks_kept);
    if !are_locks_kept && map::has_any(mount) {
        let device = &mount.config.device;
        state::say(&format!(
            "{device}: its server was killed: memory that files were mapped to is theirs no more"
        ));
    }
    table::each(|_, file| {
        if file.mount.number != mount.number {
            return;
        }
        let ino = file.slot.ino.load(Ordering::Relaxed);
        let flags = file.flags() as u32;
        if (file.is_locked() || map::has(mount, ino)) && !are_locks_kept {
            file.set_open(OpenId(u64::MAX));
            return;
        }
        // What is not there any more is EBADF from here on.
        let open = match mount.ask(&file.slot.adopt(flags)) {
            Ok(Reply::Opened(open, ..)) => open.0,
            _ => u64::MAX,
        };
        file.set_open(OpenId(open));
    });
    state::note_change();
}

/// A connection for a child that is about to be.
///
/// # Errors
/// What is wrong, in one line.
pub(crate) fn prepare_fork(mount: &'static Mount, closed: &gate::Closed) -> Result<Option<Forked>, String> {
    share_if_alone(mount, closed)?;
    match mount.backend() {
        None => Ok(None),
        Some(Backend::Shared(shared)) => {
            shared.look(mount);
            shared.client.prepare_fork().map(Some).map_err(|e| e.to_string())
        }
        Some(Backend::Alone(alone)) => fork_of_own(mount, alone).map(Some),
    }
}

/// Has a server in this process, where others look for one. The gate is closed.
fn serve_here(mount: &'static Mount, alone: &Alone) -> Result<(), String> {
    let mut own = lock(&alone.server);
    if own.is_some() {
        return Ok(());
    }
    let socket = match mount.is_memory() {
        false => mount.socket()?,
        true => {
            let folder = unvme_fs::share::socket_path("mem:block:1G", 1).map_err(|e| e.to_string())?;
            let name = format!("process-{}-{:x}", std::process::id(), unvme::random::number());
            folder.with_file_name(name)
        }
    };
    let options = ServerOptions { workers: 4, ..ServerOptions::default() };
    let processes = Arc::clone(&alone.processes);
    let mut hold = lock(&alone.hold);
    let made = crate::slot::out_of_the_way(|| match hold.is_some() {
        true => Server::start_held(&mut hold, processes, &socket, &options),
        false => Server::start(processes, &socket, &options),
    });
    let made = made.map_err(|e| e.to_string())?;
    let ticket = match made.enroll(Arc::clone(&alone.process)) {
        Ok(ticket) => ticket,
        Err(e) => {
            *hold = made.end();
            return Err(e.to_string());
        }
    };
    *own = Some(OwnServer { server: made, socket, ticket });
    drop(own);
    note_server(mount, true);
    Ok(())
}

/// A connection to a server in this process.
fn fork_of_own(mount: &'static Mount, alone: &Alone) -> Result<Forked, String> {
    serve_here(mount, alone)?;
    let own = lock(&alone.server);
    let Some(own) = own.as_ref() else { return Err("no server".into()) };
    Client::fork_of(&own.socket, identity(), own.ticket).map_err(|e| e.to_string())
}

/// The program has ended, and others use its file system: it stays until they have done.
pub(crate) fn outlive(own: OwnServer) -> Option<Hold> {
    // The process itself is one.
    while own.server.clients() > 1 {
        std::thread::sleep(Duration::from_millis(5));
    }
    own.server.end()
}
