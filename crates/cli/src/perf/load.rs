//! Pairs that commands are to find, before a point.

use std::io::Write;

use anyhow::{Context, Result, ensure};
use unvme::{DmaBuf, KvQueue, Op, QueueOptions, Status};

use super::data;
use super::job::{Job, Target};
use super::keys::Keys;
use super::pattern::Pattern;
use super::prefill::stopped;
use super::progress::Progress;
use super::session::{Session, Stage};

/// Stores that are on their way at once.
const DEPTH: u16 = 64;
/// The stream of the seed that their sizes are of: those of lanes have the first.
const LOAD_STREAM: u64 = 1 << 39;

/// Pairs that a namespace has got.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Loaded {
    keys: u64,
    key_bytes: u8,
    /// Sizes of the values, in words.
    sizes: String,
}

impl Loaded {
    fn of(job: &Job, keys: &Keys) -> Self {
        let sizes = format!("{} {:?}", job.workload.io_bytes, job.workload.shape.size_mix);
        Self { keys: keys.loaded, key_bytes: keys.bytes, sizes }
    }
}

/// Stores the pairs that a stage is to find, where that is to be done and they are not there. Errors: a store
/// fails, or Ctrl-C.
pub(super) fn run(session: &Session, stage: &Stage) -> Result<()> {
    for job in &stage.jobs {
        for target in &job.targets {
            let Some(keys) = &target.keys else { continue };
            let (wanted, pattern) = (Loaded::of(job, keys), job.mix.pattern);
            let is_there = session.loaded(target).is_some_and(|known| known == wanted);
            if pattern.needs_pairs() && session.is_to_be_loaded(target) && !is_there {
                store(session, job, target, keys)?;
            }
            // What it stores has the sizes that were loaded, and what it deletes is not there any more.
            let stays = pattern.needs_pairs() && pattern != Pattern::Delete;
            session.has_loaded(target, stays.then_some(wanted));
        }
    }
    Ok(())
}

fn store(session: &Session, job: &Job, target: &Target, keys: &Keys) -> Result<()> {
    let name = &target.identity.name;
    if !name.starts_with("mem:") {
        // With stderr gone there is nobody left to tell.
        let _ = writeln!(
            std::io::stderr(),
            "unvme: note: {name}: {} pairs are stored before they are measured, which counters of the device \
             count; --no-prefill does without",
            keys.loaded
        );
    }
    let kv = target.device.kv(target.nsid)?;
    let depth = DEPTH.min(target.queue_depth_max());
    let mut queue = kv.queue(&QueueOptions { depth, ..QueueOptions::default() })?;
    let mut free = Vec::new();
    let mut content = vec![0; target.unit.bytes()];
    for index in 0..u64::from(depth) {
        let mut buf = queue.alloc(content.len())?;
        let bytes = content.len();
        data::fill(&mut content, bytes, index, 1);
        buf.write(0, &content);
        free.push(buf);
    }
    let progress = Progress::new("load", keys.loaded);
    progress.say(name.clone());
    let mut sizes = job.blend(target.unit, job.mix.seed, LOAD_STREAM);
    let mut key = vec![0; keys.bytes.into()];
    for number in 0..keys.loaded {
        let mut buf = free.pop();
        while buf.is_none() {
            queue.ring()?;
            reap(&mut queue, &mut free).with_context(|| format!("store pairs on {name}"))?;
            buf = free.pop();
        }
        let bytes = match &mut sizes {
            Some(blend) => blend.next(false).blocks as usize,
            None => job.workload.io_bytes as usize,
        };
        keys.write(number, &mut key);
        queue.submit(Op::store(&key[..], bytes), buf, number)?;
        if number % 1024 == 0 {
            progress.set(number);
            if session.is_stopped() {
                return Err(stopped());
            }
        }
    }
    queue.ring()?;
    while queue.outstanding() > 0 {
        reap(&mut queue, &mut free).with_context(|| format!("store pairs on {name}"))?;
    }
    Ok(())
}

fn reap(queue: &mut KvQueue, free: &mut Vec<DmaBuf>) -> Result<()> {
    for completion in queue.poll(usize::MAX) {
        let status = completion.status;
        let hint = if unvme::KvVerdict::of(status) == unvme::KvVerdict::Full {
            "; use fewer --keys or smaller values"
        } else {
            ""
        };
        ensure!(status.kind() == Status::SUCCESS, "pair {}: {status}{hint}", completion.token);
        free.extend(completion.buf);
    }
    Ok(())
}
