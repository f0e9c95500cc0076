//! RocksDB's own benchmark on our file system and straight on pairs, beside RocksDB on ext4.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::fs_load::Kernel;
use crate::fs_programs::Folder;
use crate::pairs::{Effort, median};
use crate::row::{Better, Row};

pub(crate) const FILLSEQ: &str = "rocksdb.fillseq";
pub(crate) const FILLRANDOM: &str = "rocksdb.fillrandom";
pub(crate) const OVERWRITE: &str = "rocksdb.overwrite";
pub(crate) const FILLSYNC: &str = "rocksdb.fillsync";
pub(crate) const HIT: &str = "rocksdb.readrandom.hit";
pub(crate) const BUFFERED: &str = "rocksdb.readrandom.buffered";
pub(crate) const DIRECT: &str = "rocksdb.readrandom.direct";
pub(crate) const WHILE_WRITING: &str = "rocksdb.readwhilewriting";
pub(crate) const SEEK: &str = "rocksdb.seekrandom";
pub(crate) const SEQUENTIAL: &str = "rocksdb.readseq";
pub(crate) const MULTI: &str = "rocksdb.multireadrandom.async";
pub(crate) const FDP: &str = "rocksdb.fdp.waf";
pub(crate) const KV_FILL: &str = "kv_rocksdb.fillrandom";
pub(crate) const KV_READ: &str = "kv_rocksdb.readrandom";
pub(crate) const KV_OVERWRITE: &str = "kv_rocksdb.overwrite";

/// What holds for all of them; 16-byte keys are `db_bench`'s own.
const COMMON: [&str; 6] = [
    "--value_size=400",
    "--compression_type=none",
    "--write_buffer_size=16777216",
    "--max_background_jobs=2",
    "--seed=7",
    "--bloom_bits=10",
];

/// One percent of the data, and more than all of it.
const SMALL_CACHE: &str = "--cache_size=1677722";
const LARGE_CACHE: &str = "--cache_size=2147483648";

const BLOCK_DEVICE: &str = "0000:02:00.0";
const KV_DEVICE: &str = "0000:03:00.0";

/// A row of the table: which benchmark, and how it is called.
struct Case {
    id: &'static str,
    /// What is run; the rate is that of the last one. What is read by way of the page cache is read once
    /// before, as each of them is a process, and only the kernel's cache outlives it.
    benchmarks: &'static str,
    flags: &'static [&'static str],
}

const EXISTING: &str = "--use_existing_db=1";
const DIRECT_READS: &str = "--use_direct_reads=1";

const CASES: [Case; 11] = [
    Case { id: FILLSEQ, benchmarks: "fillseq", flags: &[] },
    Case { id: FILLRANDOM, benchmarks: "fillrandom", flags: &[] },
    Case { id: OVERWRITE, benchmarks: "overwrite", flags: &[EXISTING] },
    Case { id: FILLSYNC, benchmarks: "fillsync", flags: &[] },
    Case { id: HIT, benchmarks: "readseq,readrandom,readrandom", flags: &[EXISTING, LARGE_CACHE] },
    Case { id: BUFFERED, benchmarks: "readseq,readrandom", flags: &[EXISTING, SMALL_CACHE] },
    Case { id: DIRECT, benchmarks: "readrandom", flags: &[EXISTING, SMALL_CACHE, DIRECT_READS] },
    Case {
        id: WHILE_WRITING,
        benchmarks: "readseq,readwhilewriting",
        flags: &[EXISTING, SMALL_CACHE, "--benchmark_write_rate_limit=10485760"],
    },
    Case { id: SEEK, benchmarks: "readseq,seekrandom", flags: &[EXISTING, SMALL_CACHE, "--seek_nexts=10"] },
    Case { id: SEQUENTIAL, benchmarks: "readseq,readseq", flags: &[EXISTING, SMALL_CACHE] },
    Case {
        id: MULTI,
        benchmarks: "multireadrandom",
        flags: &[
            EXISTING,
            SMALL_CACHE,
            DIRECT_READS,
            "--multiread_batched=1",
            "--batch_size=32",
            "--async_io=1",
        ],
    },
];

/// Why the rows cannot be measured here; `None` when they can.
pub(crate) fn obstacle(id: &str) -> Option<String> {
    if !id.starts_with("rocksdb.") && !id.starts_with("kv_rocksdb.") {
        return None;
    }
    static FOUND: OnceLock<Option<String>> = OnceLock::new();
    FOUND.get_or_init(missing).clone()
}

