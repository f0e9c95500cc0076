//! A wrapped folder's file system: in this process, or behind a server.

use std::ffi::{CString, c_int};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use unvme::lock::lock;
use unvme::stripe::Tally;
use unvme::{Device, OpenOptions};
use unvme_fs::calls::{Mapped, OpenId, Process, Processes, Reply, Request, acting_as};
use unvme_fs::share::{Client, Hold, Identity, Server, Watched, socket_path};
use unvme_fs::{CacheOptions, Credentials, FileSystem, MakeOptions, MountOptions, Vnode};

use crate::config::{Config, Folder};
use crate::errno::{self, Result};
use crate::identity::{self, of_process};
use crate::share::Unnamed;
use crate::{gate, slot};

/// Who does what is asked.
#[expect(clippy::large_enum_variant, reason = "there is one for each folder")]
pub(crate) enum Backend {
    /// This process has the file system.
    Alone(Alone),
    /// A server has it.
    Shared(Shared),
}

/// A file system that this process has.
pub(crate) struct Alone {
    pub process: Arc<Process>,
    pub processes: Arc<Processes>,
    /// Serves the processes that this one has made, when the file system cannot go to another one.
    pub server: Mutex<Option<OwnServer>>,
    /// Closed when everything is written.
    _device: Device,
    /// Last: nobody else has the device before. A device of memory is nobody else's anyway.
    pub hold: Mutex<Option<Hold>>,
}

/// A server in this process.
pub(crate) struct OwnServer {
    pub server: Server,
    pub socket: PathBuf,
    /// By which a child of this process is known.
    pub ticket: u64,
}

/// A file system that a server has.
pub(crate) struct Shared {
    pub client: Client,
    /// How many servers there were when files were opened last.
    generation: AtomicU64,
}

/// What was done for a folder. Threads that read on two CPUs do not count on one cache line.
pub(crate) struct Counters {
    pub opened: Tally,
    pub read: Tally,
    pub written: Tally,
    pub synced: Tally,
}

impl Default for Counters {
    fn default() -> Self {
        let tally = || Tally::new(64);
        Self { opened: tally(), read: tally(), written: tally(), synced: tally() }
    }
}

/// A wrapped folder.
pub(crate) struct Mount {
    pub number: u32,
    pub config: Folder,
    /// Where it is: from the machine's root on, without symbolic links, and without a slash at its end.
    pub folder: Vec<u8>,
    /// As it was given, from the machine's root on.
    pub alias: Vec<u8>,
    /// What `stat` says of the device: of no device that the kernel has.
    pub device: AtomicU64,
    pub counters: Counters,
    backend: AtomicPtr<Backend>,
    mounting: Mutex<()>,
}

static MOUNTS: OnceLock<Vec<Mount>> = OnceLock::new();
static STATS: OnceLock<PathBuf> = OnceLock::new();

/// Nothing is mounted any more: the process ends.
static HAS_ENDED: AtomicBool = AtomicBool::new(false);

/// All folders.
#[inline]
pub(crate) fn all() -> &'static [Mount] {
    MOUNTS.get().map_or(&[], Vec::as_slice)
}

pub(crate) fn by_number(number: u32) -> Option<&'static Mount> {
    all().get(number as usize)
}

/// Descriptors of our own that folders need.
pub(crate) fn own_descriptors() -> impl Iterator<Item = c_int> {
    all().iter().filter_map(|mount| match mount.backend() {
        Some(Backend::Shared(shared)) => shared.client.descriptor(),
        Some(Backend::Alone(alone)) => lock(&alone.hold).as_ref()?.descriptor(),
        None => None,
    })
}

