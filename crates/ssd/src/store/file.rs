//! A store in a folder: `media.img`, sparse, and `state.json`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use unvme_bus::Region;
use unvme_bus::file_size::without_signal;

use super::{CHUNK_BYTES, Store};
use crate::SsdError;

/// Name of the data file in a device's folder.
const MEDIA_FILE: &str = "media.img";
/// Name of the state file in a device's folder.
const STATE_FILE: &str = "state.json";

/// Data in a sparse file, mapped into memory. Space is reserved a chunk at a time before the first write to
/// it, so that a full disk is an error of a command and never a signal.
///
/// A file that another process cuts meanwhile is the end of the device, and an error of every command.
pub struct FileStore {
    folder: PathBuf,
    file: File,
    memory: Region,
    /// Chunks that held data when the store was opened.
    data: Vec<bool>,
}

impl FileStore {
    /// Opens the store in `folder`, which exists, or makes a new one of `bytes` (a multiple of
    /// [`CHUNK_BYTES`]) there.
    ///
    /// # Errors
    /// [`SsdError::File`] when a file cannot be used, [`SsdError::State`] when the data file has another
    /// size.
    pub fn open(folder: &Path, bytes: u64) -> Result<Self, SsdError> {
        let path = folder.join(MEDIA_FILE);
        let fail = |what| {
            let path = path.clone();
            move |source| SsdError::File { path, what, source }
        };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(fail("open"))?;
        let size = file.metadata().map_err(fail("inspect"))?.len();
        if size == 0 {
            without_signal(|| file.set_len(bytes)).map_err(fail("set the size"))?;
        } else if size != bytes {
            let reason = format!("the file has {size} bytes, the device {bytes}");
            return Err(SsdError::State { path, reason });
        }
        let memory = Region::file(&file, bytes as usize)?;
        let mut store = Self { folder: folder.to_path_buf(), file, memory, data: Vec::new() };
        store.data = store.find_data().map_err(fail("find its data"))?;
        // A file that was copied sparsely may have holes inside a chunk: those need their space before any
        // write.
        for chunk in (0..bytes / CHUNK_BYTES).filter(|&c| store.data[c as usize]) {
            store.reserve(chunk)?;
        }
        Ok(store)
    }

    /// Which chunks hold data, asked from the file system.
    fn find_data(&self) -> io::Result<Vec<bool>> {
        let bytes = self.memory.len() as u64;
        let mut chunks = vec![false; (bytes / CHUNK_BYTES) as usize];
        let mut at = 0;
        while at < bytes {
            let start = match seek(&self.file, SeekFrom::Data(at)) {
                Ok(start) => start,
                Err(rustix::io::Errno::NXIO) => break,
                Err(e) => return Err(e.into()),
            };
            let end = seek(&self.file, SeekFrom::Hole(start))?;
            for chunk in start / CHUNK_BYTES..end.div_ceil(CHUNK_BYTES) {
                if let Some(flag) = chunks.get_mut(chunk as usize) {
                    *flag = true;
                }
            }
            at = end.max(start + 1);
        }
        Ok(chunks)
    }

    /// Allocates or deallocates a chunk's space. Some file systems give up when a signal arrives.
    fn allocate(&self, flags: FallocateFlags, offset: u64) -> rustix::io::Result<()> {
        rustix::io::retry_on_intr(|| fallocate(&self.file, flags, offset, CHUNK_BYTES))
    }

    fn media_error(&self, what: &'static str, source: impl Into<io::Error>) -> SsdError {
        SsdError::File { path: self.folder.join(MEDIA_FILE), what, source: source.into() }
    }
}

impl Store for FileStore {
    fn bytes(&self) -> u64 {
        self.memory.len() as u64
    }

    fn memory(&self) -> Option<&Region> {
        Some(&self.memory)
    }

    fn holds_data(&self, chunk: u64) -> bool {
        self.data.get(chunk as usize).copied().unwrap_or(false)
    }

    fn reserve(&self, chunk: u64) -> Result<(), SsdError> {
        let offset = chunk * CHUNK_BYTES;
        // Never a longer file: one that was cut would read as zeroes then.
        match self.allocate(FallocateFlags::KEEP_SIZE, offset) {
            Err(rustix::io::Errno::OPNOTSUPP) => {
                // No way to reserve: writing what is there already makes the file system find the space.
                let mut page = [0; 4096];
                for at in (offset..offset + CHUNK_BYTES).step_by(page.len()) {
                    self.file
                        .read_exact_at(&mut page, at)
                        .map_err(|e| self.media_error("reserve space", e))?;
                    self.file.write_all_at(&page, at).map_err(|e| self.media_error("reserve space", e))?;
                }
                Ok(())
            }
            other => other.map_err(|e| self.media_error("reserve space", e)),
        }
    }

    fn release(&self, chunk: u64) -> Result<(), SsdError> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match self.allocate(flags, chunk * CHUNK_BYTES) {
            Err(rustix::io::Errno::OPNOTSUPP) => {
                self.memory.fill((chunk * CHUNK_BYTES) as usize, CHUNK_BYTES as usize, 0);
                Ok(())
            }
            other => other.map_err(|e| self.media_error("release space", e)),
        }
    }

    fn sync(&self) -> Result<(), SsdError> {
        self.file.sync_data().map_err(|e| self.media_error("flush", e))?;
        let size = self.file.metadata().map_err(|e| self.media_error("inspect", e))?.len();
        if size < self.bytes() {
            let reason = format!("the file was cut to {size} of {} bytes while it was in use", self.bytes());
            return Err(SsdError::State { path: self.media_path(), reason });
        }
        Ok(())
    }

    fn state_path(&self) -> PathBuf {
        self.folder.join(STATE_FILE)
    }

    fn media_path(&self) -> PathBuf {
        self.folder.join(MEDIA_FILE)
    }

    fn load_state(&self) -> Result<Option<Vec<u8>>, SsdError> {
        let path = self.state_path();
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(SsdError::File { path, what: "read", source }),
        }
    }

    fn save_state(&self, state: &[u8]) -> Result<(), SsdError> {
        let path = self.state_path();
        let new = self.folder.join("state.json.new");
        let replace = || -> io::Result<()> {
            let mut file = File::create(&new)?;
            file.write_all(state)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            // The rename itself must survive a power cut too.
            File::open(&self.folder)?.sync_all()
        };
        without_signal(replace).map_err(|source| SsdError::File {
            path: path.clone(),
            what: "replace",
            source,
        })
    }
}
