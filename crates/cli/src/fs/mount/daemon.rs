//! The processes that serve mounts: found in /proc, waited for by pidfd.

use std::ffi::{CStr, OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use unvme::NOTICES;

use super::{KIND, READY};

/// The name of the main thread of a process whose file system is unmounted, and that writes back.
const ENDING: &CStr = c"unvme-ending";

/// How long a process without a mount may take until its name says that it ends. One that is detached
/// (`umount --lazy`), and has files open, stays for as long as they are.
const NOTICE_PERIOD: Duration = Duration::from_secs(5);

/// How long a process that ends may take to write back.
const END_PERIOD: Duration = Duration::from_secs(600);

/// A process that serves a file system to the kernel.
pub(super) struct Daemon {
    pid: u32,
    /// A pidfd: not another process of the same number.
    process: OwnedFd,
    arguments: Vec<OsString>,
}

/// A mount of this type.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MountPoint {
    pub(super) source: OsString,
    pub(super) directory: PathBuf,
    /// Options of the mount point, such as `nosuid`.
    pub(super) options: Vec<String>,
}

/// The mounts of a process, the topmost last; all types. `None` for those of another type.
fn mounts_of(process: &str) -> io::Result<Vec<(PathBuf, Option<MountPoint>)>> {
    let text = std::fs::read(format!("/proc/{process}/mountinfo"))?;
    Ok(text.split(|&byte| byte == b'\n').filter_map(parse_mount).collect())
}

/// A line of mountinfo(5).
fn parse_mount(line: &[u8]) -> Option<(PathBuf, Option<MountPoint>)> {
    let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let directory = PathBuf::from(unescape(fields.get(4)?));
    let end = fields.iter().position(|field| *field == b"-")?;
    let (kind, source) = (*fields.get(end + 1)?, *fields.get(end + 2)?);
    let is_ours = kind == KIND.as_bytes();
    let options = String::from_utf8_lossy(fields.get(5)?).split(',').map(ToOwned::to_owned).collect();
    let own = is_ours.then(|| MountPoint { source: unescape(source), directory: directory.clone(), options });
    Some((directory, own))
}

/// A field of mountinfo(5), whose white space is written in octal digits.
fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, behind)) = rest.split_first() {
        let digits =
            behind.get(..3).filter(|_| first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[3..];
            }
            None => {
                bytes.push(first);
                rest = behind;
            }
        }
    }
    OsString::from_vec(bytes)
}

/// The mounts of this type that the calling thread's namespace has, the topmost last.
pub(super) fn mount_points() -> Result<Vec<MountPoint>> {
    let all = mounts_of("thread-self").context("read the mounts of this process")?;
    Ok(all.into_iter().filter_map(|(_, own)| own).collect())
}

/// The mount at a directory, or of a source; `None` when what is on top there is of another type.
pub(super) fn mount_point(at: &Path, source: &OsStr) -> Result<Option<MountPoint>> {
    let all = mounts_of("thread-self").context("read the mounts of this process")?;
    let mut found = all.into_iter().rev();
    let own = found
        .find(|(directory, own)| directory == at || own.as_ref().is_some_and(|own| own.source == source));
    Ok(own.and_then(|(_, own)| own))
}

impl Daemon {
    /// Every process that has FUSE's device open, and whose command line is one that mounts. Only root sees
    /// those of other users.
    pub(super) fn all() -> Vec<Self> {
        let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
        processes.filter_map(|entry| Self::of(entry.ok()?.file_name().to_str()?.parse().ok()?)).collect()
    }

    fn of(pid: u32) -> Option<Self> {
        let number = Pid::from_raw(i32::try_from(pid).ok()?)?;
        let process = pidfd_open(number, PidfdFlags::empty()).ok()?;
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let mut words = line.split(|&byte| byte == 0).map(|word| OsStr::from_bytes(word).to_owned());
        let program = PathBuf::from(words.next()?);
        let mut arguments: Vec<_> = words.collect();
        let is_helper = program.file_name().is_some_and(super::external::is_mount);
        if !is_helper {
            let command = (!arguments.is_empty()).then(|| arguments.remove(0))?;
            if command != "mount" && command != "fuse" {
                return None;
            }
        }
        let mut files = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
        let serves = files.any(|file| {
            file.is_ok_and(|file| {
                std::fs::read_link(file.path()).is_ok_and(|path| path == Path::new("/dev/fuse"))
            })
        });
        serves.then_some(Self { pid, process, arguments })
    }