fn missing() -> Option<String> {
    if Command::new("db_bench").arg("--version").stdout(Stdio::null()).status().is_err() {
        return Some("there is no db_bench".to_owned());
    }
    let library = libraries().map(|folder| folder.join("libkv_rocksdb.so"));
    match library {
        Ok(library) if library.exists() => None,
        Ok(library) => Some(format!("{}: build it with `make rocksdb`", library.display())),
        Err(error) => Some(format!("{error:#}")),
    }
    .or_else(|| Kernel::ext4(16 << 20).err().map(|error| format!("no ext4 to compare with: {error:#}")))
}

fn libraries() -> Result<PathBuf> {
    Ok(Path::new(env!("CARGO_TARGET_TMPDIR")).parent().context("find the target folder")?.join("rocksdb"))
}

/// Where a database is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    FileSystem,
    Pairs,
    Kernel,
}

/// Databases of all kinds, in memory.
struct Databases {
    folder: Folder,
    kernel: Kernel,
    keys: u64,
}

impl Databases {
    fn new(effort: &Effort) -> Result<Self> {
        let (keys, bytes) = if effort.smoke { (3000, 256 << 20) } else { (400_000, 2 << 30) };
        let folder = Folder::new("rocksdb")?;
        folder.run(&["device", "create", BLOCK_DEVICE, "--size", &bytes.to_string()])?;
        folder.run(&["fs", "mkfs", BLOCK_DEVICE])?;
        folder.run(&["device", "create", KV_DEVICE, "--type", "kv", "--size", &(bytes / 2).to_string()])?;
        Ok(Self { folder, kernel: Kernel::ext4(bytes)?, keys })
    }

    /// Operations per second of the last of some benchmarks.
    fn rate(&self, side: Side, benchmarks: &str, flags: &[&str]) -> Result<f64> {
        // What is synced takes its time.
        let keys = if benchmarks == "fillsync" { self.keys / 40 } else { self.keys };
        let mut words = vec!["rocksdb"];
        let device = format!("{BLOCK_DEVICE}?cache=2G");
        match side {
            Side::FileSystem => words.extend(["-d", &device, "--"]),
            Side::Pairs => words.extend(["--kv", "-d", KV_DEVICE, "--"]),
            Side::Kernel => {}
        }
        let mut command = match side {
            Side::Kernel => Command::new("db_bench"),
            _ => self.folder.unvme(&[&words[..], &["db_bench"]].concat())?,
        };
        command.env("UNVME_ROCKSDB", libraries()?);
        // Where the kernel's side has no cache it takes its time.
        if flags.contains(&DIRECT_READS) {
            command.arg(format!("--reads={}", keys / 4));
        }
        let place = if side == Side::Kernel { self.kernel.path().join("base") } else { "/base".into() };
        command
            .arg(format!("--db={}", place.display()))
            .arg(format!("--benchmarks={benchmarks}"))
            .arg(format!("--num={keys}"))
            .args(COMMON)
            .args(flags)
            .stdin(Stdio::null());
        let output = command.output().context("run db_bench")?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "{command:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
        last_rate(&text).with_context(|| format!("{command:?} says no rate: {text}"))
    }

    /// Rates of both sides in turn. The first pair is not counted.
    fn pairs(&self, effort: &Effort, ours: Side, case: &Case, count: usize) -> Result<(f64, String)> {
        let mut rates = Vec::new();
        for turn in 0..=count {
            let pair = (
                self.rate(ours, case.benchmarks, case.flags)?,
                self.rate(Side::Kernel, case.benchmarks, case.flags)?,
            );
            // What is too short to mean anything needs no warming up.
            if turn > 0 || effort.smoke {
                rates.push(pair);
            }
            if effort.smoke {
                break;
            }
        }
        let ratio = median(rates.iter().map(|(ours, theirs)| ours / theirs));
        let note = format!(
            "{:.1} / {:.1} k/s, median of {} pairs",
            median(rates.iter().map(|pair| pair.0)) / 1e3,
            median(rates.iter().map(|pair| pair.1)) / 1e3,
            rates.len()
        );
        Ok((ratio, note))
    }
}

/// The rate on the last line that has one: `fillseq : 5.1 micros/op 195000 ops/sec ...`.
fn last_rate(text: &str) -> Result<f64> {
    let line = text.lines().rev().find(|line| line.contains(" micros/op ")).context("no line of results")?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|&word| word == "ops/sec").context("no ops/sec")?;
    let rate = words.get(at.wrapping_sub(1)).context("no number before ops/sec")?;
    rate.parse().map_err(|_| anyhow!("{rate}: no number"))
}

