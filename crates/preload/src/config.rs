//! Which folders are wrapped, on which devices: a file of words, as `nvmed_wrapper.so` was to have it.
//!
//! ```text
//! wrap_dir = ./dbstore
//! storage_dev = /dev/nvme0n1
//! ```
//!
//! A `#` begins a comment. Each `wrap_dir` begins a folder; what follows is about it.

use std::path::{Path, PathBuf};

use unvme::{Nsid, Size};
use unvme_fs::Policy;

/// A wrapped folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Folder {
    pub folder: PathBuf,
    pub device: String,
    pub nsid: Nsid,
    /// A file system is made first, by the first process.
    pub format: bool,
    pub cache_bytes: Option<usize>,
    pub policy: Policy,
    /// Bytes that are read ahead; 0 for none.
    pub read_ahead: Option<u64>,
    /// Space is reserved in steps of so many bytes when a file grows.
    pub prealloc: u64,
    /// A server has it from the beginning.
    pub is_shared: bool,
    /// Where the server listens, if somebody has started one.
    pub socket: Option<PathBuf>,
    /// Where one listens that is started when it is needed: as the first process has found it.
    pub place: Option<PathBuf>,
}

/// Everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Config {
    pub folders: Vec<Folder>,
    /// Where it is written what was done.
    pub stats: Option<PathBuf>,
}

/// The first line of a text in which a `#` is one like any other letter: one that a program has written.
const EXACT: &str = "#!exact";
/// What stands before the name of the file that a text was made of.
const FROM: &str = "#!from ";

const WORDS: &str = "wrap_dir, storage_dev, storage_engine, filesystem, ffs_format, ffs_prealloc, ffs_readahead, \
nsid, cache, policy, shared, socket, stats";

/// Names of libraries that mean ours.
const FILE_SYSTEMS: &[&str] = &["lib_ffs.so", "ffs", "forestfs", "libunvme_fs.so", "unvme"];
const ENGINES: &[&str] = &["lib_nvmed.so", "lib_spdk.so", "lib_unvme.so", "nvmed", "spdk", "unvme"];

/// Wrapped folders, at most.
const FOLDERS_MAX: usize = 64;

fn switch(value: &str) -> Result<bool, String> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err(format!("{value} is neither TRUE nor FALSE")),
    }
}

fn size(value: &str) -> Result<u64, String> {
    if value.eq_ignore_ascii_case("none") {
        return Ok(0);
    }
    value.parse::<Size>().map(|size| size.0).map_err(|e| e.to_string())
}

fn one_of(value: &str, known: &[&str]) -> Result<(), String> {
    let name = Path::new(value).file_name().map_or(value.into(), |name| name.to_string_lossy());
    match known.contains(&&*name) {
        true => Ok(()),
        false => Err(format!("{value} is not known here; known are {}", known.join(", "))),
    }
}

/// A device's name as the SDK has it: a path is one of the kernel's devices.
fn device(value: &str) -> String {
    if value.starts_with('/') { format!("kernel:{value}") } else { value.to_owned() }
}

