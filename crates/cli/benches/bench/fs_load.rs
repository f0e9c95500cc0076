//! A file system, the loops an application would run on it, and the kernel's.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use unvme::{Device, DmaBuf, Nsid, QueueOptions};
use unvme_fs::{
    CacheOptions, Credentials, FileId, FileQueue, FileSystem, MakeOptions, MountOptions, NewFile, Vnode, make,
};

use crate::load::{PAGE_BYTES, Random, memory_device};

/// Commands between two looks at the clock.
const COMMANDS_PER_LOOK: u64 = 4096;

/// A file system on a device in this process, and its device.
pub(crate) struct Mounted {
    pub(crate) fs: FileSystem,
    pub(crate) device: Device,
}

/// A fresh one, of `bytes` bytes, and with as many inodes as it has by itself unless told otherwise. The
/// memory of its device is there and stays: what the system takes for memory that is new would be measured
/// otherwise.
pub(crate) fn mounted(bytes: u64, cache_bytes: usize, bytes_per_inode: Option<u64>) -> Result<Mounted> {
    let (device, _) = memory_device(bytes)?;
    let block = device.block(Nsid(1))?;
    let options = MakeOptions { bytes_per_inode, deallocate: false, ..MakeOptions::default() };
    make(&block, device.name(), &options, |_, _| ())?;
    let fs = again(&device, cache_bytes)?;
    Ok(Mounted { fs, device })
}

/// What is on a device already.
pub(crate) fn again(device: &Device, cache_bytes: usize) -> Result<FileSystem> {
    let cache = CacheOptions { bytes: cache_bytes, ..CacheOptions::default() };
    let options = MountOptions { cache, deallocate: false, ..MountOptions::default() };
    Ok(FileSystem::mount(&device.block(Nsid(1))?, device.name(), &options)?)
}

/// A file full of data, nothing of which is in memory.
pub(crate) fn full_file(fs: &FileSystem, bytes: u64) -> Result<Vnode> {
    let file = fs.root()?.create(b"file", &NewFile::regular(0o644), &Credentials::root())?;
    let data = vec![0x5a; 4 << 20];
    for at in (0..bytes).step_by(data.len()) {
        file.write_direct(at, &data[..data.len().min((bytes - at) as usize)])?;
    }
    fs.sync()?;
    Ok(file)
}

/// Random reads or overwrites of pages of a file, as many outstanding as there are buffers.
pub(crate) struct FileLoad {
    queue: FileQueue,
    file: FileId,
    free: Vec<DmaBuf>,
    random: Random,
    pages: u64,
    write: bool,
}

impl FileLoad {
    pub(crate) fn new(fs: &FileSystem, file: &Vnode, depth: u16, write: bool) -> Result<Self> {
        let mut queue = fs.queue(&QueueOptions { depth, ..QueueOptions::default() })?;
        let free = (0..depth).map(|_| Ok(queue.alloc(PAGE_BYTES)?)).collect::<Result<_>>()?;
        let pages = file.attributes().size / PAGE_BYTES as u64;
        let file = queue.add(file)?;
        Ok(Self { queue, file, free, random: Random::new(u64::from(depth)), pages, write })
    }

    pub(crate) fn rate(&mut self, side: Duration) -> Result<f64> {
        crate::pairs::rate(side, || self.run(COMMANDS_PER_LOOK))
    }

    fn run(&mut self, commands: u64) -> Result<u64> {
        let mut done = 0;
        while done < commands {
            while let Some(buf) = self.free.pop() {
                let page = self.random.below(self.pages);
                let offset = page * PAGE_BYTES as u64;
                let sent = match self.write {
                    true => self.queue.write(self.file, offset, PAGE_BYTES, buf, page),
                    false => self.queue.read(self.file, offset, PAGE_BYTES, buf, page),
                };
                sent.map_err(|refused| refused.error)?;
            }
            self.queue.ring()?;
            for completion in self.queue.poll(usize::MAX) {
                ensure!(completion.result? == PAGE_BYTES, "a short call");
                self.free.extend(completion.buf);
                done += 1;
            }
        }
        Ok(done)
    }
}

/// Random reads of pages, one at a time, of anything.
pub(crate) struct PageReads<F> {
    read: F,
    pages: u64,
    random: Random,
    page: Vec<u8>,
}

impl<F: FnMut(u64, &mut [u8]) -> Result<usize>> PageReads<F> {
    pub(crate) fn new(bytes: u64, read: F) -> Self {
        Self { read, pages: bytes / PAGE_BYTES as u64, random: Random::new(3), page: vec![0; PAGE_BYTES] }
    }

    /// Reads all once, so that everything is where it will be.
    pub(crate) fn touch(&mut self) -> Result<()> {
        for page in 0..self.pages {
            (self.read)(page * PAGE_BYTES as u64, &mut self.page)?;
        }
        Ok(())
    }

    pub(crate) fn rate(&mut self, side: Duration) -> Result<f64> {
        crate::pairs::rate(side, || {
            for _ in 0..1024 {
                let at = self.random.below(self.pages) * PAGE_BYTES as u64;
                ensure!((self.read)(at, &mut self.page)? == PAGE_BYTES, "a short read");
            }
            Ok(1024)
        })
    }
}

/// A file system of the kernel's, which is unmounted when this is dropped.
pub(crate) struct Kernel {
    directory: PathBuf,
    mounted: Vec<PathBuf>,
}

fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program).args(arguments).output().with_context(|| format!("run {program}"))?;
    let says = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {}: {}", arguments.join(" "), says.trim_end());
    Ok(())
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is no text")
}

impl Kernel {
    /// A tmpfs.
    pub(crate) fn tmpfs(bytes: u64) -> Result<Self> {
        let directory = std::env::temp_dir().join(format!("unvme-bench-{}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        let mut kernel = Self { directory: directory.clone(), mounted: Vec::new() };
        run("mount", &["-t", "tmpfs", "-o", &format!("size={bytes},huge=never"), "none", text(&directory)?])?;
        kernel.mounted.push(directory);
        Ok(kernel)
    }

    /// ext4 on a loop device over a tmpfs: what a kernel's file system costs on media as fast as memory,
    /// which is there.
    pub(crate) fn ext4(bytes: u64) -> Result<Self> {
        let mut kernel = Self::tmpfs(bytes + (64 << 20))?;
        let (image, directory) = (kernel.directory.join("image"), kernel.directory.join("ext4"));
        let file = File::create(&image)?;
        let zeros = vec![0; 1 << 20];
        for at in (0..bytes).step_by(zeros.len()) {
            file.write_all_at(&zeros, at)?;
        }
        drop(file);
        std::fs::create_dir(&directory)?;
        run(
            "mkfs.ext4",
            &[
                "-q",
                "-F",
                "-i",
                "4096",
                "-E",
                "nodiscard,lazy_itable_init=0,lazy_journal_init=0",
                text(&image)?,
            ],
        )?;
        run("mount", &["-o", "loop", text(&image)?, text(&directory)?])?;
        kernel.mounted.push(directory);
        Ok(kernel)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.mounted.last().unwrap_or(&self.directory)
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        for directory in self.mounted.iter().rev() {
            let _ = rustix::mount::unmount(directory, rustix::mount::UnmountFlags::DETACH);
        }
        let _ = std::fs::remove_dir(&self.directory);
    }
}

/// Seconds of one phase of many small files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Phases {
    pub(crate) create: f64,
    pub(crate) stat: f64,
    pub(crate) unlink: f64,
}

/// Directories that the files are in.
const DIRECTORIES: u64 = 100;

fn timed(act: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    act()?;
    Ok(start.elapsed().as_secs_f64())
}

fn shuffled(files: Range<u64>) -> Vec<u64> {
    let mut order: Vec<u64> = files.collect();
    let mut random = Random::new(11);
    for at in (1..order.len()).rev() {
        order.swap(at, random.below(at as u64 + 1) as usize);
    }
    order
}

/// Many small files on ours: created, written and closed, with a sync at the end; looked at in any order;
/// removed.
pub(crate) fn many_files(fs: &FileSystem, files: u64) -> Result<Phases> {
    let who = Credentials::root();
    let root = fs.root()?;
    let data = [0x5a; PAGE_BYTES];
    let directory = |at: u64| format!("d{at}").into_bytes();
    let name = |at: u64| format!("file{at}").into_bytes();
    let create = timed(|| {
        for at in 0..DIRECTORIES {
            root.create(&directory(at), &NewFile::directory(0o755), &who)?;
        }
        for at in 0..files {
            let parent = fs.resolve(&directory(at % DIRECTORIES), true, &who)?;
            parent.create(&name(at), &NewFile::regular(0o644), &who)?.write_at(0, &data)?;
        }
        Ok(fs.sync()?)
    })?;
    let order = shuffled(0..files);
    let path = |at: u64| format!("d{}/file{at}", at % DIRECTORIES).into_bytes();
    let stat = timed(|| {
        for &at in &order {
            let found = fs.attributes(&path(at), false, &who)?;
            ensure!(found.size == PAGE_BYTES as u64, "a wrong size");
        }
        Ok(())
    })?;
    let unlink = timed(|| {
        for at in 0..files {
            fs.resolve(&directory(at % DIRECTORIES), true, &who)?.unlink(&name(at), &who)?;
        }
        for at in 0..DIRECTORIES {
            root.rmdir(&directory(at), &who)?;
        }
        Ok(fs.sync()?)
    })?;
    Ok(Phases { create, stat, unlink })
}

/// The same by the kernel's system calls.
pub(crate) fn many_kernel_files(at: &Path, files: u64) -> Result<Phases> {
    let data = [0x5a; PAGE_BYTES];
    let sync = || Ok(rustix::fs::syncfs(File::open(at)?)?);
    let directory = |index: u64| at.join(format!("d{index}"));
    let path = |index: u64| at.join(format!("d{}/file{index}", index % DIRECTORIES));
    let create = timed(|| {
        for index in 0..DIRECTORIES {
            std::fs::create_dir(directory(index))?;
        }
        for index in 0..files {
            File::create(path(index))?.write_all_at(&data, 0)?;
        }
        sync()
    })?;
    let order = shuffled(0..files);
    let stat = timed(|| {
        for &index in &order {
            ensure!(std::fs::symlink_metadata(path(index))?.len() == PAGE_BYTES as u64, "a wrong size");
        }
        Ok(())
    })?;
    let unlink = timed(|| {
        for index in 0..files {
            std::fs::remove_file(path(index))?;
        }
        for index in 0..DIRECTORIES {
            std::fs::remove_dir(directory(index))?;
        }
        sync()
    })?;
    Ok(Phases { create, stat, unlink })
}
