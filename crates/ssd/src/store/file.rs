//! A store in a folder: `media.img`, sparse, and `state.json`, which [`identity`](super::identity) ties
//! together.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, FallocateFlags, RenameFlags, SeekFrom, fallocate, renameat_with, seek};
use rustix::io::Errno;
use unvme_bus::Region;
use unvme_bus::file_size::without_signal;

use super::identity::{Identity, LABEL_BYTES, Label, Sealed, draw, seal, unseal};
use super::{CHUNK_BYTES, Store, redo};
use crate::SsdError;
use crate::hex::bytes_of;

/// Name of the data file in a device's folder.
const MEDIA_FILE: &str = "media.img";
/// Where the system says which of the machine's starts this is.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Name of the state file in a device's folder.
const STATE_FILE: &str = "state.json";
/// Name of the file that the next state is written to: the one before the last. So there is space for it
/// where there is none for anything else.
const SPARE_STATE_FILE: &str = "state.json.new";
/// State files have whole pages: one that is a few bytes longer than the last takes no more space.
const STATE_PAGE_BYTES: usize = 4096;
/// A page of zeroes.
const ZEROES: [u8; 4096] = [0; 4096];
/// Bytes of a state file at least, where there is space for them: a state that grows on a file system that is
/// full by then has its space already.
const STATE_BYTES_MIN: usize = 64 << 10;
/// The data is nobody else's business.
const FILE_MODE: u32 = 0o600;

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
    identity: Identity,
    /// The media file says that there is a state file.
    has_state: AtomicBool,
    /// The memory is a copy: nothing that is written survives.
    is_read_only: bool,
}

impl FileStore {
    /// Opens the store in `folder`, which exists, or makes a new one of `bytes` (a multiple of
    /// [`CHUNK_BYTES`]) there. Nothing is changed when it cannot be opened. Errors: [`SsdError::File`] when a
    /// file cannot be used, [`SsdError::State`] when one is missing or damaged, has another size, or is
    /// another device's.
    pub fn open(folder: &Path, bytes: u64) -> Result<Self, SsdError> {
        let path = folder.join(MEDIA_FILE);
        let fail = |what| {
            let path = path.clone();
            move |source| SsdError::File { path, what, source }
        };
        let refuse = |reason: String| SsdError::State { path: path.clone(), reason };
        let state = read_state(folder)?;
        // A device that has saved its state has a media file: a new, empty one would lose its data for good.
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(state.is_none()).truncate(false).mode(FILE_MODE);
        let (file, mut is_read_only) = match options.open(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && state.is_some() => {
                return Err(refuse("the file with the device's data is missing".to_owned()));
            }
            Err(e) if e.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                (File::open(&path).map_err(fail("open"))?, true)
            }
            opened => (opened.map_err(fail("open"))?, false),
        };
        let size = file.metadata().map_err(fail("inspect"))?.len();
        if (size == 0 && state.is_some()) || ![0, bytes, bytes + LABEL_BYTES].contains(&size) {
            return Err(refuse(format!("the file has {size} bytes, the device {bytes}")));
        }
        let label = match size > bytes {
            true => Label::read(&file, bytes).map_err(fail("read its label"))?,
            false => None,
        };
        let data = find_data(&file, bytes).map_err(fail("find its data"))?;
        let identity = identify(folder, label, state.as_ref(), data.contains(&true))?;
        let has_state = state.is_some();
        if label != Some((identity, has_state)) && !is_read_only {
            without_signal(|| file.set_len(bytes + LABEL_BYTES)).map_err(fail("set the size"))?;
            Label::write(&file, bytes, identity, has_state).map_err(fail("write its label"))?;
            // Before there is a state that names this identity, and before there is data.
            file.sync_all().and_then(|()| File::open(folder)?.sync_all()).map_err(fail("flush"))?;
        }
        // A file that was copied sparsely may have holes inside a chunk: those need their space before any
        // write.
        let reserved = |chunk| is_read_only || reserve(&file, chunk).is_ok();
        let has_space = (0..bytes / CHUNK_BYTES).filter(|&c| data[c as usize]).all(reserved);
        if is_read_only || !has_space {
            is_read_only = true;
            let reason = if has_space { "its file system is read-only" } else { "its file system is full" };
            tracing::warn!(media = %path.display(), "{reason}: the device is opened for reading only");
        }
        let memory = match is_read_only {
            true => Region::copy_of_file(&file, bytes as usize)?,
            false => Region::file(&file, bytes as usize)?,
        };
        let has_state = AtomicBool::new(has_state);
        Ok(Self { folder: folder.to_path_buf(), file, memory, data, identity, has_state, is_read_only })
    }

    fn index_path(&self, chunk: u64) -> PathBuf {
        self.folder.join(format!("index-{chunk}.kv"))
    }

    /// Errors: [`SsdError::State`] when the file has become shorter than the device.
    fn check_size(&self) -> Result<(), SsdError> {
        let size = self.file.metadata().map_err(|e| self.media_error("inspect", e))?.len();
        if size < self.bytes() {
            let reason = format!("the file was cut to {size} of {} bytes while it was in use", self.bytes());
            return Err(SsdError::State { path: self.folder.join(MEDIA_FILE), reason });
        }
        Ok(())
    }

    fn media_error(&self, what: &'static str, source: impl Into<io::Error>) -> SsdError {
        SsdError::File { path: self.folder.join(MEDIA_FILE), what, source: source.into() }
    }
}