fn set(folder: &mut Folder, word: &str, value: &str) -> Result<bool, String> {
    match word {
        "storage_dev" => folder.device = device(value),
        "storage_engine" => one_of(value, ENGINES)?,
        "filesystem" => one_of(value, FILE_SYSTEMS)?,
        "ffs_format" => folder.format = switch(value)?,
        "ffs_prealloc" => folder.prealloc = size(value)?,
        "ffs_readahead" => {
            let bytes = size(value)?;
            if bytes != 0 && !(bytes.is_multiple_of(4096) && (4096..=4 << 20).contains(&bytes)) {
                return Err(format!("{value}: 4K to 4M in steps of 4K, or none"));
            }
            folder.read_ahead = Some(bytes);
        }
        "nsid" => {
            let number: u32 = value.parse().map_err(|_| format!("{value} is no namespace identifier"))?;
            folder.nsid = Nsid(number);
        }
        "cache" => folder.cache_bytes = Some(size(value)? as usize),
        "policy" => {
            folder.policy = Policy::from_name(value).ok_or_else(|| {
                format!("{value} is not known here; known are {}", Policy::NAMES.join(", "))
            })?;
        }
        "shared" => folder.is_shared = switch(value)?,
        "socket" => folder.socket = Some(value.into()),
        "place" => folder.place = Some(value.into()),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Understands a configuration.
///
/// # Errors
/// The line, the word, and what is known.
pub(crate) fn parse(text: &str, name: &str) -> Result<Config, String> {
    let mut config = Config::default();
    // What comes before the first folder is about the first folder.
    let empty = Folder::empty();
    let is_exact = text.lines().next() == Some(EXACT);
    let mut first = empty.clone();
    // Words of the folder that it is about.
    let mut said: Vec<&str> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let wrong = |what: String| format!("{name}: line {}: {what}", at + 1);
        let line = match is_exact {
            true => line.strip_prefix("#!").map_or(line, |_| ""),
            false => line.split('#').next().unwrap_or_default().trim(),
        };
        if line.is_empty() {
            continue;
        }
        let Some((word, value)) = line.split_once('=') else {
            return Err(wrong(format!("expected WORD = VALUE, there is: {line}")));
        };
        let word = word.trim();
        let value = match is_exact {
            true => value.strip_prefix(' ').unwrap_or(value),
            false => value.trim().trim_matches('"'),
        };
        if value.is_empty() {
            return Err(wrong(format!("{word} has no value")));
        }
        match word {
            "wrap_dir" if config.folders.len() == FOLDERS_MAX => {
                return Err(wrong(format!("more than {FOLDERS_MAX} folders")));
            }
            "wrap_dir" => {
                let start = if config.folders.is_empty() { first.clone() } else { empty.clone() };
                if !config.folders.is_empty() {
                    said.clear();
                }
                config.folders.push(Folder { folder: value.into(), ..start });
            }
            "stats" => config.stats = Some(value.into()),
            _ if said.contains(&word) => {
                return Err(wrong(format!(
                    "{word} was said before; each wrap_dir begins a folder of its own"
                )));
            }
            _ => {
                said.push(word);
                let folder = config.folders.last_mut().unwrap_or(&mut first);
                if !set(folder, word, value).map_err(|what| wrong(format!("{word}: {what}")))? {
                    return Err(wrong(format!("{word} is not known; known are {WORDS}")));
                }
            }
        }
    }
    if config.folders.is_empty() {
        return Err(format!("{name}: no wrap_dir: which folder is to be wrapped?"));
    }
    for folder in &config.folders {
        if folder.device.is_empty() {
            return Err(format!("{name}: no storage_dev for {}", folder.folder.display()));
        }
    }
    Ok(config)
}

impl Folder {
    /// One of which nothing was said.
    fn empty() -> Self {
        Self {
            folder: PathBuf::new(),
            device: String::new(),
            nsid: Nsid(1),
            format: false,
            cache_bytes: None,
            policy: Policy::S3Fifo,
            read_ahead: None,
            prealloc: 0,
            is_shared: false,
            socket: None,
            place: None,
        }
    }
}

impl Config {
    /// The same as text, for processes that come later and may be elsewhere. `None` when a name has a line
    /// break.
    pub(crate) fn to_text(&self, from: Option<&Path>) -> Option<String> {
        let mut text = format!("{EXACT}\n");
        if let Some(from) = from {
            text.push_str(&format!("{FROM}{}\n", from.display()));
        }
        let mut add = |word: &str, value: &str| {
            text.push_str(&format!("{word} = {value}\n"));
            !value.contains('\n')
        };
        let mut is_sayable = true;
        if let Some(stats) = &self.stats {
            is_sayable &= add("stats", stats.to_str()?);
        }
        for folder in &self.folders {
            is_sayable &= add("wrap_dir", folder.folder.to_str()?);
            is_sayable &= add("storage_dev", &folder.device);
            add("nsid", &folder.nsid.0.to_string());
            add("ffs_format", if folder.format { "TRUE" } else { "FALSE" });
            add("shared", if folder.is_shared { "TRUE" } else { "FALSE" });
            add("ffs_prealloc", &folder.prealloc.to_string());
            add("policy", folder.policy.name());
            if let Some(bytes) = folder.cache_bytes {
                add("cache", &bytes.to_string());
            }
            if let Some(bytes) = folder.read_ahead {
                add("ffs_readahead", &bytes.to_string());
            }
            for (word, path) in [("socket", &folder.socket), ("place", &folder.place)] {
                if let Some(path) = path {
                    is_sayable &= add(word, path.to_str()?);
                }
            }
        }
        is_sayable.then_some(text)
    }
}

/// Which file a text was made of.
pub(crate) fn made_of(text: &str) -> Option<&Path> {
    text.strip_prefix(EXACT)?.lines().nth(1)?.strip_prefix(FROM).map(Path::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slides_file_is_understood() {
        let text = "wrap_dir = ./dbstore\n\nfilesystem = lib_ffs.so\nffs_prealloc = 128K\nffs_readahead = none\n\
                    ffs_format = FALSE\n\nstorage_engine = lib_nvmed.so\nstorage_dev = /dev/nvme0n1\n";
        let config = parse(text, "default.conf").expect("it is right");
        let folder = &config.folders[0];
        assert_eq!(folder.folder, PathBuf::from("./dbstore"));
        assert_eq!(folder.device, "kernel:/dev/nvme0n1");
        assert_eq!((folder.prealloc, folder.read_ahead, folder.format), (128 << 10, Some(0), false));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, said) in [
            (
                "wrap_dir = a\nstorage_dev = mem:block:1G\nwrapdir = b",
                "c: line 3: wrapdir is not known; known are",
            ),
            ("wrap_dir = a", "no storage_dev for a"),
            ("storage_dev = mem:block:1G", "no wrap_dir"),
            ("wrap_dir a", "line 1: expected WORD = VALUE"),
            ("wrap_dir =", "line 1: wrap_dir has no value"),
            ("wrap_dir = a\nffs_format = maybe", "line 2: ffs_format: maybe is neither TRUE nor FALSE"),
            ("wrap_dir = a\nstorage_engine = lib_x.so", "line 2: storage_engine: lib_x.so is not known"),
            ("wrap_dir = a\nffs_readahead = 5", "line 2: ffs_readahead: 5: 4K to 4M"),
            ("wrap_dir = a\npolicy = mru", "known are s3fifo, lru, none"),
            (
                "wrap_dir = a\nstorage_dev = mem:block:1G\nstorage_dev = mem:block:2G",
                "line 3: storage_dev was said before",
            ),
            ("cache = 1M\nwrap_dir = a\ncache = 2M", "line 3: cache was said before"),
        ] {
            let e = parse(text, "c").expect_err(text);
            assert!(e.contains(said), "{e}");
        }
    }

    #[test]
    fn what_is_written_is_understood_as_it_was() {
        let text = "stats = s\nwrap_dir = a\nstorage_dev = /dev/nvme0n1\nnsid = 2\nffs_format = TRUE\nshared = 1\n\
                    policy = lru\ncache = 64M\nffs_readahead = 8K\nffs_prealloc = 1M\nwrap_dir = b\n\
                    storage_dev = mem:block:1G\nsocket = /run/s\nplace = /run/p";
        let mut config = parse(text, "c").expect("it is right");
        config.folders[0].folder = "/odd #name/ \"quoted\" ".into();
        let written = config.to_text(Some(Path::new("/etc/c.conf"))).expect("there is no line break");
        assert_eq!(parse(&written, "c"), Ok(config.clone()));
        assert_eq!(made_of(&written), Some(Path::new("/etc/c.conf")));
        assert_eq!(made_of(&config.to_text(None).expect("as above")), None);
        config.stats = Some("a\nb".into());
        assert_eq!(config.to_text(None), None);
    }

    #[test]
    fn each_folder_has_words_of_its_own() {
        let text = "cache = 64M # before\nwrap_dir = a\nstorage_dev = 0000:02:00.0\nwrap_dir = b\nstorage_dev=mem:block:1G";
        let config = parse(text, "c").expect("it is right");
        assert_eq!(config.folders[0].cache_bytes, Some(64 << 20));
        assert_eq!(config.folders[1].cache_bytes, None);
        assert_eq!(config.folders[1].device, "mem:block:1G");
    }
}