/// A path from the machine's root on, without `.` and double slashes; `..` stays.
pub(crate) fn absolute(path: &Path) -> Vec<u8> {
    let mut out = Vec::new();
    if path.is_relative()
        && let Ok(here) = std::env::current_dir()
    {
        out.extend_from_slice(here.as_os_str().as_bytes());
    }
    for name in path.as_os_str().as_bytes().split(|&byte| byte == b'/') {
        if !name.is_empty() && name != b"." {
            if !out.ends_with(b"/") {
                out.push(b'/');
            }
            out.extend_from_slice(name);
        }
    }
    if out == b"/" { Vec::new() } else { out }
}

/// Takes on a configuration. The folders are made where they are missing.
///
/// # Errors
/// What is wrong with a folder, in one line.
pub(crate) fn configure(config: Config) -> std::result::Result<(), String> {
    let mut mounts = Vec::new();
    for (number, folder) in (0..).zip(config.folders) {
        let path = &folder.folder;
        std::fs::create_dir_all(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let real = path.canonicalize().map_err(|e| format!("{}: {e}", path.display()))?;
        if real == Path::new("/") {
            return Err("wrap_dir: the root of the machine cannot be wrapped".into());
        }
        let real = real.as_os_str().as_bytes().to_vec();
        if mounts.iter().any(|other: &Mount| other.folder == real) {
            return Err(format!("wrap_dir: {} is there twice", path.display()));
        }
        mounts.push(Mount {
            number,
            alias: absolute(path),
            folder: real,
            config: whole(folder),
            device: AtomicU64::new(0),
            counters: Counters::default(),
            backend: AtomicPtr::new(std::ptr::null_mut()),
            mounting: Mutex::new(()),
        });
    }
    if let Some(stats) = config.stats {
        let _ = STATS.set(PathBuf::from(std::ffi::OsStr::from_bytes(&absolute(&stats))));
    }
    let _ = MOUNTS.set(mounts);
    Ok(())
}

/// A folder's configuration for processes that are elsewhere, as other users and with other environments:
/// all of them come to one place.
fn whole(mut folder: Folder) -> Folder {
    for path in std::iter::once(&mut folder.folder).chain(&mut folder.socket) {
        *path = PathBuf::from(std::ffi::OsStr::from_bytes(&absolute(path)));
    }
    if folder.place.is_none() && folder.socket.is_none() && !folder.device.starts_with("mem:") {
        // What is wrong with it is said when it is needed.
        folder.place = socket_path(&folder.device, folder.nsid.0).ok();
    }
    folder
}

/// What [`configure`] was given, with whole paths.
pub(crate) fn config() -> Config {
    let folders = all().iter().map(|mount| mount.config.clone()).collect();
    Config { folders, stats: STATS.get().cloned() }
}

/// What tells folders of one configuration from those of another, in their order.
pub(crate) fn digests() -> String {
    let digest = |mount: &Mount| {
        let mut hasher = DefaultHasher::new();
        (&mount.folder, &mount.config.device, mount.config.nsid.0, &mount.config.socket).hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    };
    all().iter().map(digest).collect::<Vec<_>>().join(";")
}

/// Why a file system cannot be mounted in this process.
pub(crate) struct Failed {
    /// Somebody has it, who may give it up.
    is_busy: bool,
    /// In one line.
    pub told: String,
}

impl From<String> for Failed {
    fn from(told: String) -> Self {
        Self { is_busy: false, told }
    }
}

impl Mount {
    /// The device is one of memory, which begins empty.
    pub(crate) fn is_memory(&self) -> bool {
        self.config.device.starts_with("mem:")
    }

    fn options(&self) -> MountOptions {
        let defaults = CacheOptions::default();
        MountOptions {
            cache: CacheOptions {
                bytes: self.config.cache_bytes.unwrap_or(defaults.bytes),
                policy: self.config.policy,
                ..defaults
            },
            ..MountOptions::default()
        }
    }

    /// Where a server of it listens.
    pub(crate) fn socket(&self) -> std::result::Result<PathBuf, String> {
        match self.config.socket.as_ref().or(self.config.place.as_ref()) {
            Some(socket) => Ok(socket.clone()),
            None => socket_path(&self.config.device, self.config.nsid.0).map_err(|e| e.to_string()),
        }
    }

    fn told(&self, e: &dyn std::fmt::Display) -> String {
        let (name, text) = (&self.config.device, e.to_string());
        if text.contains(name.as_str()) { text } else { format!("{name}: {text}") }
    }

    /// Whether this process is the first one, and makes the file system anew.
    fn is_to_be_made(&self) -> bool {
        self.config.format && !self.is_memory() && crate::state::is_first()
    }

    /// Makes the file system, for a server that is about to be started.
    fn make(&self) -> std::result::Result<(), String> {
        slot::out_of_the_way(|| {
            let device =
                unvme::open(&self.config.device, &OpenOptions::default()).map_err(|e| self.told(&e))?;
            let block = device.block(self.config.nsid).map_err(|e| self.told(&e))?;
            self.make_on(&block, device.name())
        })
    }

    fn make_on(&self, block: &unvme::Block, name: &str) -> std::result::Result<(), String> {
        let made = unvme_fs::make(block, name, &MakeOptions::default(), |_, _| ());
        made.map(drop).map_err(|e| self.told(&e))
    }

    /// Mounts it in this process, which is the only one to try as long as it has `hold`.
    pub(crate) fn mount_alone(
        &'static self,
        hold: &mut Option<Hold>,
        keeps_unnamed: bool,
    ) -> std::result::Result<Backend, Failed> {
        let name = &self.config.device;
        let device = unvme::open(name, &OpenOptions::default())
            .map_err(|e| Failed { is_busy: matches!(e, unvme::Error::InUse { .. }), told: self.told(&e) })?;
        let block = device.block(self.config.nsid).map_err(|e| self.told(&e))?;
        if self.is_memory() || self.is_to_be_made() && !keeps_unnamed {
            self.make_on(&block, device.name())?;
        }
        let options = MountOptions { keeps_unnamed, ..self.options() };
        let fs = FileSystem::mount(&block, device.name(), &options)
            .map_err(|e| Failed { is_busy: matches!(e, unvme_fs::Error::Busy(_)), told: self.told(&e) })?;
        if let Some(why) = &fs.description().damage {
            crate::state::say(&self.told(&format_args!("the file system is read-only: {why}")));
        }
        let processes = Processes::new(fs);
        let process = Arc::new(processes.enter(std::process::id(), of_process()));
        let (server, hold) = (Mutex::default(), Mutex::new(hold.take()));
        Ok(Backend::Alone(Alone { process, processes, server, _device: device, hold }))
    }

    /// Comes to a server, if one is there.
    ///
    /// # Errors
    /// Why it does not let this process in, in one line.
    fn connect(&'static self) -> std::result::Result<Option<Backend>, String> {
        match Client::connect(&self.socket()?, identity()) {
            Ok(client) => {
                self.start_again(&client);
                Ok(Some(Backend::Shared(Shared::new(client))))
            }
            Err(unvme_fs::Error::Posix(
                e @ (Errno::ACCESS | Errno::PERM | Errno::USERS | Errno::MFILE | Errno::NFILE),
            )) => Err(format!("{}: its server: {}", self.config.device, std::io::Error::from(e))),
            // It has ended, or is about to.
            Err(_) => Ok(None),
        }
    }

    /// Has a server take it over from this process, which had it to itself.
    pub(crate) fn start_server(
        &'static self,
        hold: &mut Option<Hold>,
    ) -> std::result::Result<Backend, String> {
        let socket = self.socket()?;
        crate::share::start_server(&self.config, &socket, hold, Unnamed::KeptForThis)?;
        self.connect()?.ok_or_else(|| format!("{}: its server does not answer", self.config.device))
    }

    /// Has a server that is killed be started again. What was in a device of memory is gone with it.
    pub(crate) fn start_again(&'static self, client: &Client) {
        let Ok(socket) = self.socket() else { return };
        if !self.is_memory() {
            client.start_when_killed(Arc::new(move |hold| {
                crate::share::start_server(&self.config, &socket, &mut Some(hold), Unnamed::Kept).is_ok()
            }));
        }
    }

    fn find_backend(&'static self) -> std::result::Result<Backend, String> {
        /// For another process, to share what it has to itself; and for one that is about to end, to do so.
        const PATIENCE: Duration = Duration::from_secs(60);
        const IN_USE: Duration = Duration::from_secs(2);
        /// For others to leave what is to be made anew, and their server to end.
        const TO_BE_MADE: Duration = Duration::from_secs(10);
        if self.is_memory() && self.config.socket.is_none() && !self.config.is_shared {
            let made = slot::out_of_the_way(|| self.mount_alone(&mut None, false));
            return made.map_err(|failed| failed.told);
        }
        let socket = self.socket()?;
        let is_shared = self.config.socket.is_some() || self.config.is_shared;
        let begun = Instant::now();
        let mut is_to_be_made = self.is_to_be_made();
        loop {
            if !is_to_be_made && let Some(found) = self.connect()? {
                return Ok(found);
            }
            let failed = match Hold::take(&socket) {
                // A server that has ended in order has removed it. The clients of this one have files open.
                Ok(hold) if is_shared || socket.exists() => {
                    if is_to_be_made {
                        self.make()?;
                        is_to_be_made = false;
                    }
                    let unnamed = if socket.exists() { Unnamed::Kept } else { Unnamed::Gone };
                    crate::share::start_server(&self.config, &socket, &mut Some(hold), unnamed)?;
                    continue;
                }
                Ok(hold) => {
                    let mut hold = Some(hold);
                    let failed = match slot::out_of_the_way(|| self.mount_alone(&mut hold, false)) {
                        Ok(made) => return Ok(made),
                        Err(failed) => failed,
                    };
                    if !failed.is_busy || begun.elapsed() > IN_USE {
                        return Err(failed.told);
                    }
                    failed.told
                }
                // A server that nobody needs any more ends soon.
                Err(unvme_fs::Error::Busy(_)) if is_to_be_made && begun.elapsed() < TO_BE_MADE => {
                    std::thread::sleep(Duration::from_millis(50));
                    continue;
                }
                Err(unvme_fs::Error::Busy(_)) if is_to_be_made => {
                    let device = &self.config.device;
                    return Err(format!("{device}: ffs_format = TRUE, and other programs have its files"));
                }
                Err(unvme_fs::Error::Busy(_)) => {
                    // Another process has it to itself, and is asked to share it.
                    crate::share::ask(&socket);
                    format!("{}: another program has the file system", self.config.device)
                }
                Err(e) => return Err(self.told(&e)),
            };
            if begun.elapsed() > PATIENCE {
                return Err(failed);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Mounts, unless that was done before.
    ///
    /// # Errors
    /// What is wrong, in one line.
    pub(crate) fn ensure(&'static self) -> std::result::Result<(), String> {
        if self.is_mounted() {
            return Ok(());
        }
        // Others may ask this process meanwhile for what it has already.
        let _inside = gate::among_ourselves();
        let _mounting = lock(&self.mounting);
        if self.is_mounted() {
            return Ok(());
        }
        let made = self.find_backend()?;
        let is_own = matches!(made, Backend::Alone(_));
        self.install(made);
        if is_own && !self.is_memory() {
            // From here on another thread may take it away.
            crate::share::listen(self, &self.socket()?);
        }
        Ok(())
    }

    /// From here on this is asked.
    pub(crate) fn install(&'static self, made: Backend) {
        self.backend.store(Box::into_raw(Box::new(made)), Ordering::Release);
        if self.device.load(Ordering::Relaxed) == 0
            && let Ok(Reply::Usage(_, identity)) = self.ask(&Request::Usage)
        {
            // A major number that the kernel gives nobody.
            let minor = (identity ^ (identity >> 32)) as u32 & 0xf_ffff;
            self.device.store(libc::makedev(0xf00, minor), Ordering::Relaxed);
        }
    }

    /// Who is asked, if anybody was yet.
    #[inline]
    pub(crate) fn backend(&self) -> Option<&'static Backend> {
        // SAFETY: null, or a box that is given up when the gate is closed and another one is in its place.
        unsafe { self.backend.load(Ordering::Acquire).as_ref() }
    }

    fn asked(&'static self) -> Result<&'static Backend> {
        if let Some(found) = self.backend() {
            return Ok(found);
        }
        if HAS_ENDED.load(Ordering::Acquire) {
            return Err(Errno::IO);
        }
        self.ensure().map_err(|e| {
            crate::state::say(&e);
            Errno::IO
        })?;
        // Who asks is inside: nobody has taken it away.
        self.backend().ok_or(Errno::IO)
    }

    /// Asks the file system, which is mounted when nobody has asked before.
    ///
    /// # Errors
    /// Those of the call; EIO when there is no file system.
    pub(crate) fn call(
        &'static self,
        request: &Request<'_>,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<Reply> {
        let asked = self.asked()?;
        let acting = identity::acting_for(request);
        match asked {
            Backend::Alone(alone) => errno::of(match acting {
                None => alone.process.call(request, input, output),
                Some(who) => acting_as(who, || alone.process.call(request, input, output)),
            }),
            Backend::Shared(shared) => shared.call(self, acting, (request, input), output),
        }
    }

    /// A file's memory, which is shared, and has the content of a range of the file.
    ///
    /// # Errors
    /// ENODEV, EACCES, ENOMEM; EIO.
    pub(crate) fn map(
        &'static self,
        open: OpenId,
        is_stored_to: bool,
        range: Range<u64>,
    ) -> Result<(Mapped, OwnedFd)> {
        match self.asked()? {
            Backend::Alone(alone) => {
                let mapped = errno::of(alone.process.map_range(open, is_stored_to, range))?;
                match alone.process.map_memory(mapped.ino) {
                    Ok(memory) => {
                        crate::own::note_same(std::os::fd::AsFd::as_fd(&memory));
                        Ok((mapped, memory))
                    }
                    Err(e) => {
                        let _ = alone.process.unmap(mapped.ino);
                        Err(e.errno())
                    }
                }
            }
            Backend::Shared(shared) => errno::of(shared.client.map_range(open, is_stored_to, range)),
        }
    }

    /// # Errors
    /// EINVAL when it is not mapped; EACCES when it was not open for writing; EIO.
    pub(crate) fn store_to(&'static self, ino: u64) -> Result<()> {
        match self.asked()? {
            Backend::Alone(alone) => errno::of(alone.process.store_to(ino)),
            Backend::Shared(shared) => errno::of(shared.client.store_to(ino)),
        }
    }

    /// More of a mapped file is about to be mapped.
    ///
    /// # Errors
    /// EINVAL when it is not mapped; ENOMEM; EIO.
    pub(crate) fn load_map(&'static self, ino: u64, range: Range<u64>) -> Result<()> {
        match self.asked()? {
            Backend::Alone(alone) => errno::of(alone.process.load_map(ino, range)),
            Backend::Shared(shared) => errno::of(shared.client.load_map(ino, range)),
        }
    }

    /// # Errors
    /// EINVAL when it is not mapped; EIO.
    pub(crate) fn unmap(&'static self, ino: u64) -> Result<()> {
        match self.asked()? {
            Backend::Alone(alone) => errno::of(alone.process.unmap(ino)),
            Backend::Shared(shared) => errno::of(shared.client.unmap(ino)),
        }
    }

    /// The number of the server that has it; that of the one in this process, or 0 when there is none.
    pub(crate) fn server(&self) -> u32 {
        match self.backend() {
            None => 0,
            Some(Backend::Alone(alone)) => lock(&alone.server).as_ref().map_or(0, |own| own.server.number()),
            Some(Backend::Shared(shared)) => shared.client.server(),
        }
    }

    /// Finds another server where the one that had it was killed.
    pub(crate) fn find_server(&'static self) {
        if let Some(Backend::Shared(shared)) = self.backend() {
            shared.look(self);
        }
    }

    /// Whether a server has it.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.backend(), Some(Backend::Shared(_)))
    }

    /// This process acts for another user from now on. `is_another`: for good.
    pub(crate) fn identify(&self, is_another: bool, _closed: &gate::Closed) {
        match self.backend() {
            None => {}
            Some(Backend::Alone(alone)) => alone.process.set_identity(std::process::id(), of_process()),
            Some(Backend::Shared(shared)) => {
                let known =
                    if is_another { Err(Errno::PERM.into()) } else { shared.client.set_identity(identity()) };
                // Groups that the kernel has not said of this process yet.
                let done = match known {
                    Err(unvme_fs::Error::Posix(Errno::PERM)) => shared.client.change_user(identity()),
                    known => known,
                };
                crate::table::each(|_, file| {
                    if file.mount.number == self.number {
                        // SAFETY: the gate is closed.
                        unsafe { file.set_vnode(None) };
                    }
                });
                if let Err(e) = done {
                    crate::state::say(&format!("{}: as another user: {e}", self.config.device));
                }
            }
        }
    }

    /// Has a server show what it has of an open file.
    pub(crate) fn watch(&self, open: OpenId) -> Option<Watched> {
        match self.backend()? {
            Backend::Alone(_) => None,
            Backend::Shared(shared) => shared.client.watch(open).ok(),
        }
    }

    /// Whether data of files may be in mappings.
    #[inline]
    pub(crate) fn is_any_mapped(&self) -> bool {
        match self.backend() {
            Some(Backend::Alone(alone)) => alone.processes.is_any_mapped(),
            _ => false,
        }
    }

    /// As [`Mount::call`], of what has no data.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn ask(&'static self, request: &Request<'_>) -> Result<Reply> {
        self.call(request, &[], &mut [])
    }

    /// Whether anybody has asked for it yet.
    pub(crate) fn is_mounted(&self) -> bool {
        self.backend().is_some()
    }

    /// The file behind an open one, where it is in this process.
    pub(crate) fn file(&self, open: OpenId) -> Option<Vnode> {
        match self.backend()? {
            Backend::Alone(alone) => alone.process.file(open).ok(),
            Backend::Shared(_) => None,
        }
    }

    /// Takes the backend away: nobody is inside.
    pub(crate) fn take(&self) -> Option<Box<Backend>> {
        let backend = self.backend.swap(std::ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: a box, which nobody else has: the gate is closed, or the program ends.
        (!backend.is_null()).then(|| unsafe { Box::from_raw(backend) })
    }

    /// Gives up the file system: everything is on the device then. Without `closed` threads may be in calls,
    /// which do not end: what they use stays.
    pub(crate) fn unmount(&self, closed: Option<&gate::Closed>) {
        let Some(backend) = self.take() else { return };
        if let Backend::Alone(alone) = &*backend {
            self.leave(alone);
        }
        if let Backend::Shared(shared) = &*backend {
            // The kernel closes the connection, and the server sees that a little later: who waits for
            // this process finds its files closed.
            crate::table::each(|_, file| {
                if file.mount.number == self.number {
                    let _ = shared.client.call(&Request::Close { open: file.open() }, &[], &mut []);
                }
            });
        }
        let Some(closed) = closed else {
            Box::leak(backend);
            return;
        };
        // The device is closed when nobody has a file of it any more.
        crate::table::each(|_, file| {
            if file.mount.number == self.number {
                // SAFETY: the gate is closed.
                unsafe { file.set_vnode(None) };
            }
        });
        gate::drop_aside(closed);
        drop(backend);
    }

    fn leave(&self, alone: &Alone) {
        if let Ok(socket) = self.socket() {
            crate::share::stop_listening(&socket);
        }
        // Processes that this one has made go on until they have done.
        let own = lock(&alone.server).take();
        if own.as_ref().is_some_and(|own| own.server.clients() > 1) {
            // They may wait for the end of this process: for its locks, or for its end of a pipe.
            crate::table::each(|_, file| {
                if file.mount.number == self.number {
                    let _ = alone.process.call(&Request::Close { open: file.open() }, &[], &mut []);
                }
            });
            crate::own::close_ends_of_program();
        }
        if let Some(hold) = own.and_then(crate::share::outlive) {
            *lock(&alone.hold) = Some(hold);
        }
        let written = alone.processes.write_back_maps();
        if let Err(e) = written.and_then(|()| alone.processes.fs().hand_over()) {
            crate::state::say(&e.to_string());
        }
    }
}

impl Shared {
    pub(crate) fn new(client: Client) -> Self {
        let generation = client.generation().into();
        Self { client, generation }
    }

    /// Looks whether the server is there: another one has this process's files open afterwards, too.
    pub(crate) fn look(&self, mount: &'static Mount) {
        let _ = self.client.ping();
        let now = self.client.generation();
        if self.generation.swap(now, Ordering::AcqRel) != now {
            crate::share::open_again(mount, false);
        }
    }

    fn call(
        &self,
        mount: &'static Mount,
        acting: Option<&Credentials>,
        (request, input): (&Request<'_>, &[u8]),
        output: &mut [u8],
    ) -> Result<Reply> {
        let done = match acting {
            None => self.client.call(request, input, output),
            Some(who) => self.client.call_as(&identity_of(who.clone()), request, input, output),
        };
        let now = self.client.generation();
        if self.generation.swap(now, Ordering::AcqRel) == now {
            return errno::of(done);
        }
        // Another server than the one that had the files open.
        crate::share::open_again(mount, false);
        Err(Errno::IO)
    }
}

/// Who this process is to a server.
pub(crate) fn identity() -> Identity {
    identity_of(of_process())
}

fn identity_of(who: Credentials) -> Identity {
    Identity { pid: std::process::id(), uid: who.uid, gid: who.gid, groups: who.groups }
}

/// Everything is on the device when the program ends.
pub(crate) fn end_all() {
    // About a second: threads that are in a call for longer are left there.
    const LOOKS: u64 = 50_000;
    static IS_DONE: Mutex<bool> = Mutex::new(false);
    let mut is_done = lock(&IS_DONE);
    if std::mem::replace(&mut *is_done, true) {
        return;
    }
    if !all().is_empty() {
        // After this nobody is giving a file system to somebody else.
        let closed = gate::close_within(LOOKS);
        all().iter().for_each(|mount| mount.unmount(closed.as_ref()));
        HAS_ENDED.store(true, Ordering::Release);
        // Other threads wait where they are for the end of the process, which this one goes on to.
        let _ = closed.map(ManuallyDrop::new);
    }
    write_stats();
}

fn write_stats() {
    let Some(path) = STATS.get() else { return };
    let sum =
        |of: fn(&Counters) -> &Tally| -> i64 { all().iter().map(|mount| of(&mount.counters).total()).sum() };
    if sum(|counters| &counters.opened) == 0 {
        return;
    }
    let text = format!(
        "{{\"opened\":{},\"read\":{},\"written\":{},\"synced\":{}}}\n",
        sum(|counters| &counters.opened),
        sum(|counters| &counters.read),
        sum(|counters| &counters.written),
        sum(|counters| &counters.synced),
    );
    let Ok(name) = CString::new(path.as_os_str().as_bytes()) else { return };
    // It is told to those who look; a program does not fail for it.
    if let Ok(file) = rustix::fs::open(
        name.as_c_str(),
        rustix::fs::OFlags::WRONLY
            | rustix::fs::OFlags::CREATE
            | rustix::fs::OFlags::APPEND
            | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::from_raw_mode(0o644),
    ) {
        let _ = rustix::io::write(&file, text.as_bytes());
    }
}
