//! The power is cut at every point of a history: what is left is what one moment of it was, no earlier than
//! the last sync, and everything fits together.
mod sight;

use sight::{Sight, sight};
use unvme::{Block, Device, Nsid, OpenOptions, open};
use unvme_fs::{Credentials, Event, FileSystem, MakeOptions, MountOptions, NewFile, Rename, make};

const BLOCK: usize = 4096;

fn device() -> (Device, Block) {
    let device = open("mem:block:8M", &OpenOptions::default()).expect("open");
    let block = device.block(Nsid(1)).expect("namespace");
    (device, block)
}

fn mount(block: &Block) -> FileSystem {
    FileSystem::mount(block, "mem:", &MountOptions::default()).expect("mount")
}

/// Does something that `choice` chooses. What is not possible is not done.
fn step(fs: &FileSystem, choice: u64) -> unvme_fs::Result<()> {
    let who = Credentials::root();
    let root = fs.root()?;
    let name = |bits: u64| [b'a' + (bits % 4) as u8];
    let (one, other) = (name(choice >> 8), name(choice >> 12));
    let bytes = 1 + (choice >> 16) as usize % 9000;
    match choice % 8 {
        0 => {
            let file = root.create(&one, &NewFile::regular(0o644), &who)?;
            file.write_at(0, &vec![choice as u8; bytes])?;
        }
        1 => drop(root.create(&one, &NewFile::directory(0o755), &who)?),
        2 => root.unlink(&one, &who)?,
        3 => root.rmdir(&one, &who)?,
        4 => root.rename(&one, (&root, &other), Rename::Replace, &who)?,
        5 => root.lookup(&one, &who)?.link(&root, &other, &who)?,
        6 => {
            root.lookup(&one, &who)?.append(&vec![choice as u8; bytes])?;
        }
        _ => root.rename(&one, (&root.lookup(&other, &who)?, &one), Rename::Exchange, &who)?,
    }
    Ok(())
}

/// A disk, and what of it has no power behind it yet.
struct Media {
    durable: Vec<u8>,
    pending: Vec<(u64, Vec<u8>)>,
}

fn put(image: &mut [u8], block: u64, data: &[u8]) {
    let start = block as usize * BLOCK;
    image[start..start + data.len()].copy_from_slice(data);
}

impl Media {
    fn apply(&mut self, event: &Event) {
        match event {
            Event::Write { block, data, durable: true } => put(&mut self.durable, *block, data),
            Event::Write { block, data, .. } => self.pending.push((*block, data.clone())),
            Event::Flush => {
                for (block, data) in self.pending.drain(..) {
                    put(&mut self.durable, block, &data);
                }
            }
            Event::Deallocate(ranges) => {
                for &(block, blocks) in ranges {
                    put(&mut self.durable, block, &vec![0xdd; blocks as usize * BLOCK]);
                }
            }
        }
    }

    /// What a power cut leaves: of the single blocks that are not durable those that `choice` chooses.
    fn cut(&self, mut choice: u64) -> Vec<u8> {
        let mut image = self.durable.clone();
        for (block, data) in &self.pending {
            for (index, data) in data.chunks(BLOCK).enumerate() {
                choice = choice.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                if choice >> 63 == 1 {
                    put(&mut image, block + index as u64, data);
                }
            }
        }
        image
    }
}

/// Returns how often it cut.
fn run(seed: u64) -> usize {
    let (_device, mut block) = device();
    make(&block, "mem:", &MakeOptions::default(), |_, _| ()).expect("make");
    let fs = mount(&block);
    let mut durable = vec![0; block.bytes() as usize];
    block.read_at(0, &mut durable).expect("read");
    fs.start_recording();
    let mut choice = seed;
    let (mut moments, mut events) = (vec![sight(&fs)], Vec::new());
    for _ in 0..60 {
        choice = choice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Making a file and writing it are two moments: the first is seen when the second fails, too.
        let _ = step(&fs, choice >> 24);
        moments.push(sight(&fs));
        let is_synced = choice >> 62 == 2;
        if is_synced {
            fs.sync().expect("sync");
        }
        let last = moments.len() - 1;
        events.extend(fs.take_events().into_iter().map(|event| (event, last, false)));
        if is_synced && let Some(event) = events.last_mut() {
            event.2 = true;
        }
    }
    drop(fs);
    let mut media = Media { durable, pending: Vec::new() };
    let mut promised = 0;
    for (at, (event, moment, is_synced)) in events.iter().enumerate() {
        media.apply(event);
        promised = if *is_synced { *moment } else { promised };
        let image = media.cut(seed ^ (at as u64) << 17);
        block.write_at(0, &image).expect("write");
        let fs = mount(&block);
        let (seen, survey) = (sight(&fs), fs.check(|_| ()).expect("check"));
        assert_eq!(survey.problems, [], "seed {seed}, cut behind event {at}");
        let names = |sight: &Sight| sight.keys().cloned().collect::<Vec<_>>();
        let is_a_moment = moments[promised..].iter().any(|moment| names(moment) == names(&seen));
        assert!(is_a_moment, "seed {seed}, cut behind event {at}: {:?}", names(&seen));
        for (path, data) in &seen {
            // What was promised, or something newer.
            let since = &moments[promised..];
            let is_known = since.iter().any(|moment| moment.get(path) == Some(data));
            // Made since, and not written yet.
            let is_new = data.as_ref().is_some_and(Vec::is_empty)
                && since.iter().any(|moment| moment.get(path) != since[0].get(path));
            assert!(
                is_known || is_new,
                "seed {seed}, cut behind event {at}: {path} has bytes that it never had"
            );
        }
    }
    events.len()
}

#[test]
fn what_a_power_cut_leaves_is_a_moment_that_was() {
    let cuts: usize = (1..=16).map(run).sum();
    assert!(cuts > 250, "{cuts} cuts");
}
