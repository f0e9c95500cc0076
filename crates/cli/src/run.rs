//! `unvme run`: a program as it is, with files of chosen folders on a device in user space.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;

use unvme::Size;
use unvme_fs::{Dynamic, is_sanitizer, out_of_reach};

use crate::exit::usage;
use crate::preload::{Library, find_program};

/// What is loaded before the program's other libraries.
const LIBRARY: Library =
    Library { file: "libunvme_preload.so", variable: "UNVME_PRELOAD", built: None, word: "build" };

/// The configuration, as text, for the library.
const CONFIG_VARIABLE: &str = "UNVME_PRELOAD_CONFIG";

/// The program that serves, for the library.
const SERVER_VARIABLE: &str = "UNVME_PRELOAD_SERVER";

/// What the library restores of the environment before `main`: a line for each variable.
const LOADER_VARIABLE: &str = "UNVME_PRELOAD_LOADER";

/// What the library leaves to programs that it starts.
const HANDED_VARIABLE: &str = "UNVME_PRELOAD_HANDED";

/// The first line of a configuration that a program has written: a `#` is one like any other letter.
const EXACT: &str = "#!exact\n";

/// Arguments of `run`.
#[derive(Debug, Args)]
#[command(after_help = "\
The program is run with libunvme_preload.so before its other libraries. What it does within a
folder of --dir happens in the file system of that device, without the kernel; the folder itself
stays empty. Everything else goes to the kernel as it came. The device has a file system, of `unvme
fs mkfs`, or it is a mem: device, which gets one, and is gone with the last process.

Without --dir the folders are those of the file that $WRAPPER_CONFIG names: wrap_dir, storage_dev,
filesystem, ffs_format, ffs_prealloc, ffs_readahead, storage_engine; and nsid, cache, policy,
shared, stats. A program that the library cannot reach is not started: one that is linked
statically, or that runs as another user.

Examples:
  unvme run --dir ./db=mem:block:1G -- sqlite3 ./db/test.db \"create table t(a); select 1\"
  unvme run --dir ./db=0000:02:00.0 -- mongod --dbpath ./db")]
pub(crate) struct Run {
    /// A folder, and the device that what is in it is on; can be repeated
    #[arg(short, long = "dir", value_name = "FOLDER=DEVICE")]
    folders: Vec<OsString>,
    /// Namespace of the devices
    #[arg(short, long, value_name = "NSID", default_value_t = 1, requires = "folders")]
    nsid: u32,
    /// Memory for pages of files, for each folder
    #[arg(long, value_name = "SIZE", requires = "folders")]
    cache: Option<Size>,
    /// Have a server own the file systems from the beginning, and not from the second process on
    #[arg(long, requires = "folders")]
    shared: bool,
    /// Write what was done on the folders to a file, as JSON, when a process ends
    #[arg(long, value_name = "FILE", requires = "folders")]
    stats: Option<PathBuf>,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, num_args = 1.., last = true)]
    program: Vec<OsString>,
}

impl Run {
    pub(crate) fn run(self) -> Result<()> {
        let Some((program, arguments)) = self.program.split_first() else {
            return Err(usage("which program?"));
        };
        let found = find_program(program, "")?;
        check(&found)?;
        let mut list = LIBRARY.find()?.join(LIBRARY.file).into_os_string();
        let others = env::var_os("LD_PRELOAD").unwrap_or_default();
        if !others.is_empty() {
            list.push(":");
            list.push(&others);
        }
        let mut command = Command::new(&found);
        command.arg0(program).args(arguments);
        if self.is_loaded_from_folders(&others)? {
            // The loader finds those libraries when a process that has the folders starts the program: a
            // shell without them, which the library gives the whole list before `main`.
            let own = LIBRARY.find()?.join(LIBRARY.file).into_os_string();
            let mut whole = OsString::from("LD_PRELOAD=");
            whole.push(&list);
            command = Command::new("/bin/sh");
            command.args(["-c", "exec \"$@\"", "sh"]).arg(&found).args(arguments);
            command.env(LOADER_VARIABLE, whole);
            list = own;
        } else if let Some(mut first) = first_library(&found, &others) {
            // The programs that this one starts may do without it.
            let mut own = OsString::from("LD_PRELOAD=");
            own.push(&list);
            command.env(LOADER_VARIABLE, own);
            first.push(":");
            first.push(&list);
            list = first;
        }
        command.env("LD_PRELOAD", list);
        // What serves a file system that several processes use.
        command.env(SERVER_VARIABLE, env::current_exe().context("find this program")?);
        if !self.folders.is_empty() {
            command.env(CONFIG_VARIABLE, self.config()?);
        } else if env::var_os("WRAPPER_CONFIG").is_none() && env::var_os(CONFIG_VARIABLE).is_none() {
            return Err(usage(
                "which folder? --dir FOLDER=DEVICE, or $WRAPPER_CONFIG names a file that says so",
            ));
        }
        // Only when it fails does this return.
        Err(command.exec()).with_context(|| format!("run {}", found.display()))
    }

