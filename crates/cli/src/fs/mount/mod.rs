//! `unvme mount` and `unvme umount`: a file system for all programs, by way of the kernel.

mod fuse;

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use fuser::{Config, MountOption, Session, SessionACL};
use rustix::mount::{MountFlags, UnmountFlags};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use unvme_fs::{CacheOptions, FileSystem, MakeOptions, MountOptions, Policy, make};

use super::place::Place;
use crate::exit::usage;
use crate::numbers;
use crate::target::{DeviceArg, NamespaceArg};

/// The type of the mount.
const KIND: &str = "fuse.unvme";

/// What the command that stays says when the file system is there.
const READY: &str = "mounted";

/// Arguments of `mount`.
#[derive(Debug, Args)]
#[command(after_help = "\
Options of -o, with commas between them: ro, rw, allow_other, noatime, suid, nosuid, dev,
nodev, exec, noexec, cache=SIZE, policy=s3fifo|lru|none, threads=COUNT, foreground. Others that
mount(8) may add have no effect. The file system ends with `unvme umount`, umount(8) or SIGTERM,
and is in order then. A mem: device, which is empty, gets a file system first. In /etc/fstab,
with mount.fuse.unvme in /sbin:
  0000:02:00.0  /mnt/scratch  fuse.unvme  allow_other,noauto  0  0

Examples:
  sudo unvme mount 0000:02:00.0 /mnt/scratch -o allow_other
  sudo unvme mount mem:block:4G /mnt/memory")]
pub(crate) struct Mount {
    #[command(flatten)]
    place: Place,
    /// An empty directory
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Options, with commas between them
    #[arg(short, value_name = "OPTIONS")]
    options: Vec<String>,
    /// Stay in the foreground until the file system is unmounted
    #[arg(short, long)]
    foreground: bool,
    /// Allow nothing to be written
    #[arg(short, long)]
    read_only: bool,
    /// Said by mount(8); there is nothing more to tell
    #[arg(short, long, hide = true)]
    verbose: bool,
    /// Said by mount(8); unknown options never count
    #[arg(short, hide = true)]
    sloppy: bool,
    /// For the command itself, which stays in the background: it tells when all is ready
    #[arg(long, hide = true)]
    tell: bool,
}

/// What was asked for by `-o`.
#[derive(Debug)]
struct Asked {
    mount: MountOptions,
    flags: MountFlags,
    acl: SessionACL,
    threads: usize,
    is_foreground: bool,
}

impl Mount {
    /// One that stays in the foreground.
    pub(crate) fn in_foreground(device: String, directory: PathBuf, options: Vec<String>) -> Self {
        let place = Place { device: DeviceArg { device }, namespace: NamespaceArg { namespace_id: None } };
        Self {
            place,
            directory,
            options,
            foreground: true,
            read_only: false,
            verbose: false,
            sloppy: false,
            tell: false,
        }
    }

    fn asked(&self) -> Result<Asked> {
        let mut asked = Asked {
            mount: MountOptions { is_read_only: self.read_only, ..MountOptions::default() },
            flags: MountFlags::NOSUID | MountFlags::NODEV,
            acl: SessionACL::Owner,
            threads: thread::available_parallelism().map_or(1, usize::from),
            is_foreground: self.foreground,
        };
        for word in self.options.iter().flat_map(|options| options.split(',')).filter(|word| !word.is_empty())
        {
            asked.take(word)?;
        }
        asked.flags.set(MountFlags::RDONLY, asked.mount.is_read_only);
        Ok(asked)
    }