    /// Whether it may serve a mount: its command line has the directory, and the device unless a
    /// configuration names that.
    pub(super) fn serves(&self, mount: &MountPoint) -> bool {
        let has_source = self.arguments.contains(&mount.source) || !self.has_word("--tell");
        has_source && self.paths().any(|path| path == mount.directory)
    }

    fn has_word(&self, word: &str) -> bool {
        self.arguments.iter().any(|argument| argument == word)
    }

    /// Its arguments as paths.
    fn paths(&self) -> impl Iterator<Item = PathBuf> {
        let working = std::fs::read_link(format!("/proc/{}/cwd", self.pid)).unwrap_or_default();
        self.arguments.iter().map(move |argument| {
            let path = working.join(argument);
            path.canonicalize().unwrap_or(path)
        })
    }

    /// Whether none of its arguments is the directory of a mount any more.
    fn has_no_mount(&self) -> bool {
        let Ok(mounts) = mounts_of(&self.pid.to_string()) else { return false };
        let mounts: Vec<_> = mounts.into_iter().filter_map(|(_, own)| own).collect();
        !self.paths().any(|path| mounts.iter().any(|mount| mount.directory == path))
    }

    fn is_ending(&self) -> bool {
        std::fs::read_to_string(format!("/proc/{}/comm", self.pid))
            .is_ok_and(|name| name.trim_end().as_bytes() == ENDING.to_bytes())
    }

    /// Waits until it has ended, or for that long. Returns whether it has.
    pub(super) fn wait(&self, period: Option<Duration>) -> io::Result<bool> {
        let end = period.map(|period| Instant::now() + period);
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let left = left.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
            match poll(&mut [PollFd::new(&self.process, PollFlags::IN)], left.as_ref()) {
                Ok(ended) => return Ok(ended > 0),
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Waits for its end when its file system is unmounted. Returns false when it serves on.
    fn wait_for_end(&self) -> io::Result<bool> {
        let noticed = Instant::now() + NOTICE_PERIOD;
        while !self.is_ending() {
            if self.wait(Some(Duration::from_millis(20)))? {
                return Ok(true);
            }
            if Instant::now() > noticed {
                return Ok(false);
            }
        }
        tracing::info!(target: NOTICES, "waiting for process {}, which writes back dirty data", self.pid);
        self.wait(Some(END_PERIOD))
    }
}

/// Whether an error is that another process has the device, or its file system.
pub(super) fn is_busy(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        matches!(
            cause.downcast_ref::<unvme::Error>(),
            Some(unvme::Error::InUse { .. } | unvme::Error::DriveInUse { .. })
        ) || matches!(cause.downcast_ref::<unvme_fs::Error>(), Some(unvme_fs::Error::Busy(_)))
    })
}

/// Whether a device that was refused because it is in use may be had now: a process that had it mounted until
/// umount(8) returned has ended meanwhile.
pub(super) fn wait_for_ending(device: &str, refusal: &anyhow::Error) -> io::Result<bool> {
    let told = format!("{refusal:#}");
    let numbers: Vec<_> = told.split(|letter: char| !letter.is_ascii_digit()).collect();
    let is_holder =
        |daemon: &Daemon| daemon.has_word(device) || numbers.contains(&daemon.pid.to_string().as_str());
    let holders: Vec<_> = Daemon::all().into_iter().filter(is_holder).filter(Daemon::has_no_mount).collect();
    if holders.is_empty() {
        return Ok(false);
    }
    for holder in &holders {
        if !holder.wait_for_end()? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Marks this process as one that ends, for those that wait for the device.
pub(super) fn mark_ending() {
    // Of the main thread, also where another one runs the command.
    if let Err(e) = std::fs::write("/proc/self/comm", ENDING.to_bytes()) {
        tracing::debug!("name the main thread: {e}");
    }
}

/// Reports that the mount exists, and leaves the terminal to others.
pub(super) fn become_daemon() -> Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_mountinfo_is_parsed() {
        let line = br"36 35 0:45 / /mnt/a\040b rw,nosuid,nodev shared:1 - fuse.unvme dev\134x rw,user_id=0";
        let (directory, own) = parse_mount(line).unwrap();
        let own = own.unwrap();
        assert_eq!((directory.as_path(), own.source.to_str()), (Path::new("/mnt/a b"), Some(r"dev\x")));
        assert_eq!(own.options, ["rw", "nosuid", "nodev"]);
        let (directory, own) = parse_mount(b"1 1 8:1 / / rw - ext4 /dev/sda1 rw").unwrap();
        assert_eq!((directory.as_path(), own), (Path::new("/"), None));
        assert!(parse_mount(b"").is_none() && parse_mount(b"1 1 8:1 / / rw").is_none());
    }
}