    /// Whether the program's loader is to look for libraries in a folder: `others` is `LD_PRELOAD`.
    fn is_loaded_from_folders(&self, others: &OsStr) -> Result<bool> {
        let directories = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let mut folders = Vec::new();
        for folder in &self.folders {
            folders.push(std::path::absolute(split(folder)?.0).context("find the working folder")?);
        }
        let named = others.as_bytes().split(|byte| b": ".contains(byte));
        let named = named.chain(directories.as_bytes().split(|byte| b":;".contains(byte)));
        Ok(named.filter(|path| !path.is_empty()).any(|path| {
            let whole = std::path::absolute(OsStr::from_bytes(path));
            whole.is_ok_and(|whole| folders.iter().any(|folder| whole.starts_with(folder)))
        }))
    }

    /// The words of a configuration file, after those of the one that this program itself runs under.
    fn config(&self) -> Result<OsString> {
        let loaded = env::var_os("LD_PRELOAD").unwrap_or_default();
        let is_loaded = || {
            loaded.as_bytes().split(|&byte| byte == b':').any(|path| path.ends_with(LIBRARY.file.as_bytes()))
        };
        let is_inside = env::var_os(HANDED_VARIABLE).is_some() || is_loaded();
        let outer = env::var_os(CONFIG_VARIABLE).filter(|_| is_inside);
        let outer = outer.filter(|text| text.as_bytes().starts_with(EXACT.as_bytes())).unwrap_or_default();
        let mut text = if outer.is_empty() { OsString::from(EXACT) } else { outer.clone() };
        let mut word = |word: &str, value: &OsStr| -> Result<()> {
            if value.as_bytes().contains(&b'\n') {
                return Err(usage(format!("{word}: a name with a line break in it: {}", value.display())));
            }
            text.push(word);
            text.push(" = ");
            text.push(value);
            text.push("\n");
            Ok(())
        };
        if let Some(stats) = &self.stats {
            word("stats", std::path::absolute(stats).context("find the working folder")?.as_os_str())?;
        }
        for (nth, folder) in self.folders.iter().enumerate() {
            let (folder, device) = split(folder)?;
            let folder = std::path::absolute(folder).context("find the working folder")?;
            match wrapped(&outer, &folder) {
                Some((there, nsid)) if there == device && nsid == self.nsid.to_string().as_str() => continue,
                Some((there, nsid)) => {
                    let (folder, there, nsid) = (folder.display(), there.display(), nsid.display());
                    return Err(usage(format!(
                        "--dir {folder}: it is on {there}, namespace {nsid}, already"
                    )));
                }
                None => {}
            }
            word("wrap_dir", folder.as_os_str())?;
            word("storage_dev", device)?;
            word("nsid", OsStr::new(&self.nsid.to_string()))?;
            if device.as_bytes().starts_with(b"mem:") {
                // It is to outlive the program's processes, the first one included.
                let name = format!("run-{}-{nth}", std::process::id());
                let place = unvme_fs::share::socket_path("mem:block:1G", self.nsid)?.with_file_name(name);
                word("socket", place.as_os_str())?;
            }
            if let Some(cache) = self.cache {
                word("cache", OsStr::new(&cache.0.to_string()))?;
            }
            if self.shared {
                word("shared", OsStr::new("TRUE"))?;
            }
        }
        Ok(text)
    }
}

/// The device and the namespace that a folder is on, as a configuration says that a program has written.
fn wrapped<'a>(config: &'a OsStr, folder: &Path) -> Option<(&'a OsStr, &'a OsStr)> {
    let mut lines = config.as_bytes().split(|&byte| byte == b'\n');
    lines.find(|line| line.strip_prefix(b"wrap_dir = ") == Some(folder.as_os_str().as_bytes()))?;
    let mut value = |word: &[u8]| lines.next()?.strip_prefix(word).map(OsStr::from_bytes);
    value(b"storage_dev = ").zip(value(b"nsid = "))
}

/// A folder and its device.
fn split(text: &OsStr) -> Result<(&Path, &OsStr)> {
    let bytes = text.as_bytes();
    let at = bytes.iter().position(|&byte| byte == b'=').filter(|&at| at > 0 && at + 1 < bytes.len());
    let Some(at) = at else {
        return Err(usage(format!(
            "--dir {}: expected FOLDER=DEVICE, such as ./db=0000:02:00.0",
            text.display()
        )));
    };
    Ok((Path::new(OsStr::from_bytes(&bytes[..at])), OsStr::from_bytes(&bytes[at + 1..])))
}

/// The library that has to come before ours: the run-time library of a sanitizer, which ends the program
/// otherwise. A file that cannot be read is for the kernel to refuse.
fn first_library(program: &Path, others: &OsStr) -> Option<OsString> {
    let dynamic = Dynamic::of_program(program).ok().flatten();
    let needed = dynamic.as_ref().and_then(Dynamic::sanitizer);
    let mut listed = others.as_bytes().split(|byte| b": ".contains(byte));
    let first = needed.or_else(|| listed.find(|path| is_sanitizer(path)))?;
    Some(OsStr::from_bytes(first).to_owned())
}

/// Refuses what the library would not be loaded into: its files would be in the folder, and not on the
/// device.
fn check(program: &Path) -> Result<()> {
    let Some((found, why)) = out_of_reach(program)? else { return Ok(()) };
    Err(usage(format!("{}: {why}: its files would not be on the device", found.display())))
}
