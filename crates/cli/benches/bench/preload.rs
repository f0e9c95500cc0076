//! Programs that know nothing of us, by the preload library: calls on files, and what the library costs where
//! nothing is ours. Databases are in `preload_db`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use crate::cores;
use crate::fs_load::Kernel;
use crate::fs_programs::Folder;
use crate::pairs::{Effort, Pairs, interleave};
use crate::peer::Peer;
use crate::row::{Better, Row};

pub(crate) const HIT: &str = "preload.pread.hit";
pub(crate) const PASS: &str = "preload.pass";
pub(crate) const FSYNC: &str = "preload.fsync";
pub(crate) const SHARED_HIT: &str = "preload.shared.hit";
pub(crate) const SHARED_MISS: &str = "preload.shared.miss";

const DEVICE: &str = "0000:02:00.0";

/// A page cache that has room for a hundredth of what is read, and one that has room for all of it.
const SMALL_CACHE: &str = "4M";
const LARGE_CACHE: &str = "1G";

/// Why the rows cannot be measured here; `None` when they can.
pub(crate) fn obstacle(id: &str) -> Option<String> {
    if !id.starts_with("preload.") {
        return None;
    }
    match library() {
        Ok(library) if library.exists() => {}
        Ok(library) => return Some(format!("{}: cargo build --release -p unvme-preload", library.display())),
        Err(error) => return Some(format!("{error:#}")),
    }
    let tried = match id {
        SHARED_HIT | SHARED_MISS => return None,
        HIT | PASS => Kernel::tmpfs(1 << 20),
        _ => Kernel::ext4(16 << 20),
    };
    tried.err().map(|error| format!("nothing to compare with: {error:#}"))
}

/// Where the command looks for the library.
fn library() -> Result<PathBuf> {
    let beside = Path::new(env!("CARGO_BIN_EXE_unvme")).parent().context("find the command's folder")?;
    let folder = std::env::var_os("UNVME_PRELOAD").map_or_else(|| beside.to_path_buf(), PathBuf::from);
    Ok(folder.join("libunvme_preload.so"))
}

/// A folder that is ours, on a slot in memory.
pub(crate) struct Place {
    folder: Folder,
    at: PathBuf,
}

impl Place {
    /// `name` tells places that are there at once from each other.
    pub(crate) fn new(name: &str, bytes: u64) -> Result<Self> {
        let folder = Folder::new(&format!("preload-{name}"))?;
        // What a device's capacity is a multiple of.
        let bytes = bytes.next_multiple_of(2 << 20);
        folder.run(&["device", "create", DEVICE, "--size", &bytes.to_string()])?;
        folder.run(&["fs", "mkfs", DEVICE])?;
        // Memory that is there, as that of what it is compared with is. Where there is not so much, pages
        // come when they are needed.
        let media = folder.path().join("home/slots").join(DEVICE).join("media.img");
        let file = File::options().write(true).open(&media).context("open the slot's media")?;
        match fallocate(&file, FallocateFlags::KEEP_SIZE, 0, bytes) {
            Err(Errno::NOSPC | Errno::OPNOTSUPP) => {}
            other => other.context("have the slot's media in memory")?,
        }
        let at = folder.path().join("files");
        std::fs::create_dir_all(&at)?;
        Ok(Self { folder, at })
    }

    /// Its path, as programs on it see it.
    pub(crate) fn at(&self) -> &Path {
        &self.at
    }

    /// What stands before a program that is run on it, for env(1): with so large a page cache, and with more
    /// flags of `unvme run`.
    fn words(&self, cache: &str, flags: &[&str]) -> Vec<String> {
        let home = self.folder.path().join("home");
        let dir = format!("{}={DEVICE}", self.at.display());
        let mut words =
            vec![format!("UNVME_HOME={}", home.display()), env!("CARGO_BIN_EXE_unvme").to_owned()];
        words.extend(["run", "--cache", cache, "--dir", &dir].map(str::to_owned));
        words.extend(flags.iter().map(|&flag| flag.to_owned()));
        words.push("--".to_owned());
        words
    }

    /// A program that is run on it.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("env");
        command.args(self.words(LARGE_CACHE, &[])).arg(program);
        command
    }
}

/// The program of these rows, on a file of its own.
fn peer(name: &'static str, core: usize, before: &[String], file: &Path, bytes: u64) -> Result<Peer> {
    let program = Peer::compile("preload", &Vec::new())?;
    let own = [program.display().to_string(), file.display().to_string(), bytes.to_string()];
    Peer::start(name, Path::new("env"), core, &[before, &own[..]].concat())
}

/// Both answer the same command, in turn.
fn asked(effort: &Effort, first: &mut Peer, second: &mut Peer, command: &str) -> Result<Pairs> {
    interleave(effort, || first.ask(command), || second.ask(command))
}

fn pread(effort: &Effort, size: u32) -> String {
    format!("pread {} {size}", effort.side.as_millis())
}

/// Bytes of a file that fits into the cache.
fn cached_bytes(effort: &Effort) -> u64 {
    effort.media_bytes / 4
}