/// The number in a UUID as text.
fn boot_id(text: &str) -> Option<[u8; 16]> {
    bytes_of(&text.trim().replace('-', ""))
}

impl Store for FileStore {
    fn bytes(&self) -> u64 {
        self.memory.len() as u64
    }

    fn memory(&self) -> Option<&Region> {
        Some(&self.memory)
    }

    /// That of the machine: the page cache keeps what was written until it starts anew.
    fn life(&self) -> Option<[u8; 16]> {
        boot_id(&fs::read_to_string(BOOT_ID).ok()?)
    }

    fn redo(&self) -> Result<Option<Region>, SsdError> {
        let owner = redo::Owner { identity: self.identity, life: self.life() };
        match self.is_read_only {
            true => redo::open_copy(&self.folder, owner),
            false => redo::open(&self.folder, owner).map(Some),
        }
    }

    fn write_page(&self, offset: u64, bytes: &[u8]) -> Result<(), SsdError> {
        if self.is_read_only {
            self.memory.write(offset as usize, bytes);
            return Ok(());
        }
        // A write would make a file that was cut longer again, and what it has lost would read as zeroes.
        self.check_size()?;
        match without_signal(|| self.file.write_all_at(bytes, offset)) {
            // A limit to the size of files that the process creates does not concern one that is as long.
            Err(e) if e.kind() == io::ErrorKind::FileTooLarge => {
                self.memory.write(offset as usize, bytes);
                Ok(())
            }
            done => done.map_err(|e| self.media_error("write", e)),
        }
    }