    pub(crate) fn run(self) -> Result<()> {
        let asked = self.asked()?;
        if !self.directory.is_dir() {
            return Err(usage(format!("{}: not a directory", self.directory.display())));
        }
        if !asked.is_foreground {
            return self.send_to_background();
        }
        let (device, block) = self.place.open()?;
        if device.name().starts_with("mem:") {
            // It has been empty until now, and is nobody else's.
            make(&block, device.name(), &MakeOptions::default(), |_, _| ())?;
        }
        let fs = FileSystem::mount(&block, device.name(), &asked.mount)?;
        if let Some(why) = &fs.description().copy_taken {
            tracing::error!("{}: the copy of the superblock is used: {why}", device.name());
        }
        // Before there is anything to unmount.
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let at = || format!("mount at {}", self.directory.display());
        let directory = std::path::absolute(&self.directory)?;
        let mut session = self.session(fuse::Fuse::new(fs.clone())?, &directory, &asked).with_context(at)?;
        let mut unmounter = session.unmount_callable();
        let is_ours = is_root();
        thread::spawn(move || {
            if signals.forever().next().is_some() {
                // Those who are busy with files keep them until they close them; nobody finds them any more.
                let done = if is_ours { detach(&directory) } else { unmounter.unmount() };
                if let Err(e) = done {
                    tracing::error!("unmount: {e}");
                }
            }
        });
        if self.tell {
            be_a_daemon()?;
        }
        session.run().with_context(at)?;
        Ok(fs.unmount()?)
    }

    /// Mounts it. Root needs nobody's help; others need fusermount3.
    fn session(&self, fuse: fuse::Fuse, directory: &Path, asked: &Asked) -> io::Result<Session<fuse::Fuse>> {
        let mut config = Config::default();
        config.acl = asked.acl;
        config.n_threads = Some(asked.threads);
        config.clone_fd = true;
        let source = self.place.device.device.as_str();
        if !is_root() {
            config.mount_options = vec![
                MountOption::DefaultPermissions,
                MountOption::FSName(source.into()),
                MountOption::Subtype("unvme".into()),
            ];
            if asked.mount.is_read_only {
                config.mount_options.push(MountOption::RO);
            }
            return Session::new(fuse, directory, &config);
        }
        let channel = File::options().read(true).write(true).open("/dev/fuse")?;
        let other = if asked.acl == SessionACL::All { ",allow_other" } else { "" };
        let data = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0,default_permissions{other}",
            channel.as_raw_fd()
        );
        let data = CString::new(data)?;
        rustix::mount::mount(source, directory, KIND, asked.flags, data.as_c_str())?;
        Session::from_fd(fuse, channel.into(), asked.acl, config).inspect_err(|_| {
            // The error says more than this one could.
            let _ = detach(directory);
        })
    }

    /// Starts the command that stays, and waits until it is ready.
    fn send_to_background(&self) -> Result<()> {
        let program = std::env::current_exe().context("find the program itself")?;
        let mut command = Command::new(program);
        let mut options: Vec<OsString> = vec!["mount".into(), (&self.place.device.device).into()];
        options.push(std::path::absolute(&self.directory)?.into());
        options.extend(self.options.iter().flat_map(|text| ["-o".into(), text.into()]));
        options.extend(["--foreground".into(), "--tell".into()]);
        if self.read_only {
            options.push("--read-only".into());
        }
        if let Some(nsid) = self.place.namespace.namespace_id {
            options.extend(["--namespace-id".into(), nsid.to_string().into()]);
        }
        command.args(options).stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().context("start the command that stays")?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line)?;
        }
        if line.trim_end() == READY {
            return Ok(());
        }
        // It has said why on standard error.
        let code = child.wait()?.code().unwrap_or(i32::from(crate::exit::SYSTEM));
        std::process::exit(code);
    }
}

