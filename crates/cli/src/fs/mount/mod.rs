//! `unvme mount` and `unvme umount`: a file system for all programs, by way of the kernel.

mod daemon;
pub(crate) mod external;
mod fuse;
mod namespace;
mod options;
mod pages;
mod privileges;
mod umount;

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result};
use clap::Args;
use fuser::{Config, Session, SessionACL};
use rustix::mount::UnmountFlags;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use unvme::{Device, NOTICES};
use unvme_fs::{FileSystem, MakeOptions, make};

use self::namespace::in_namespace;
use self::options::{Asked, Caller};
use self::pages::Invalidator;
use super::place::Place;
use crate::exit::usage;
use crate::target::{DeviceArg, NamespaceArg};

pub(crate) use self::umount::Umount;

/// The type of the mount.
const KIND: &str = "fuse.unvme";

/// What the command that stays says when the file system is there.
const READY: &str = "mounted";

/// Arguments of `mount`.
#[derive(Debug, Args)]
#[command(after_help = "\
Options of -o, with commas between them: ro, rw, allow_other, allow_root, sync, dirsync, noatime,
nodiratime, suid, dev, exec, symfollow and their opposites, cache=SIZE, policy=s3fifo|lru|none,
threads=COUNT, foreground. Those that mean something to mount(8) alone, such as noauto and x-*,
have no effect here; any other is refused. The file system ends with `unvme umount`, umount(8) or
SIGTERM, and is clean then. A mem: device, which is empty, gets a file system first. In
/etc/fstab, with mount.fuse.unvme in /sbin, where suid and dev are the default:
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
    /// Print what was mounted, of mount(8)
    #[arg(short, long, hide = true)]
    verbose: bool,
    /// Check everything, and do not mount, of mount(8)
    #[arg(long, hide = true)]
    fake: bool,
    /// Type, of mount(8)
    #[arg(short = 't', hide = true)]
    kind: Option<String>,
    /// Mount namespace, of mount(8)
    #[arg(short = 'N', hide = true)]
    mount_namespace: Option<PathBuf>,
    /// Given by mount(8): unknown options are ignored
    #[arg(short, hide = true, requires = "mount8")]
    sloppy: bool,
    /// Called by mount(8), whose defaults hold
    #[arg(long, hide = true)]
    mount8: bool,
    /// For the command itself, which stays in the background: it tells when all is ready
    #[arg(long, hide = true)]
    tell: bool,
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
            fake: false,
            kind: None,
            mount_namespace: None,
            sloppy: false,
            mount8: false,
            tell: false,
        }
    }

    fn asked(&self) -> Result<Asked> {
        let caller = match self.mount8 {
            true => Caller::Mount8 { is_sloppy: self.sloppy },
            false => Caller::User,
        };
        let read_only = self.read_only.then_some("ro");
        let words = self.options.iter().flat_map(|options| options.split(',')).chain(read_only);
        let mut asked = Asked::parse(words, caller, is_root())?;
        asked.is_foreground |= self.foreground;
        Ok(asked)
    }

    pub(crate) fn run(self) -> Result<()> {
        let mut asked = self.asked()?;
        check_kind(self.kind.as_deref())?;
        let directory = std::path::absolute(&self.directory)?;
        let namespace = self.mount_namespace.clone();
        if !in_namespace(namespace.as_deref(), || Ok(directory.is_dir()))? {
            return Err(usage(format!("{}: not a directory", self.directory.display())));
        }
        if self.fake {
            return Ok(());
        }
        if !asked.is_foreground {
            return self.send_to_background();
        }
        let (device, fs) = self.open(&asked)?;
        if let Some(why) = &fs.description().copy_taken {
            tracing::error!("{}: the copy of the superblock is used: {why}", device.name());
        }
        if fs.description().damage.is_some() {
            // It was reported when the file system became read-only.
            asked.mount.is_read_only = true;
            asked.flags.insert(rustix::mount::MountFlags::RDONLY);
        }
        // Before there is anything to unmount.
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let at = || format!("mount at {}", self.directory.display());
        let invalidator = Invalidator::default();
        let fuse = fuse::Fuse::new(fs.clone(), asked.synchronous, invalidator.clone())?;
        let mut session = self.session(fuse, &directory, &asked).with_context(at)?;
        invalidator.start(session.notifier())?;
        drop(invalidator);
        // It has the device of FUSE open until the process ends, by which others know a process that serves.
        let channel = session.notifier();
        let mut unmounter = session.unmount_callable();
        let is_ours = is_root();
        thread::spawn(move || {
            if signals.forever().next().is_some() {
                // Those who are busy with files keep them until they close them; nobody finds them any more.
                let done = match is_ours {
                    true => in_namespace(namespace.as_deref(), || Ok(detach(&directory)?)),
                    false => unmounter.unmount().map_err(Into::into),
                };
                if let Err(e) = done {
                    tracing::error!("unmount: {e:#}");
                }
            }
        });
        if self.tell {
            daemon::become_daemon()?;
        }
        let served = session.run();
        daemon::mark_ending();
        served.with_context(at)?;
        let done = fs.unmount();
        drop(channel);
        Ok(done?)
    }

    /// Opens the device and its file system. After umount(8) the process that had it mounted may write back
    /// for some time: the mount waits for it.
    fn open(&self, asked: &Asked) -> Result<(Device, FileSystem)> {
        // A process that is not found any more may have ended after the refusal.
        let mut is_last = false;
        loop {
            match self.try_open(asked) {
                Err(e) if daemon::is_busy(&e) && !is_last => {
                    is_last = !daemon::wait_for_ending(&self.place.device.device, &e)?;
                }
                other => return other,
            }
        }
    }

    fn try_open(&self, asked: &Asked) -> Result<(Device, FileSystem)> {
        let (device, block) = self.place.open()?;
        if device.name().starts_with("mem:") {
            // It is empty, and no other process can reach it.
            make(&block, device.name(), &MakeOptions::default(), |_, _| ())?;
        }
        let fs = FileSystem::mount(&block, device.name(), &asked.mount)?;
        Ok((device, fs))
    }

    /// Mounts it. Root needs nobody's help; others need fusermount3.
    fn session(&self, fuse: fuse::Fuse, directory: &Path, asked: &Asked) -> Result<Session<fuse::Fuse>> {
        let mut config = Config::default();
        config.acl = asked.acl;
        config.n_threads = Some(asked.threads);
        config.clone_fd = true;
        let source = self.place.device.device.as_str();
        if !is_root() {
            config.mount_options = asked.fusermount_options(Path::new(source));
            return Ok(Session::new(fuse, directory, &config)?);
        }
        let channel = File::options().read(true).write(true).open("/dev/fuse")?;
        // The kernel knows no `allow_root`: the session refuses the others.
        let other = if asked.acl == SessionACL::Owner { "" } else { ",allow_other" };
        let data = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0,default_permissions{other}",
            channel.as_raw_fd()
        );
        let data = CString::new(data)?;
        let namespace = self.mount_namespace.as_deref();
        in_namespace(namespace, || {
            Ok(rustix::mount::mount(source, directory, KIND, asked.flags, data.as_c_str())
                .map_err(io::Error::from)?)
        })?;
        let session = Session::from_fd(fuse, channel.into(), asked.acl, config).inspect_err(|_| {
            // The error says more than this one could.
            let _ = in_namespace(namespace, || Ok(detach(directory)?));
        });
        Ok(session?)
    }

    /// Starts the command that stays, and waits until it is ready.
    fn send_to_background(&self) -> Result<()> {
        let program = std::env::current_exe().context("find the program itself")?;
        let mut command = Command::new(program);
        let mut options: Vec<OsString> = vec!["mount".into(), (&self.place.device.device).into()];
        options.push(std::path::absolute(&self.directory)?.into());
        options.extend(self.options.iter().flat_map(|text| ["-o".into(), text.into()]));
        options.extend(["--foreground".into(), "--tell".into()]);
        for (is_given, option) in
            [(self.read_only, "--read-only"), (self.mount8, "--mount8"), (self.sloppy, "-s")]
        {
            options.extend(is_given.then(|| option.into()));
        }
        if let Some(namespace) = &self.mount_namespace {
            options.extend(["-N".into(), namespace::file_of(namespace).into()]);
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
            if self.verbose {
                let (device, directory) = (&self.place.device.device, self.directory.display());
                tracing::info!(target: NOTICES, "{device}: mounted on {directory}");
            }
            return Ok(());
        }
        // It has said why on standard error.
        let code = child.wait()?.code().unwrap_or(i32::from(crate::exit::SYSTEM));
        std::process::exit(code);
    }
}

/// Refuses another type than this one, which mount(8) and umount(8) may pass.
fn check_kind(kind: Option<&str>) -> Result<()> {
    match kind {
        None | Some(KIND | "unvme") => Ok(()),
        Some(other) => Err(usage(format!("-t {other}: expected {KIND}"))),
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn detach(directory: &Path) -> io::Result<()> {
    Ok(rustix::mount::unmount(directory, UnmountFlags::DETACH)?)
}
