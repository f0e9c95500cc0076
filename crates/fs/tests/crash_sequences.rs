//! Short sequences of changes, all there are: with a sync of every kind behind each of them, and the power
//! cut at every point, with and without what was not flushed. What is left is one moment of the sequence,
//! no earlier than what was promised, with data that the files had.
//!
//! All sequences of one and two changes, and some of three; more of them with `UNVME_TEST_EXHAUSTIVE=1`.
mod media;

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};

use media::{BLOCK, Media};
use unvme::worker::{Queues, WorkerOptions};
use unvme::{Block, Device, Nsid, OpenOptions, open};
use unvme_fs::{
    Allocation, CacheOptions, Credentials, Errno, Event, FileSystem, FileType, MakeOptions, MountOptions,
    NewAttributes, NewFile, Rename, Result, SetXattr, Vnode, make,
};

const DEVICE: &str = "mem:block:4M";

fn at(fs: &FileSystem, path: &str) -> Result<Vnode> {
    fs.resolve(path.as_bytes(), false, &Credentials::root())
}

fn parent(fs: &FileSystem, path: &str) -> Result<(Vnode, Vec<u8>)> {
    fs.resolve_parent(path.as_bytes(), &Credentials::root())
}

/// A change of few names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Create(&'static str),
    Mkdir(&'static str),
    Symlink(&'static str),
    Unlink(&'static str),
    Rmdir(&'static str),
    Link(&'static str, &'static str),
    Rename(&'static str, &'static str),
    Exchange(&'static str, &'static str),
    /// Where, and how many bytes; by way of the page cache.
    Write(&'static str, u64, usize),
    /// The same past it.
    Direct(&'static str, u64, usize),
    Truncate(&'static str, u64),
    Reserve(&'static str, u64, u64),
    Punch(&'static str, u64, u64),
    Zero(&'static str, u64, u64),
    SetXattr(&'static str),
    RemoveXattr(&'static str),
    Chmod(&'static str, u32),
    /// `O_TMPFILE`, written, and given a name.
    Unnamed(&'static str),
    Copy(&'static str, &'static str),
}

const OPS: [Op; 31] = [
    Op::Create("bar"),
    Op::Create("A/foo"),
    Op::Mkdir("B"),
    Op::Symlink("bar"),
    Op::Unlink("foo"),
    Op::Unlink("bar"),
    Op::Unlink("A/bar"),
    Op::Rmdir("B"),
    Op::Link("foo", "bar"),
    Op::Link("A/bar", "A/foo"),
    Op::Rename("foo", "bar"),
    Op::Rename("foo", "A/bar"),
    Op::Rename("A/bar", "foo"),
    Op::Rename("A", "B"),
    Op::Rename("B", "A/B"),
    Op::Exchange("foo", "A/bar"),
    Op::Exchange("foo", "A"),
    Op::Write("foo", 100, 5000),
    Op::Write("foo", 8292, 3000),
    Op::Write("foo", 40_000, 10),
    Op::Write("bar", 0, 9000),
    Op::Direct("foo", 0, 4096),
    Op::Direct("foo", 8192, 4096),
    Op::Truncate("foo", 100),
    Op::Truncate("foo", 20_000),
    Op::Reserve("foo", 4096, 30_000),
    Op::Punch("foo", 1000, 7192),
    Op::Zero("foo", 100, 5000),
    Op::SetXattr("foo"),
    Op::Unnamed("bar"),
    Op::Copy("A/bar", "foo"),
];

/// Those that only long runs have.
const MORE_OPS: [Op; 5] = [
    Op::RemoveXattr("foo"),
    Op::Chmod("foo", 0o600),
    Op::Chmod("A", 0o700),
    Op::Truncate("A/bar", 0),
    Op::Direct("bar", 4096, 8192),
];

impl Op {
    /// The file that a sync behind it is about.
    fn target(self) -> &'static str {
        match self {
            Self::Link(_, to) | Self::Rename(_, to) | Self::Exchange(_, to) | Self::Copy(_, to) => to,
            Self::Create(path)
            | Self::Mkdir(path)
            | Self::Symlink(path)
            | Self::Unlink(path)
            | Self::Rmdir(path)
            | Self::Write(path, ..)
            | Self::Direct(path, ..)
            | Self::Truncate(path, _)
            | Self::Reserve(path, ..)
            | Self::Punch(path, ..)
            | Self::Zero(path, ..)
            | Self::SetXattr(path)
            | Self::RemoveXattr(path)
            | Self::Chmod(path, _)
            | Self::Unnamed(path) => path,
        }
    }

    /// `nth` makes what is written one's own.
    fn run(self, fs: &FileSystem, nth: usize) -> Result<()> {
        let who = Credentials::root();
        let bytes = |count: usize| -> Vec<u8> { (0..count).map(|i| (i / 64 + 37 * nth) as u8 | 1).collect() };
        let make = |path: &str, new: &NewFile<'_>| {
            let (directory, name) = parent(fs, path)?;
            directory.create(&name, new, &who)
        };
        match self {
            Self::Create(path) => make(path, &NewFile::regular(0o644)).map(drop),
            Self::Mkdir(path) => make(path, &NewFile::directory(0o755)).map(drop),
            Self::Symlink(path) => {
                let file_type = FileType::Symlink;
                make(path, &NewFile { file_type, target: b"somewhere", ..NewFile::regular(0o777) }).map(drop)
            }
            Self::Unlink(path) => parent(fs, path).and_then(|(at, name)| at.unlink(&name, &who)),
            Self::Rmdir(path) => parent(fs, path).and_then(|(at, name)| at.rmdir(&name, &who)),
            Self::Link(from, to) => {
                let (directory, name) = parent(fs, to)?;
                at(fs, from)?.link(&directory, &name, &who)
            }
            Self::Rename(from, to) | Self::Exchange(from, to) => {
                let ((directory, name), (other, other_name)) = (parent(fs, from)?, parent(fs, to)?);
                let is_exchange = matches!(self, Self::Exchange(..));
                let how = if is_exchange { Rename::Exchange } else { Rename::Replace };
                directory.rename(&name, (&other, &other_name), how, &who)
            }
            Self::Write(path, offset, count) => at(fs, path)?.write_at(offset, &bytes(count)).map(drop),
            Self::Direct(path, offset, count) => at(fs, path)?.write_direct(offset, &bytes(count)).map(drop),
            Self::Truncate(path, size) => at(fs, path)?.truncate(size),
            Self::Reserve(path, from, to) => {
                at(fs, path)?.allocate(from..to, Allocation::Reserve { keep_size: true })
            }
            Self::Punch(path, from, to) => at(fs, path)?.allocate(from..to, Allocation::PunchHole),
            Self::Zero(path, from, to) => {
                at(fs, path)?.allocate(from..to, Allocation::ZeroRange { keep_size: false })
            }
            Self::SetXattr(path) => at(fs, path)?.set_xattr(b"user.a", &bytes(200), SetXattr::Any, &who),
            Self::RemoveXattr(path) => {
                let file = at(fs, path)?;
                let name = file.xattrs(&who)?.pop().ok_or(Errno::NODATA)?;
                file.remove_xattr(&name, &who)
            }
            Self::Chmod(path, permissions) => {
                let new = NewAttributes { permissions: Some(permissions), ..NewAttributes::default() };
                at(fs, path)?.set_attributes(&new, &who)
            }
            Self::Unnamed(path) => {
                let (directory, name) = parent(fs, path)?;
                let file = directory.create_unnamed(0o644, &who)?;
                file.write_at(0, &bytes(5000))?;
                file.link(&directory, &name, &who)
            }
            Self::Copy(from, to) => at(fs, from)?.copy_range(0, &at(fs, to)?, 2000, 4000).map(drop),
        }
    }
}

/// A sync behind a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sync {
    None,
    File,
    Data,
    /// Of the directory that the target is in.
    Directory,
    All,
}

const SYNCS: [Sync; 3] = [Sync::None, Sync::File, Sync::All];
const ALL_SYNCS: [Sync; 5] = [Sync::None, Sync::File, Sync::Data, Sync::Directory, Sync::All];

type Step = (Op, Sync);

/// Longer ones for what short ones do not reach: a block of metadata whose image is in the journal still is
/// freed, and has data when the power is cut.
const LONG: [&[Step]; 2] = [
    &[
        (Op::SetXattr("A/bar"), Sync::All),
        (Op::RemoveXattr("A/bar"), Sync::All),
        (Op::Create("bar"), Sync::None),
        (Op::Direct("bar", 0, 2_600_000), Sync::File),
    ],
    &[
        (Op::SetXattr("A/bar"), Sync::All),
        (Op::Unlink("A/bar"), Sync::All),
        (Op::Create("bar"), Sync::None),
        (Op::Direct("bar", 0, 2_600_000), Sync::All),
    ],
];

/// What is to be seen of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    /// Inode number, and what tells it from an earlier one of the same number.
    id: (u64, u32),
    mode: u32,
    links: u32,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Of a link its target.
    data: Vec<u8>,
}

/// All that is to be seen, by path.
type Moment = BTreeMap<String, Seen>;

fn look(directory: &Vnode, path: &str, moment: &mut Moment) {
    let who = Credentials::root();
    let mut entries = Vec::new();
    let listed = directory.list(2, |entry| {
        entries.push(entry);
        ControlFlow::Continue(())
    });
    listed.expect("list");
    for entry in entries {
        let node = directory.lookup(&entry.name, &who).expect("lookup");
        let attributes = node.attributes();
        let path = format!("{path}{}", String::from_utf8_lossy(&entry.name));
        let data = match entry.file_type {
            FileType::Symlink => node.target().expect("target"),
            FileType::RegularFile => {
                let mut data = vec![0; attributes.size as usize];
                assert_eq!(node.read_at(0, &mut data).expect("read"), data.len());
                data
            }
            _ => Vec::new(),
        };
        let names = node.xattrs(&who).expect("attributes");
        let xattrs = names.into_iter().map(|name| {
            let value = node.xattr(&name, &who).expect("attribute");
            (name, value)
        });
        let (mode, links) = (attributes.mode, attributes.links);
        let id = (attributes.ino, attributes.generation);
        let seen = Seen { id, mode, links, xattrs: xattrs.collect(), data };
        moment.insert(path.clone(), seen);
        if entry.file_type == FileType::Directory {
            look(&node, &format!("{path}/"), moment);
        }
    }
}

fn moment(fs: &FileSystem) -> Moment {
    let mut moment = Moment::new();
    look(&fs.root().expect("root"), "", &mut moment);
    moment
}

/// What was promised at some point: everything as it was at a step or later, and the data of files.
#[derive(Clone, Debug, Default, Hash)]
struct Promise {
    step: usize,
    /// Of each file: its data as of this step, or later.
    data: BTreeMap<(u64, u32), usize>,
}

/// What a sequence has done.
struct History {
    /// Before the first step, and after each.
    moments: Vec<Moment>,
    events: Vec<Event>,
    /// Events until the end of each step.
    ends: Vec<usize>,
    /// What was promised by then.
    promises: Vec<Promise>,
}

struct Bench {
    _device: Device,
    block: Block,
    /// The beginning of each sequence.
    baseline: Vec<u8>,
}

fn options() -> MountOptions {
    MountOptions {
        metadata_bytes: 1 << 20,
        cache: CacheOptions { bytes: 1 << 20, ..CacheOptions::default() },
        worker: WorkerOptions { queues: Queues::Count(1), ..WorkerOptions::default() },
        // Nothing is committed that nobody has asked for.
        commit_interval: std::time::Duration::from_secs(3600),
        ..MountOptions::default()
    }
}

impl Bench {
    fn new() -> Self {
        let device = open(DEVICE, &OpenOptions::default()).expect("open");
        let mut block = device.block(Nsid(1)).expect("namespace");
        make(&block, device.name(), &MakeOptions::default(), |_, _| ()).expect("make");
        let fs = FileSystem::mount(&block, DEVICE, &options()).expect("mount");
        let who = Credentials::root();
        let root = fs.root().expect("root");
        let directory = root.create(b"A", &NewFile::directory(0o755), &who).expect("mkdir");
        let file = root.create(b"foo", &NewFile::regular(0o644), &who).expect("create");
        file.write_at(0, &[0xf0; 8292]).expect("write");
        file.set_xattr(b"user.x", b"value", SetXattr::Any, &who).expect("setxattr");
        let other = directory.create(b"bar", &NewFile::regular(0o644), &who).expect("create");
        other.write_at(0, &[0xba; 4096]).expect("write");
        fs.unmount().expect("unmount");
        drop((root, directory, file, other, fs));
        let mut baseline = vec![0; block.bytes() as usize];
        block.read_at(0, &mut baseline).expect("read");
        Self { _device: device, block, baseline }
    }

    fn restore(&mut self, blocks: impl Iterator<Item = u64>) {
        let lbas = BLOCK as u64 / u64::from(self.block.block_bytes());
        for block in blocks {
            let start = block as usize * BLOCK;
            self.block.write_at(block * lbas, &self.baseline[start..start + BLOCK]).expect("write");
        }
    }

    /// Runs a sequence. `None`: it cannot be run, or a sync has nothing to be about.
    fn run(&mut self, steps: &[Step]) -> Option<History> {
        let fs = FileSystem::mount(&self.block, DEVICE, &options()).expect("mount");
        // The mount has written the heads of the journal: the media says that it is in use.
        let lbas = BLOCK as u64 / u64::from(self.block.block_bytes());
        self.block.read_at(lbas, &mut self.baseline[BLOCK..3 * BLOCK]).expect("read");
        fs.start_recording();
        let mut history = History {
            moments: vec![moment(&fs)],
            events: Vec::new(),
            ends: Vec::new(),
            promises: Vec::new(),
        };
        let mut promise = Promise::default();
        let mut is_possible = true;
        for (nth, &(op, sync)) in steps.iter().enumerate() {
            let done = op.run(&fs, nth + 1).and_then(|()| {
                let target = || at(&fs, op.target());
                match sync {
                    Sync::None => {}
                    Sync::File => target()?.sync()?,
                    Sync::Data => target()?.sync_data()?,
                    Sync::Directory => parent(&fs, op.target())?.0.sync()?,
                    Sync::All => fs.sync()?,
                }
                Ok(())
            });
            if done.is_err() {
                is_possible = false;
                break;
            }
            let now = moment(&fs);
            let step = nth + 1;
            match sync {
                Sync::None => {}
                Sync::File => {
                    // What led to the file has come before it was last changed, and this change was its last.
                    promise.step = step;
                    promise.data.insert(now[op.target()].id, step);
                }
                Sync::Data => {
                    let id = now[op.target()].id;
                    promise.step = promise.step.max(step_that_leads_to(&history, &now, id));
                    promise.data.insert(id, step);
                }
                Sync::Directory => promise.step = promise.step.max(directory_step(&history, &now, step)),
                Sync::All => {
                    promise.step = step;
                    promise.data = now.values().map(|seen| (seen.id, step)).collect();
                }
            }
            history.moments.push(now);
            history.events.append(&mut fs.take_events());
            history.ends.push(history.events.len());
            history.promises.push(promise.clone());
        }
        let mut all = history.events.clone();
        all.append(&mut fs.take_events());
        fs.abandon();
        drop(fs);
        let touched: HashSet<u64> = all.iter().flat_map(blocks_of).collect();
        self.restore(touched.into_iter());
        is_possible.then_some(history)
    }

    /// Cuts the power at every point of the last step. Returns how often.
    fn cut(&mut self, steps: &[Step], history: &History) -> usize {
        let last = steps.len() - 1;
        let from = if last == 0 { 0 } else { history.ends[last - 1] };
        let mut media = Media::default();
        let mut seen = HashSet::new();
        let mut cuts = 0;
        for upto in 0..=history.ends[last] {
            if upto > 0 {
                media.apply(&history.events[upto - 1]);
            }
            if upto < from {
                continue;
            }
            let promise = match upto {
                end if end == history.ends[last] => &history.promises[last],
                _ if last == 0 => &Promise::default(),
                _ => &history.promises[last - 1],
            };
            for choice in media.choices() {
                let changed = media.cut(&choice);
                let mut hasher = DefaultHasher::new();
                (&changed, promise).hash(&mut hasher);
                if !seen.insert(hasher.finish()) {
                    continue;
                }
                cuts += 1;
                let about = || format!("{steps:?}, cut behind event {upto}, with {choice:?}");
                // One that brings things in order writes: it takes longer to have the beginning back.
                let is_written = steps.len() > 3 || hasher.finish().is_multiple_of(16);
                self.judge(history, promise, &changed, is_written, &about);
            }
        }
        cuts
    }

    fn judge(
        &mut self,
        history: &History,
        promise: &Promise,
        changed: &BTreeMap<u64, Vec<u8>>,
        is_written: bool,
        about: &dyn Fn() -> String,
    ) {
        let lbas = BLOCK as u64 / u64::from(self.block.block_bytes());
        for (block, data) in changed {
            self.block.write_at(block * lbas, data).expect("write");
        }
        let mount = |is_read_only: bool| {
            let options = MountOptions { is_read_only, ..options() };
            FileSystem::mount(&self.block, DEVICE, &options)
                .unwrap_or_else(|e| panic!("{}: mount: {e}", about()))
        };
        if is_written {
            mount(false).unmount().unwrap_or_else(|e| panic!("{}: unmount: {e}", about()));
        }
        let fs = mount(true);
        let survey = fs.check(|_| ()).unwrap_or_else(|e| panic!("{}: check: {e}", about()));
        assert_eq!(survey.problems, [], "{}", about());
        let found = moment(&fs);
        assert_eq!(fs.traffic().writes, 0, "a mount that writes nothing");
        drop(fs);
        let fits = |nth: usize| {
            history.moments[nth].len() == found.len() && {
                history.moments[nth].iter().zip(&found).all(|((path, then), (same, now))| {
                    let with_data_of = |seen: &Seen| Seen { data: then.data.clone(), ..seen.clone() };
                    let is_file = FileType::from_raw_mode(then.mode) == FileType::RegularFile;
                    path == same && with_data_of(now) == *then && (!is_file || had(history, promise, now))
                })
            }
        };
        let is_a_moment = (promise.step..history.moments.len()).any(fits);
        assert!(is_a_moment, "{}: {}", about(), shown(&found));
        if is_written {
            self.block.write_at(0, &self.baseline).expect("write");
        } else {
            self.restore(changed.keys().copied());
        }
    }
}

/// The last step that has changed where a file is found, or how long it is: without that its data cannot be
/// read.
fn step_that_leads_to(history: &History, now: &Moment, id: (u64, u32)) -> usize {
    let leads = |moment: &Moment| -> Vec<(String, usize)> {
        let found = moment.iter().filter(|(_, seen)| seen.id == id);
        found.map(|(path, seen)| (path.clone(), seen.data.len())).collect()
    };
    let moments: Vec<_> = history.moments.iter().chain([now]).map(leads).collect();
    (1..moments.len()).rev().find(|&step| moments[step] != moments[step - 1]).unwrap_or(0)
}

/// A sync of a directory has what was changed in it last, and all before.
fn directory_step(history: &History, now: &Moment, step: usize) -> usize {
    let names = |moment: &Moment| moment.keys().cloned().collect::<Vec<_>>();
    let is_changed = history.moments.last().is_some_and(|before| names(before) != names(now));
    if is_changed { step } else { 0 }
}

/// Whether a file had these data: each byte at some moment since what was promised.
fn had(history: &History, promise: &Promise, now: &Seen) -> bool {
    let since = promise.data.get(&now.id).copied().unwrap_or(0);
    let of =
        |moment: &'_ Moment| moment.values().find(|seen| seen.id == now.id).map(|seen| seen.data.clone());
    let mut versions: Vec<Vec<u8>> = history.moments[since..].iter().filter_map(of).collect();
    if since == 0 && !history.moments[0].values().any(|seen| seen.id == now.id) {
        // It was new: before it had data.
        versions.push(Vec::new());
    }
    let (least, most) = (versions.iter().map(Vec::len).min(), versions.iter().map(Vec::len).max());
    if least.is_none_or(|least| now.data.len() < least) || most.is_none_or(|most| now.data.len() > most) {
        return false;
    }
    // What changes a part of a page that is not flushed may come before, or without, what was done before.
    now.data
        .iter()
        .enumerate()
        .all(|(at, byte)| versions.iter().any(|version| *byte == version.get(at).copied().unwrap_or(0)))
}

fn blocks_of(event: &Event) -> Vec<u64> {
    match event {
        Event::Write { block, data, .. } => (*block..block + (data.len() / BLOCK) as u64).collect(),
        Event::Flush => Vec::new(),
        Event::Deallocate(ranges) => ranges.iter().flat_map(|&(start, count)| start..start + count).collect(),
    }
}

fn shown(moment: &Moment) -> String {
    let line = |(path, seen): (&String, &Seen)| {
        let runs: Vec<String> =
            seen.data.chunks(BLOCK).map(|page| format!("{:02x}", page[page.len() / 2])).collect();
        format!("{path}: inode {}, {} bytes {runs:?}", seen.id.0, seen.data.len())
    };
    moment.iter().map(line).collect::<Vec<_>>().join("; ")
}

/// All sequences of so many steps.
fn sequences(ops: &[Op], syncs: &[Sync], len: usize) -> Vec<Vec<Step>> {
    let steps: Vec<Step> = ops.iter().flat_map(|&op| syncs.iter().map(move |&sync| (op, sync))).collect();
    let mut all: Vec<Vec<Step>> = vec![Vec::new()];
    for _ in 0..len {
        all = all.iter().flat_map(|some| steps.iter().map(|&step| [&some[..], &[step]].concat())).collect();
    }
    all
}

#[test]
fn what_is_left_of_every_short_sequence_is_a_moment_of_it() {
    let is_long = std::env::var_os("UNVME_TEST_EXHAUSTIVE").is_some();
    let mut ops = OPS.to_vec();
    if is_long {
        ops.extend(MORE_OPS);
    }
    let syncs = if is_long { &ALL_SYNCS[..] } else { &SYNCS };
    let mut all = sequences(&ops, &ALL_SYNCS, 1);
    all.extend(sequences(&ops, syncs, 2));
    let mut choice = 1u64;
    let mut next = |below: usize| {
        choice = choice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (choice >> 33) as usize % below
    };
    let threes = if is_long { 100_000 } else { 1500 };
    all.extend(
        (0..threes).map(|_| (0..3).map(|_| (ops[next(ops.len())], syncs[next(syncs.len())])).collect()),
    );
    all.extend(LONG.map(<[Step]>::to_vec));
    let (turn, cuts, ran) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut bench = Bench::new();
                while let Some(steps) = all.get(turn.fetch_add(1, Ordering::Relaxed)) {
                    if let Some(history) = bench.run(steps) {
                        ran.fetch_add(1, Ordering::Relaxed);
                        cuts.fetch_add(bench.cut(steps, &history), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let (cuts, ran) = (cuts.into_inner(), ran.into_inner());
    assert!(ran > 5000 && cuts > 12_000, "{ran} sequences, {cuts} cuts");
}