/// Says that all is ready, and leaves the terminal to others.
fn be_a_daemon() -> Result<()> {
    // It has a process group already, and no terminal is lost when this fails.
    let _ = rustix::process::setsid();
    writeln!(io::stdout(), "{READY}")?;
    let null = File::options().read(true).write(true).open("/dev/null").context("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    std::env::set_current_dir("/")?;
    Ok(())
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn detach(directory: &Path) -> io::Result<()> {
    Ok(rustix::mount::unmount(directory, UnmountFlags::DETACH)?)
}

impl Asked {
    fn take(&mut self, word: &str) -> Result<()> {
        let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        let needs = |what: &str| usage(format!("-o {word}: expected {name}={what}"));
        match name {
            "ro" => self.mount.is_read_only = true,
            "rw" => self.mount.is_read_only = false,
            "allow_other" => self.acl = SessionACL::All,
            "noatime" => {
                self.mount.keeps_access_times = false;
                self.flags.insert(MountFlags::NOATIME);
            }
            "suid" => self.flags.remove(MountFlags::NOSUID),
            "nosuid" => self.flags.insert(MountFlags::NOSUID),
            "dev" => self.flags.remove(MountFlags::NODEV),
            "nodev" => self.flags.insert(MountFlags::NODEV),
            "exec" => self.flags.remove(MountFlags::NOEXEC),
            "noexec" => self.flags.insert(MountFlags::NOEXEC),
            "foreground" => self.is_foreground = true,
            "cache" => {
                let bytes = value.and_then(|text| numbers::bytes(text).ok()).ok_or_else(|| needs("SIZE"))?;
                self.mount.cache = CacheOptions { bytes: bytes as usize, ..self.mount.cache };
            }
            "policy" => {
                let policy = value.and_then(Policy::from_name);
                self.mount.cache.policy = policy.ok_or_else(|| needs("s3fifo, lru or none"))?;
            }
            "threads" => {
                let threads =
                    value.and_then(|text| text.parse().ok()).filter(|count| (1..=1024).contains(count));
                self.threads = threads.ok_or_else(|| needs("1 to 1024"))?;
            }
            _ => tracing::debug!("-o {word}: no effect"),
        }
        Ok(())
    }
}

/// Arguments of `umount`.
#[derive(Debug, Args)]
#[command(after_help = "\
It returns when everything is on the device.

Example: sudo unvme umount /mnt/scratch")]
pub(crate) struct Umount {
    /// Directory that a file system is mounted at
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Detach it now; it ends when nobody uses it any more
    #[arg(short, long)]
    lazy: bool,
}

/// Type of what is mounted at a directory, the topmost.
fn mounted_at(directory: &Path) -> Result<Option<String>> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").context("/proc/self/mounts")?;
    let unescaped = |text: &str| text.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\");
    let found = mounts.lines().rev().find_map(|line| {
        let mut words = line.split(' ');
        let (_, at, kind) = (words.next()?, words.next()?, words.next()?);
        (Path::new(&unescaped(at)) == directory).then(|| kind.to_owned())
    });
    Ok(found)
}

/// The processes whose command line has a file system at `directory`.
fn servers_of(directory: &Path) -> Vec<u32> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let is_one = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|&byte| byte == 0).collect();
        words.contains(&&b"--tell"[..])
            && words.iter().any(|word| *word == std::os::unix::ffi::OsStrExt::as_bytes(directory.as_os_str()))
    };
    pids.filter(is_one).collect()
}

impl Umount {
    pub(crate) fn run(self) -> Result<()> {
        let directory = std::path::absolute(&self.directory)?;
        let directory = directory.canonicalize().unwrap_or(directory);
        let found = mounted_at(&directory)?;
        if found.as_deref() != Some(KIND) {
            return Err(usage(format!("{}: no file system of unvme is mounted there", directory.display())));
        }
        let servers = servers_of(&directory);
        let flags = if self.lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
        rustix::mount::unmount(&directory, flags).map_err(|e| match e {
            rustix::io::Errno::BUSY => {
                anyhow!("{}: somebody uses it; --lazy detaches it all the same", directory.display())
            }
            e => anyhow!("unmount {}: {}", directory.display(), io::Error::from(e)),
        })?;
        // What they still write is written when they end.
        while !self.lazy && servers.iter().any(|pid| Path::new(&format!("/proc/{pid}/exe")).exists()) {
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}
