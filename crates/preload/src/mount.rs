//! A wrapped folder's file system: in this process, or behind a server.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use rustix::io::Errno;
use unvme::lock::lock;
use unvme::{Device, OpenOptions};
use unvme_fs::calls::{OpenId, Process, Processes, Reply, Request};
use unvme_fs::{CacheOptions, Credentials, FileSystem, MakeOptions, MountOptions, Vnode};

use crate::config::{Config, Folder};
use crate::errno::{self, Result};
use crate::gate;

/// Who does what is asked.
pub(crate) enum Backend {
    /// This process alone has the file system.
    Alone {
        process: Process,
        processes: Arc<Processes>,
        /// Last: closed when everything is written.
        _device: Device,
    },
}

/// What was done for a folder.
#[derive(Default)]
pub(crate) struct Counters {
    pub opened: AtomicU64,
    pub read: AtomicU64,
    pub written: AtomicU64,
    pub synced: AtomicU64,
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

/// All folders.
#[inline]
pub(crate) fn all() -> &'static [Mount] {
    MOUNTS.get().map_or(&[], Vec::as_slice)
}

pub(crate) fn by_number(number: u32) -> Option<&'static Mount> {
    all().get(number as usize)
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
            config: folder,
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

/// In whose name this process acts.
pub(crate) fn who() -> Credentials {
    let groups = rustix::process::getgroups().unwrap_or_default();
    Credentials {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: groups.into_iter().map(|group| group.as_raw()).collect(),
        are_checked: false,
    }
}

impl Mount {
    /// The device is one of memory, which begins empty.
    fn is_memory(&self) -> bool {
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

    fn mount_alone(&self) -> std::result::Result<Backend, String> {
        let name = &self.config.device;
        let told = |e: &dyn std::fmt::Display| {
            let text = e.to_string();
            if text.contains(name.as_str()) { text } else { format!("{name}: {text}") }
        };
        let device = unvme::open(name, &OpenOptions::default()).map_err(|e| told(&e))?;
        let block = device.block(self.config.nsid).map_err(|e| told(&e))?;
        if self.is_memory() || self.config.format && crate::start::is_first() {
            unvme_fs::make(&block, device.name(), &MakeOptions::default(), |_, _| ())
                .map_err(|e| told(&e))?;
        }
        let fs = FileSystem::mount(&block, device.name(), &self.options()).map_err(|e| told(&e))?;
        let processes = Processes::new(fs);
        let process = processes.enter(std::process::id(), who());
        Ok(Backend::Alone { process, processes, _device: device })
    }

    /// Mounts, unless that was done before.
    ///
    /// # Errors
    /// What is wrong, in one line.
    pub(crate) fn ensure(&self) -> std::result::Result<&Backend, String> {
        if let Some(found) = self.backend() {
            return Ok(found);
        }
        let _inside = gate::enter();
        let _mounting = lock(&self.mounting);
        if let Some(found) = self.backend() {
            return Ok(found);
        }
        let made = self.mount_alone()?;
        self.backend.store(Box::into_raw(Box::new(made)), Ordering::Release);
        if let Ok(Reply::Usage(_, identity)) = self.call(&Request::Usage, &[], &mut []) {
            // A major number that the kernel gives nobody.
            let minor = (identity ^ (identity >> 32)) as u32 & 0xf_ffff;
            self.device.store(libc::makedev(0xf00, minor), Ordering::Relaxed);
        }
        Ok(self.backend().expect("stored above"))
    }

    #[inline]
    fn backend(&self) -> Option<&Backend> {
        // SAFETY: null, or a box that is dropped when the gate is closed and another one is in its place.
        unsafe { self.backend.load(Ordering::Acquire).as_ref() }
    }

    /// Asks the file system, which is mounted when nobody has asked before.
    ///
    /// # Errors
    /// Those of the call; EIO when there is no file system.
    pub(crate) fn call(&self, request: &Request<'_>, input: &[u8], output: &mut [u8]) -> Result<Reply> {
        let backend = match self.backend() {
            Some(found) => found,
            None => self.ensure().map_err(|e| {
                crate::start::say(&e);
                Errno::IO
            })?,
        };
        match backend {
            Backend::Alone { process, .. } => errno::of(process.call(request, input, output)),
        }
    }

    /// As [`Mount::call`], of what has no data.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn ask(&self, request: &Request<'_>) -> Result<Reply> {
        self.call(request, &[], &mut [])
    }

    /// Whether anybody has asked for it yet.
    pub(crate) fn is_mounted(&self) -> bool {
        self.backend().is_some()
    }

    /// The file behind an open one, where it is in this process.
    pub(crate) fn file(&self, open: OpenId) -> Option<Vnode> {
        match self.backend()? {
            Backend::Alone { process, .. } => process.file(open).ok(),
        }
    }

    /// Gives up the file system: everything is on the device then.
    pub(crate) fn unmount(&self) {
        let backend = self.backend.swap(std::ptr::null_mut(), Ordering::AcqRel);
        if backend.is_null() {
            return;
        }
        // SAFETY: the program ends, or the gate is closed: nobody else has it.
        match *unsafe { Box::from_raw(backend) } {
            Backend::Alone { process, processes, _device } => {
                if let Err(e) = processes.fs().hand_over() {
                    crate::start::say(&e.to_string());
                }
                drop(process);
            }
        }
    }

    /// In the child of a `fork` there are no queues any more, and no threads.
    pub(crate) fn forget(&self) {
        // What it holds is the parent's: it must not be dropped.
        self.backend.store(std::ptr::null_mut(), Ordering::Relaxed);
    }
}

/// Everything is on the device when the program ends.
pub(crate) fn end_all() {
    all().iter().for_each(Mount::unmount);
    write_stats();
}

fn write_stats() {
    let Some(path) = STATS.get() else { return };
    let sum = |of: fn(&Counters) -> &AtomicU64| -> u64 {
        all().iter().map(|mount| of(&mount.counters).load(Ordering::Relaxed)).sum()
    };
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