/// Reads of pages that are in the page cache, ours against the kernel's of a tmpfs.
pub(crate) fn hit(effort: &Effort) -> Result<Row> {
    cores::on_first(|core| {
        let bytes = cached_bytes(effort);
        let place = Place::new("hit", bytes + (128 << 20))?;
        let tmpfs = Kernel::tmpfs(bytes + (1 << 20))?;
        let mut ours =
            peer("preload-ours", core, &place.words(LARGE_CACHE, &[]), &place.at.join("file"), bytes)?;
        let mut theirs = peer("preload-theirs", core, &[], &tmpfs.path().join("file"), bytes)?;
        let pairs = asked(effort, &mut ours, &mut theirs, &pread(effort, 4096))?;
        let note = format!("{}; 4 KiB of {} MiB, one thread on core {core}", pairs.rates(), bytes >> 20);
        Ok(Row { id: HIT, value: pairs.ratio, unit: "x", target: 2.0, better: Better::Higher, note })
    })
}

/// Reads of a file that is the kernel's, without the library against with it: the shortest there are.
pub(crate) fn pass(effort: &Effort) -> Result<Row> {
    cores::on_first(|core| {
        let bytes = 8 << 20;
        let place = Place::new("pass", 128 << 20)?;
        let tmpfs = Kernel::tmpfs(2 * bytes + (1 << 20))?;
        let mut without = peer("preload-without", core, &[], &tmpfs.path().join("without"), bytes)?;
        let words = place.words(LARGE_CACHE, &[]);
        let mut with = peer("preload-with", core, &words, &tmpfs.path().join("with"), bytes)?;
        let pairs = asked(effort, &mut without, &mut with, &pread(effort, 1))?;
        let ns = |rate: f64| 1e9 / rate;
        let note = format!(
            "{:.1} / {:.1} ns, median of pairs A B A B; 1 byte of {} MiB on a tmpfs, one thread on core {core}",
            ns(pairs.second),
            ns(pairs.first),
            bytes >> 20
        );
        Ok(Row { id: PASS, value: pairs.ratio, unit: "x", target: 1.05, better: Better::Lower, note })
    })
}

/// A page appended to a log and synced, against ext4.
pub(crate) fn fsync(effort: &Effort) -> Result<Row> {
    cores::on_first(|core| {
        let place = Place::new("fsync", 256 << 20)?;
        let ext4 = Kernel::ext4(256 << 20)?;
        let mut ours = peer("preload-ours", core, &place.words(LARGE_CACHE, &[]), &place.at.join("log"), 0)?;
        let mut theirs = peer("preload-theirs", core, &[], &ext4.path().join("log"), 0)?;
        let command = format!("append {}", effort.side.as_millis());
        let pairs = asked(effort, &mut ours, &mut theirs, &command)?;
        let note = format!(
            "{}; 4 KiB and fdatasync, ext4 on a loop device over tmpfs, one thread on core {core}",
            pairs.rates()
        );
        Ok(Row { id: FSYNC, value: pairs.ratio, unit: "x", target: 3.0, better: Better::Higher, note })
    })
}

/// Shared memory on transparent huge pages where it is asked for, as docs/programs.md says, for as long as
/// this lives.
struct SharedHugePages(Option<String>);

impl SharedHugePages {
    const KNOB: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

    /// Where they can be had. A run that measures nothing leaves the machine as it is.
    fn new(effort: &Effort) -> Self {
        let before = Self::word().filter(|word| word == "never" && !effort.smoke);
        Self(before.filter(|_| std::fs::write(Self::KNOB, "advise").is_ok()))
    }

    /// What holds.
    fn word() -> Option<String> {
        let all = std::fs::read_to_string(Self::KNOB).ok()?;
        Some(all.split_once('[')?.1.split_once(']')?.0.to_owned())
    }

    fn are_there() -> bool {
        Self::word().is_some_and(|word| word != "never" && word != "deny")
    }
}

impl Drop for SharedHugePages {
    fn drop(&mut self) {
        if let Some(word) = &self.0 {
            let _ = std::fs::write(Self::KNOB, word);
        }
    }
}

/// By way of a server that has the file system, against having it in the process. The server may use what
/// cores there are.
fn shared(effort: &Effort, id: &'static str, target: f64, cache: &str) -> Result<Row> {
    let _huge = SharedHugePages::new(effort);
    let core = cores::first()?;
    let bytes = cached_bytes(effort);
    // The server of an earlier row may still be there: it is another place.
    let room = bytes + (128 << 20);
    let places = [Place::new(&format!("served-{cache}"), room)?, Place::new("alone", room)?];
    let anywhere = if cores::are_two()? {
        let [one, other] = cores::pair()?;
        ["taskset", "-c", &format!("{one},{other}"), "env"].map(str::to_owned).to_vec()
    } else {
        Vec::new()
    };
    let start = |name, place: &Place, flags: &[&str]| {
        let before = [&anywhere[..], &place.words(cache, flags)[..]].concat();
        peer(name, core, &before, &place.at.join("file"), bytes)
    };
    let mut served = start("preload-served", &places[0], &["--shared"])?;
    let mut alone = start("preload-alone", &places[1], &[])?;
    let pairs = asked(effort, &mut served, &mut alone, &pread(effort, 4096))?;
    let pages = if SharedHugePages::are_there() { "huge pages" } else { "pages of 4 KiB" };
    let note = format!(
        "{}; 4 KiB of {} MiB, a page cache of {cache}, the server's on {pages}, one thread",
        pairs.rates(),
        bytes >> 20
    );
    Ok(Row { id, value: pairs.ratio, unit: "x", target, better: Better::Higher, note })
}

pub(crate) fn shared_hit(effort: &Effort) -> Result<Row> {
    shared(effort, SHARED_HIT, 0.9, LARGE_CACHE)
}

pub(crate) fn shared_miss(effort: &Effort) -> Result<Row> {
    shared(effort, SHARED_MISS, 0.5, SMALL_CACHE)
}
