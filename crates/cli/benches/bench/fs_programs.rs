//! The file system by way of programs: mounted, and under the guide's `blobfs_perf`.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEntry, ReplyOpen, Request,
};
use rustix::fs::OFlags;
use rustix::mount::{UnmountFlags, unmount};

use crate::cores;
use crate::load::{PAGE_BYTES, Random};
use crate::pairs::{Effort, median};
use crate::row::{Better, Row};

pub(crate) const FUSE: &str = "fs.fuse.qd1";
pub(crate) const BLOBFS: &str = "fs.blobfs_perf";

/// Has this program be a server of FUSE that does nothing, at a directory.
pub(crate) const SERVE: &str = "--fuse-nothing";

/// As many as the server that does nothing has.
const THREADS: &str = "threads=2";

const DEVICE: &str = "0000:02:00.0";

/// The only name there is.
const NAME: &str = "file";

/// How long a server may take to be there.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why the rows cannot be measured here.
pub(crate) fn obstacle(id: &str) -> Option<String> {
    if id != FUSE {
        return None;
    }
    let is_root = rustix::process::geteuid().is_root();
    let is_there = is_root && File::options().read(true).write(true).open("/dev/fuse").is_ok();
    (!is_there).then(|| "a mount needs root and /dev/fuse".to_owned())
}

/// One file of zeros, which nobody has to look up or copy from anywhere.
struct Nothing {
    bytes: u64,
}

impl Nothing {
    fn attr(&self, ino: INodeNo) -> FileAttr {
        let is_root = ino == INodeNo::ROOT;
        let now = std::time::UNIX_EPOCH;
        FileAttr {
            ino,
            size: if is_root { 0 } else { self.bytes },
            blocks: 0,
            atime: now,
            mtime: now,
            ctime: now,
            crtime: now,
            kind: if is_root { FileType::Directory } else { FileType::RegularFile },
            perm: 0o755,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: PAGE_BYTES as u32,
            flags: 0,
        }
    }
}

const KEEP: Duration = Duration::from_secs(3600);

impl Filesystem for Nothing {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let _ = config.add_capabilities(InitFlags::FUSE_NO_OPEN_SUPPORT);
        Ok(())
    }

    fn lookup(&self, _req: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match name == NAME {
            true => reply.entry(&KEEP, &self.attr(INodeNo(2)), Generation(0)),
            false => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&KEEP, &self.attr(ino));
    }

    fn open(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        static ZEROS: [u8; 1 << 20] = [0; 1 << 20];
        reply.data(&ZEROS[..(size as usize).min(ZEROS.len())]);
    }
}

/// Serves nothing at a directory until it is unmounted.
pub(crate) fn serve(directory: &str, bytes: &str) -> Result<()> {
    let mut config = Config::default();
    config.n_threads = Some(2);
    config.clone_fd = true;
    fuser::mount(Nothing { bytes: bytes.parse()? }, directory, &config).context("serve nothing by FUSE")
}

