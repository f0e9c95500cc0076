//! The layers above the queues: the C library, and the read cache.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use unvme::{ControllerOptions, Device, Function, Kv, Nsid, open_function};
use unvme_guide::config::{DeviceConfig, SdkConfig, SlabPolicy};
use unvme_guide::session::{Data, Member, Op, QueueChoice, Session, SessionOptions};

use crate::cores;
use crate::delayed::Delayed;
use crate::kv_load::{KvDevice, capacity, key_of};
use crate::load::{PAGE_BYTES, Random};
use crate::pairs::{Effort, interleave, rate};
use crate::peer::Peer;
use crate::row::{Better, Row};

pub(crate) const CAPI: &str = "kv.capi";
pub(crate) const CACHE: &str = "kv.cache_hit";
pub(crate) const CACHE_SLOW: &str = "kv.cache_hit.slow";

/// Time that a flash drive of three bits per cell takes for a random read.
const FLASH_READ: Duration = Duration::from_micros(60);
/// Retrieves between two looks at the clock.
const CALLS_PER_LOOK: u64 = 256;

fn pairs(effort: &Effort) -> u64 {
    if effort.smoke { 2_000 } else { 20_000 }
}

/// One blocking retrieve after the other, through whatever retrieves.
struct Calls<F> {
    retrieve: F,
    random: Random,
    pairs: u64,
    out: Vec<u8>,
    calls_per_look: u64,
}

impl<F: FnMut(&[u8], &mut [u8]) -> Result<usize>> Calls<F> {
    fn new(pairs: u64, retrieve: F) -> Self {
        let out = vec![0; PAGE_BYTES];
        Self { retrieve, random: Random::new(3), pairs, out, calls_per_look: CALLS_PER_LOOK }
    }

    fn run(&mut self) -> Result<u64> {
        for _ in 0..self.calls_per_look {
            let id = self.random.below(self.pairs);
            let copied = (self.retrieve)(&key_of(id), &mut self.out)?;
            ensure!(
                copied == PAGE_BYTES && self.out[..8] == id.to_le_bytes(),
                "pair {id} is not what was stored"
            );
        }
        Ok(self.calls_per_look)
    }

    fn rate(&mut self, side: Duration) -> Result<f64> {
        rate(side, || self.run())
    }
}

fn blocking(kv: &mut Kv) -> impl FnMut(&[u8], &mut [u8]) -> Result<usize> {
    |key, out| Ok(kv.retrieve_into(key, 0, out)?.context("the pair is not there")?.copied)
}

/// `kv_retrieve` of the C library, against the blocking call of the Rust one.
pub(crate) fn capi(effort: &Effort) -> Result<Row> {
    cores::on_first(|core| {
        let pairs = pairs(effort);
        let rust = KvDevice::filled(pairs, PAGE_BYTES)?;
        let mut kv = rust.device.kv(Nsid(1))?;
        let mut calls = Calls::new(pairs, blocking(&mut kv));
        let mut peer = start_capi(core, pairs)?;
        let retrieve = format!("retrieve {}", effort.side.as_millis());
        let measured = interleave(effort, || peer.ask(&retrieve), || calls.rate(effort.side))?;
        let note = format!("{}; 4 KiB values, one call at a time; both on core {core}", measured.rates());
        Ok(Row { id: CAPI, value: measured.ratio, unit: "x", target: 0.85, better: Better::Higher, note })
    })
}

fn start_capi(core: usize, pairs: u64) -> Result<Peer> {
    let library = library()?;
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../capi/include");
    let folder = library.display();
    let flags = vec![
        format!("-I{}", include.display()),
        format!("-L{folder}"),
        "-lunvme".to_owned(),
        format!("-Wl,-rpath,{folder}"),
    ];
    let program = Peer::compile("capi", &flags)?;
    let device = format!("mem:kv:{}", unvme::Size(capacity(pairs, PAGE_BYTES)));
    let arguments = [device, core.to_string(), pairs.to_string(), PAGE_BYTES.to_string()];
    Peer::start("capi", &program, core, &arguments)
}