    fn holds_data(&self, chunk: u64) -> bool {
        self.data.get(chunk as usize).copied().unwrap_or(false)
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn reserve(&self, chunk: u64) -> Result<(), SsdError> {
        if self.is_read_only {
            return Err(self.media_error("reserve space", io::Error::from(io::ErrorKind::ReadOnlyFilesystem)));
        }
        reserve(&self.file, chunk).map_err(|e| self.media_error("reserve space", e))
    }

    fn release(&self, chunk: u64) -> Result<(), SsdError> {
        let start = chunk * CHUNK_BYTES;
        if self.is_read_only {
            self.memory.fill(start as usize, CHUNK_BYTES as usize, 0);
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match allocate(&self.file, flags, start) {
            // A page at once, and not through the mapping: no kill leaves half a block of zeroes.
            Err(Errno::OPNOTSUPP) => (start..start + CHUNK_BYTES)
                .step_by(ZEROES.len())
                .try_for_each(|at| self.write_page(at, &ZEROES)),
            other => other.map_err(|e| self.media_error("release space", e)),
        }
    }

    fn sync(&self) -> Result<(), SsdError> {
        self.file.sync_data().map_err(|e| self.media_error("flush", e))?;
        self.check_size()
    }

    fn state_path(&self) -> PathBuf {
        self.folder.join(STATE_FILE)
    }

    fn media_path(&self) -> PathBuf {
        self.folder.join(MEDIA_FILE)
    }

    fn load_state(&self) -> Result<Option<Vec<u8>>, SsdError> {
        Ok(read_state(&self.folder)?.map(|state| state.text))
    }

    fn save_state(&self, state: &[u8]) -> Result<(), SsdError> {
        if self.is_read_only {
            let source = io::Error::from(io::ErrorKind::ReadOnlyFilesystem);
            return Err(SsdError::File { path: self.state_path(), what: "replace", source });
        }
        replace_state(&self.folder, self.identity, state)?;
        if !self.has_state.swap(true, Ordering::Relaxed) {
            Label::write(&self.file, self.bytes(), self.identity, true)
                .map_err(|e| self.media_error("write its label", e))?;
        }
        Ok(())
    }

    fn save_index(
        &self,
        chunk: u64,
        write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), SsdError> {
        let path = self.index_path(chunk);
        let new = path.with_extension("kv.new");
        // There need not be space for two of them, and the old one counts no more.
        self.drop_index(chunk);
        let replace = || -> io::Result<()> {
            let mut options = OpenOptions::new();
            let mut file = options.write(true).create(true).truncate(true).mode(FILE_MODE).open(&new)?;
            write(&mut file)?;
            fs::rename(&new, &path)
        };
        without_signal(replace).map_err(|source| {
            let _ = fs::remove_file(&new);
            SsdError::File { path, what: "write", source }
        })
    }

    fn load_index(&self, chunk: u64) -> Option<Box<dyn Read>> {
        Some(Box::new(File::open(self.index_path(chunk)).ok()?))
    }

    fn drop_index(&self, chunk: u64) {
        // Without it, or when it stays and counts no more, nothing is different.
        let _ = fs::remove_file(self.index_path(chunk));
    }
}

/// Replaces the state file of the device in `folder`, all or nothing.
fn replace_state(folder: &Path, identity: Identity, state: &[u8]) -> Result<(), SsdError> {
    let (path, spare) = (folder.join(STATE_FILE), folder.join(SPARE_STATE_FILE));
    let replace = || -> io::Result<()> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).mode(FILE_MODE).open(&spare)?;
        write_state(&file, identity, state)?;
        file.sync_all()?;
        if !exchange(&spare, &path)? {
            // The space for the next state. Without it there is none ahead, and the state is saved all the
            // same.
            let next = options.open(&spare).and_then(|next| write_state(&next, identity, state));
            if let Err(error) = next {
                tracing::debug!(%error, "reserve space for the next state");
            }
        }
        // The rename itself must survive a power cut too.
        File::open(folder)?.sync_all()
    };
    without_signal(replace).map_err(|source| SsdError::File { path, what: "replace", source })
}

/// The saved state of a device in a folder that keeps none of its data.
pub(super) struct StateFile {
    folder: PathBuf,
    identity: Identity,
}

impl StateFile {
    /// Errors: [`SsdError::State`] when there is a state that is damaged, [`SsdError::File`].
    pub(super) fn open(folder: &Path) -> Result<Self, SsdError> {
        let identity = read_state(folder)?.and_then(|state| state.identity).unwrap_or_else(draw);
        Ok(Self { folder: folder.to_path_buf(), identity })
    }

    pub(super) fn path(&self) -> PathBuf {
        self.folder.join(STATE_FILE)
    }

    pub(super) fn load(&self) -> Result<Option<Vec<u8>>, SsdError> {
        Ok(read_state(&self.folder)?.map(|state| state.text))
    }

    /// A file system that nothing can be written to keeps what it has.
    pub(super) fn save(&self, state: &[u8]) -> Result<(), SsdError> {
        match replace_state(&self.folder, self.identity, state) {
            Err(SsdError::File { source, .. }) if source.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                Ok(())
            }
            done => done,
        }
    }
}

/// Writes a state over what a file has, with space for a longer one; without that where there is none.
fn write_state(file: &File, identity: Identity, state: &[u8]) -> io::Result<()> {
    let before = file.metadata()?.len() as usize;
    // Twice what it is: a state that has grown beyond the least grows on.
    let ahead = STATE_BYTES_MIN.max(2 * state.len()).next_multiple_of(STATE_PAGE_BYTES);
    let write = |space: usize| file.write_all_at(&seal(identity, &filled_up(identity, state, space)), 0);
    match write(before.max(ahead)) {
        Err(e) if before < ahead && is_full(&e) => {
            file.set_len(before as u64)?;
            write(before)
        }
        done => done,
    }
}