type Measured = BTreeMap<&'static str, (f64, String)>;

/// All rows of the file system, in an order in which each finds the data that it needs.
fn measure(effort: &Effort) -> Result<Measured> {
    let databases = Databases::new(effort)?;
    let mut all = Measured::new();
    let mut is_filled = false;
    for case in &CASES {
        if case.flags.contains(&EXISTING) && case.id != OVERWRITE && !is_filled {
            for side in [Side::FileSystem, Side::Kernel] {
                databases.rate(side, "filluniquerandom,compact", &[])?;
            }
            is_filled = true;
        }
        let count = if case.flags.contains(&EXISTING) { 5 } else { 3 };
        all.insert(case.id, databases.pairs(effort, Side::FileSystem, case, count)?);
    }
    // Nothing is read before: there is no page cache.
    let read = Case { id: KV_READ, benchmarks: "readrandom", flags: &[EXISTING, SMALL_CACHE] };
    for (id, case) in [(KV_FILL, FILLRANDOM), (KV_OVERWRITE, OVERWRITE), (KV_READ, KV_READ)] {
        let case = CASES.iter().chain([&read]).find(|known| known.id == case).context("a case")?;
        all.insert(id, databases.pairs(effort, Side::Pairs, case, 3)?);
    }
    Ok(all)
}

/// They are measured together, once.
fn row(id: &'static str, target: f64, effort: &Effort) -> Result<Row> {
    static ALL: OnceLock<std::result::Result<Measured, String>> = OnceLock::new();
    let all = ALL.get_or_init(|| measure(effort).map_err(|error| format!("{error:#}")));
    let (value, rates) = match all {
        Ok(all) => all.get(id).cloned().context(id)?,
        Err(error) => bail!("{error}"),
    };
    let conditions = match id {
        WHILE_WRITING => "; the writer is held to 10 MB/s",
        MULTI => "; the kernel's side has no io_uring, so it reads one after the other",
        KV_READ => "; RocksDB with a block cache of 1 % and the kernel's page cache",
        _ => "",
    };
    let note = format!(
        "{rates}{conditions}; values of 400 bytes, no compression, Bloom filters; ext4 on a loop device over tmpfs, ours on a \
         slot in tmpfs; db_bench and its threads on all cores"
    );
    Ok(Row { id, value, unit: "x", target, better: Better::Higher, note })
}

/// Write amplification of the talk's experiment, with placement by level; without beside it.
pub(crate) fn fdp(effort: &Effort) -> Result<Row> {
    let folder = Folder::new("rocksdb-fdp")?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../share/unvme/fdp/rocksdb.sh");
    let mut command = Command::new(script);
    command.env("UNVME", env!("CARGO_BIN_EXE_unvme")).env("UNVME_ROCKSDB", libraries()?).stdin(Stdio::null());
    command.args(if effort.smoke { &["-q", "-j"][..] } else { &["-s", "1G", "-w", "1", "-j"] });
    command.arg("-o").arg(folder.path().join("results"));
    let output = command.output().context("run the experiment")?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).context("the experiment's JSON")?;
    let number = |name: &str| found[name].as_f64().with_context(|| format!("no {name} in {found}"));
    let value = number("waf_placed")?;
    let note = format!(
        "without placement {:.3}; device of 1 GiB, about 80 % in use, overwritten once",
        number("waf_unplaced")?
    );
    Ok(Row { id: FDP, value, unit: "x", target: 1.05, better: Better::Lower, note })
}

/// The functions of the rows.
macro_rules! rows {
    ($($name:ident $id:ident $target:literal;)*) => {
        $(pub(crate) fn $name(effort: &Effort) -> Result<Row> {
            row($id, $target, effort)
        })*
    };
}

rows! {
    fillseq FILLSEQ 1.1;
    fillrandom FILLRANDOM 1.1;
    overwrite OVERWRITE 1.1;
    fillsync FILLSYNC 3.0;
    hit HIT 1.0;
    buffered BUFFERED 1.05;
    direct DIRECT 3.0;
    while_writing WHILE_WRITING 1.15;
    seek SEEK 1.05;
    sequential SEQUENTIAL 1.05;
    multi MULTI 3.0;
    kv_fill KV_FILL 3.0;
    kv_read KV_READ 2.0;
    kv_overwrite KV_OVERWRITE 3.0;
}