/// The folder that the release build of the C library is in.
fn library() -> Result<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().context("find the target folder")?;
    let folder = target.join("release");
    ensure!(
        folder.join("libunvme.so").exists(),
        "{}: no libunvme.so; build it with `cargo build --release -p unvme-capi`, as `make bench` does",
        folder.display()
    );
    Ok(folder)
}

/// A retrieve that the cache answers, against one that the device in this process does.
pub(crate) fn cache(effort: &Effort) -> Result<Row> {
    versus_device(CACHE, effort, None)
}

/// The same, against a device that takes as long as flash.
pub(crate) fn cache_slow(effort: &Effort) -> Result<Row> {
    versus_device(CACHE_SLOW, effort, Some(FLASH_READ))
}

fn versus_device(id: &'static str, effort: &Effort, delay: Option<Duration>) -> Result<Row> {
    cores::on_first(|core| {
        let pairs = pairs(effort);
        let cached = session(pairs, core, None, true)?;
        let plain = session(pairs, core, delay, false)?;
        let (hits, misses) = (member(&cached)?, member(&plain)?);
        let mut hit = Calls::new(pairs, retrieving(hits));
        let mut miss = Calls::new(pairs, retrieving(misses));
        if delay.is_some() {
            miss.calls_per_look = 16;
        }
        let measured = interleave(effort, || hit.rate(effort.side), || miss.rate(effort.side))?;
        let note = format!(
            "{:.0} ns / {:.0} ns{}; 4 KiB values, {pairs} pairs, one call at a time; one thread on core {core}",
            1e9 / measured.first,
            1e9 / measured.second,
            delay.map_or(String::new(), |delay| format!(
                ", of which {} us are the flash's",
                delay.as_micros()
            ))
        );
        let target = if delay.is_some() { 50.0 } else { 1.5 };
        Ok(Row { id, value: measured.ratio, unit: "x", target, better: Better::Higher, note })
    })
}

fn retrieving(member: Arc<Member>) -> impl FnMut(&[u8], &mut [u8]) -> Result<usize> {
    move |bytes, out| {
        Ok(member.call(QueueChoice::Auto, Op::retrieve(bytes, out.len()), Data::In(out))?.data_bytes)
    }
}

fn member(session: &Session) -> Result<Arc<Member>> {
    session.members().first().cloned().context("a session of one device has one member")
}

/// A session with one device that holds all pairs, each of which has been retrieved once.
fn session(pairs: u64, core: usize, delay: Option<Duration>, cache: bool) -> Result<Session> {
    let filled = KvDevice::filled(pairs, PAGE_BYTES)?;
    let device = match delay {
        None => filled.device,
        Some(delay) => {
            drop(filled.device);
            slowed(Delayed::new(Arc::clone(&filled.ssd), delay)?)?
        }
    };
    let mask = 1 << core;
    let config = SdkConfig {
        cache,
        slab_bytes: 512 << 20,
        slab_policy: SlabPolicy::Posix,
        devices: vec![DeviceConfig { core_mask: mask, sync_mask: mask, ..DeviceConfig::new("bench") }],
        ..SdkConfig::default()
    };
    let session = Session::with_devices(config, vec![device], SessionOptions::new(Arc::new(|_| {})))?;
    if cache {
        let member = member(&session)?;
        let mut out = vec![0; PAGE_BYTES];
        for id in 0..pairs {
            member.call(QueueChoice::Auto, Op::retrieve(&key_of(id)[..], PAGE_BYTES), Data::In(&mut out))?;
        }
    }
    Ok(session)
}

fn slowed(device: Arc<Delayed>) -> Result<Device> {
    let function: Arc<dyn Function> = device;
    Ok(open_function("slow bench device", function, &ControllerOptions::default())?)
}