/// A folder in memory, which is removed when this is dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Result<Self> {
        let shared = Path::new("/dev/shm");
        let parent = if shared.is_dir() { shared.to_path_buf() } else { std::env::temp_dir() };
        let path = parent.join(format!("unvme-bench-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    fn sub(&self, name: &str) -> Result<PathBuf> {
        let path = self.0.join(name);
        std::fs::create_dir_all(&path)?;
        Ok(path)
    }

    /// The command of this project, with its devices here.
    pub(crate) fn unvme(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_unvme"));
        command.args(arguments).env("UNVME_HOME", self.sub("home")?).stdin(Stdio::null());
        Ok(command)
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Result<String> {
        let output = self.unvme(arguments)?.output()?;
        let says = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "unvme {}: {}", arguments.join(" "), says.trim_end());
        Ok(String::from_utf8(output.stdout)?)
    }

    /// A device with a file system.
    fn make_file_system(&self, bytes: u64) -> Result<()> {
        self.run(&["device", "create", DEVICE, "--size", &bytes.to_string()])?;
        self.run(&["fs", "mkfs", DEVICE])?;
        Ok(())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server of FUSE, which ends when this is dropped.
struct Server {
    child: Child,
    directory: PathBuf,
}

impl Server {
    fn start(mut command: Command, directory: PathBuf) -> Result<Self> {
        let child = command.stdout(Stdio::null()).spawn()?;
        let mut server = Self { child, directory };
        let start = Instant::now();
        while !server.is_there()? {
            if let Some(status) = server.child.try_wait()? {
                bail!("the server has ended with {status}");
            }
            ensure!(start.elapsed() < PATIENCE, "the server does not mount");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(server)
    }

    fn is_there(&self) -> Result<bool> {
        let at = format!(" {} fuse", self.directory.display());
        Ok(std::fs::read_to_string("/proc/self/mounts")?.contains(&at))
    }

    fn file(&self) -> PathBuf {
        self.directory.join(NAME)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = unmount(&self.directory, UnmountFlags::DETACH);
        let _ = self.child.wait();
    }
}

/// Reads of pages past the kernel's cache, one at a time.
struct Reads {
    file: File,
    pages: u64,
    random: Random,
    memory: Vec<u8>,
}

impl Reads {
    fn new(path: &Path, bytes: u64) -> Result<Self> {
        let direct = OFlags::DIRECT.bits() as i32;
        let file = File::options().read(true).custom_flags(direct).open(path)?;
        let memory = vec![0; 2 * PAGE_BYTES];
        Ok(Self { file, pages: bytes / PAGE_BYTES as u64, random: Random::new(5), memory })
    }

    /// Median of so long, in nanoseconds.
    fn median_ns(&mut self, side: Duration) -> Result<f64> {
        let skip = self.memory.as_ptr().align_offset(PAGE_BYTES);
        let page = &mut self.memory[skip..skip + PAGE_BYTES];
        let mut took = Vec::new();
        let start = Instant::now();
        while start.elapsed() < side {
            let at = self.random.below(self.pages) * PAGE_BYTES as u64;
            let before = Instant::now();
            self.file.read_exact_at(page, at)?;
            took.push(before.elapsed().as_nanos() as f64);
        }
        Ok(median(took.into_iter()))
    }
}

/// Reads from a mounted file system, against a server that does nothing.
pub(crate) fn fuse(effort: &Effort) -> Result<Row> {
    let bytes = if effort.smoke { 8 << 20 } else { 256 << 20 };
    // The servers are started from there, and stay there: so nothing moves between cores on either side.
    cores::on_first(|core| {
        let folder = Folder::new("fuse")?;
        let (at, nothing_at) = (folder.sub("ours")?, folder.sub("nothing")?);
        let text = |path: &Path| path.to_str().map(str::to_owned).context("a path that is no text");
        let device = format!("mem:block:{}", 2 * bytes + (64 << 20));
        let ours = Server::start(folder.unvme(&["mount", "-f", &device, &text(&at)?, "-o", THREADS])?, at)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args([SERVE, &text(&nothing_at)?, &bytes.to_string()]);
        let nothing = Server::start(command, nothing_at)?;
        let mut file = File::create(ours.file())?;
        let data = vec![0x5a; 1 << 20];
        for _ in 0..bytes / data.len() as u64 {
            file.write_all(&data)?;
        }
        file.sync_all()?;
        drop(file);
        let mut here = Reads::new(&ours.file(), bytes)?;
        let mut there = Reads::new(&nothing.file(), bytes)?;
        here.median_ns(effort.side)?;
        there.median_ns(effort.side)?;
        let mut pairs = Vec::new();
        for _ in 0..effort.pairs {
            pairs.push((here.median_ns(effort.side)?, there.median_ns(effort.side)?));
        }
        let value = median(pairs.iter().map(|(ours, theirs)| ours / theirs));
        let note = format!(
            "{:.2} us / {:.2} us, medians; the reader and servers of 2 threads on core {core}",
            median(pairs.iter().map(|pair| pair.0)) / 1e3,
            median(pairs.iter().map(|pair| pair.1)) / 1e3
        );
        Ok(Row { id: FUSE, value, unit: "x", target: 1.1, better: Better::Lower, note })
    })
}

/// MB/s of a workload, of a number of sessions.
fn blobfs_rate(folder: &Folder, sessions: u32, bytes: u64, workload: &str) -> Result<f64> {
    let config = folder.0.join("lba.json");
    let config = config.to_str().context("a path that is no text")?;
    let (size, count) = (bytes.to_string(), sessions.to_string());
    let json = folder.run(&[
        "blobfs_perf",
        "-j",
        config,
        "-s",
        &size,
        "-m",
        &count,
        "-w",
        workload,
        "-d",
        "--output",
        "json",
    ])?;
    let found: serde_json::Value = serde_json::from_str(&json)?;
    found["totals"][0]["mb_per_second"].as_f64().context("blobfs_perf says no rate")
}

/// Two sessions of the guide's benchmark against one: the lesser of what writing and reading gain.
pub(crate) fn blobfs(effort: &Effort) -> Result<Row> {
    let bytes = if effort.smoke { 4 << 20 } else { 512 << 20 };
    let folder = Folder::new("blobfs")?;
    folder.make_file_system(3 * bytes + (64 << 20))?;
    let config = format!(
        r#"{{"cache": "off", "ssd_type": "lba", "app_hugemem_size": 512, "slab_size": 16, "log_level": 0,
        "device_description": [{{"dev_id": "{DEVICE}", "core_mask": "3", "sync_mask": "3",
        "cq_thread_mask": "0", "queue_depth": 8}}]}}"#
    );
    std::fs::write(folder.0.join("lba.json"), config)?;
    let mut gains = Vec::new();
    let mut rates = Vec::new();
    for workload in ["write", "read"] {
        // The files stay: from the second time on the memory of the device is there.
        blobfs_rate(&folder, 2, bytes, workload)?;
        let mut pairs = Vec::new();
        for _ in 0..effort.pairs.min(5) {
            let two = blobfs_rate(&folder, 2, bytes, workload)?;
            pairs.push((two, blobfs_rate(&folder, 1, bytes, workload)?));
        }
        gains.push(median(pairs.iter().map(|(two, one)| two / one)));
        let two = median(pairs.iter().map(|pair| pair.0));
        rates.push(format!("{workload} {two:.0} / {:.0} MB/s", median(pairs.iter().map(|pair| pair.1))));
    }
    let value = gains.iter().copied().fold(f64::INFINITY, f64::min);
    let note = format!("{}; 256 KiB, sessions of 2 / 1, past the cache", rates.join(", "));
    Ok(Row { id: BLOBFS, value, unit: "x", target: 1.9, better: Better::Higher, note })
}