/// Whether an error is that of a file system, or a quota, without space.
fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

/// Text of a state, with what fills it up to whole pages, and to `space` bytes, when it is sealed.
fn filled_up(identity: Identity, state: &[u8], space: usize) -> Vec<u8> {
    let bytes = seal(identity, state).len();
    let whole = bytes.next_multiple_of(STATE_PAGE_BYTES).max(space);
    let mut text = state.to_vec();
    text.resize(state.len() + whole - bytes, b'\n');
    text
}

/// Makes `new` what `path` is. What that was before is `new` afterwards, where the file system can do that:
/// the space for the next one. Returns whether it is.
fn exchange(new: &Path, path: &Path) -> io::Result<bool> {
    match renameat_with(CWD, new, CWD, path, RenameFlags::EXCHANGE) {
        Err(Errno::NOENT | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            fs::rename(new, path).map(|()| false)
        }
        done => Ok(done.map(|()| true)?),
    }
}

/// The state file of the device in `folder`, if it has one.
fn read_state(folder: &Path) -> Result<Option<Sealed>, SsdError> {
    let path = folder.join(STATE_FILE);
    match fs::read(&path) {
        Ok(bytes) => unseal(bytes).map(Some).map_err(|reason| SsdError::State { path, reason }),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(SsdError::File { path, what: "read", source }),
    }
}

/// Whose a media file is: by its label and by the state file, as far as there is either. Errors:
/// [`SsdError::State`] when they do not belong together, or when one of them has lost what it had.
fn identify(
    folder: &Path,
    label: Option<(Identity, bool)>,
    state: Option<&Sealed>,
    has_data: bool,
) -> Result<Identity, SsdError> {
    let refuse = |file, reason| Err(SsdError::State { path: folder.join(file), reason });
    let state_is_missing = || {
        refuse(
            STATE_FILE,
            format!("the file is missing, and {MEDIA_FILE} beside it holds the data of a device"),
        )
    };
    match (label, state.map(|state| state.identity)) {
        (Some((_, true)), None) => state_is_missing(),
        (Some((identity, _)), Some(Some(known))) if identity != known => {
            let reason =
                format!("it is the data of another device than the one {STATE_FILE} beside it is of");
            refuse(MEDIA_FILE, reason)
        }
        // A state file from before files had an identity has none; the media's is the one.
        (Some((identity, _)), _) => Ok(identity),
        // Whoever saved that state had synced the label before, whether blocks were written or not.
        (None, Some(Some(_))) if !has_data => {
            let reason = format!(
                "the file holds nothing, no data and no label that says which device it is of, and \
                 {STATE_FILE} beside it is of a device that had one: it was emptied or replaced; nothing was \
                 changed"
            );
            refuse(MEDIA_FILE, reason)
        }
        // The label alone is damaged.
        (None, Some(Some(known))) => Ok(known),
        // A new device, unless there is data that nobody knows the owner of.
        (None, None) if has_data => state_is_missing(),
        (None, Some(None) | None) => Ok(draw()),
    }
}

/// Which of the chunks hold data, asked from the file system.
fn find_data(file: &File, bytes: u64) -> io::Result<Vec<bool>> {
    let mut chunks = vec![false; (bytes / CHUNK_BYTES) as usize];
    let mut at = 0;
    while at < bytes {
        let start = match seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            Err(e) => return Err(e.into()),
        };
        let end = seek(file, SeekFrom::Hole(start))?;
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
fn allocate(file: &File, flags: FallocateFlags, offset: u64) -> rustix::io::Result<()> {
    rustix::io::retry_on_intr(|| fallocate(file, flags, offset, CHUNK_BYTES))
}

fn reserve(file: &File, chunk: u64) -> io::Result<()> {
    let offset = chunk * CHUNK_BYTES;
    // Never a longer file: one that was cut would read as zeroes then.
    match allocate(file, FallocateFlags::KEEP_SIZE, offset) {
        Err(Errno::OPNOTSUPP) => {
            // No way to reserve: writing what is there already makes the file system find the space.
            let mut page = [0; 4096];
            (offset..offset + CHUNK_BYTES).step_by(page.len()).try_for_each(|at| {
                file.read_exact_at(&mut page, at)?;
                file.write_all_at(&page, at)
            })
        }
        other => Ok(other?),
    }
}
