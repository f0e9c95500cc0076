//! fio with our engine, beside fio's own engines and our own tools.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::cores;
use crate::pairs::{Effort, Pairs, interleave};
use crate::row::{Better, Row};

pub(crate) const NULL: &str = "fio.null.vs_fio_null";
pub(crate) const READ: &str = "fio.read.vs_perf";
pub(crate) const QD1: &str = "fio.qd1.vs_psync";
pub(crate) const URING: &str = "fio.vs_uring";
pub(crate) const KV: &str = "fio.kv.vs_kv_perf";

/// What costs fio the least.
const LEAN: [&str; 7] = [
    "--clocksource=cpu",
    "--gtod_reduce=1",
    "--norandommap",
    "--randrepeat=0",
    "--iodepth_batch=32",
    "--iodepth_batch_complete_min=1",
    "--iodepth_batch_complete_max=32",
];

/// Why the rows cannot be measured here; `None` when they can.
pub(crate) fn obstacle() -> Option<String> {
    match engine() {
        Ok(_) if Command::new("fio").arg("--version").stdout(Stdio::null()).status().is_err() => {
            Some("there is no fio".to_owned())
        }
        Ok(_) => None,
        Err(error) => Some(format!("{error:#}")),
    }
}

fn target() -> Result<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().context("find the target folder")?;
    Ok(target.to_owned())
}

fn engine() -> Result<PathBuf> {
    let path = target()?.join("fio/fio-unvme.so");
    ensure!(path.exists(), "{}: build it with `make fio`", path.display());
    Ok(path)
}

/// Milliseconds of one side.
fn side(effort: &Effort) -> u128 {
    if effort.smoke { 50 } else { 1000 }
}

/// The pairs are fewer than elsewhere, as each is two programs.
fn effort(effort: &Effort) -> Effort {
    Effort { pairs: if effort.smoke { 1 } else { 5 }, ..*effort }
}

/// One run of fio on a core: a job that fills, unless that is empty, and then one that is measured.
fn fio(core: usize, common: &[&str], fill: &[&str], measured: &[&str], side: u128) -> Result<Value> {
    let mut command = Command::new("taskset");
    command.args(["-c", &core.to_string(), "fio", "--output-format=json", "--thread"]).args(common);
    if !fill.is_empty() {
        command.arg("--name=fill").args(fill);
    }
    command
        .args(["--name=measured", "--stonewall", "--time_based", &format!("--runtime={side}ms")])
        .args(measured);
    let output = command.stderr(Stdio::piped()).output().context("run fio")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "fio: {text}{}", String::from_utf8_lossy(&output.stderr));
    let all: Value = serde_json::from_str(&text).context("fio's JSON")?;
    all["jobs"].as_array().and_then(|jobs| jobs.last()).cloned().context("fio's JSON has no job")
}

fn number(job: &Value, pointer: &str) -> Result<f64> {
    job.pointer(pointer).and_then(Value::as_f64).with_context(|| format!("fio's JSON has no {pointer}"))
}

/// Our engine on a device, as options.
fn ours(device: &str) -> Result<[String; 2]> {
    Ok([format!("--ioengine={}", engine()?.display()), format!("--filename={}", device.replace(':', "\\:"))])
}

fn words<'a>(parts: &[&'a [&'a str]]) -> Vec<&'a str> {
    parts.concat()
}

fn row(id: &'static str, target: f64, measured: &Pairs, note: &str) -> Row {
    let note = format!("{}; {note}", measured.rates());
    Row { id, value: measured.ratio, unit: "x", target, better: Better::Higher, note }
}

/// What our engine and a device that moves no data cost beside an engine that does nothing.
pub(crate) fn null(full: &Effort) -> Result<Row> {
    let core = cores::first()?;
    let device = ours("mem:block:1G,media=null")?;
    let device: Vec<&str> = device.iter().map(String::as_str).collect();
    let job = ["--rw=randread", "--bs=4k", "--iodepth=128", "--size=1G"];
    let lean = words(&[&LEAN, &job]);
    let rate = |engine: &[&str]| number(&fio(core, engine, &[], &lean, side(full))?, "/read/iops");
    let measured = interleave(&effort(full), || rate(&device), || rate(&["--ioengine=null"]))?;
    let note = format!("4 KiB random reads, depth 128, batches of 32, no clock; one job on core {core}");
    Ok(row(NULL, 0.9, &measured, &note))
}

/// What fio costs beside `unvme perf`.
pub(crate) fn read(full: &Effort) -> Result<Row> {
    let core = cores::first()?;
    let name = format!("mem:block:{}", unvme::Size(full.media_bytes));
    let device = ours(&name)?;
    let device: Vec<&str> = device.iter().map(String::as_str).collect();
    let fill = ["--rw=write", "--bs=128k", "--iodepth=8"];
    let job = words(&[&LEAN, &["--rw=randread", "--bs=4k", "--iodepth=32"]]);
    let seconds = format!("{}", side(full) as f64 / 1e3);
    let perf = || {
        let json = target()?.join("tmp/fio-row.json");
        let core = core.to_string();
        let arguments =
            ["perf", "-r", &name, "-q", "32", "-c", &core, "-o", "4096", "-w", "randread", "-t", &seconds];
        let mut command = Command::new(env!("CARGO_BIN_EXE_unvme"));
        command.args(arguments).arg("--json").arg(&json);
        finished(&mut command)?;
        let run: Value = serde_json::from_slice(&std::fs::read(&json)?)?;
        number(&run, "/points/0/total/iops")
    };
    let rate = || number(&fio(core, &device, &fill, &job, side(full))?, "/read/iops");
    let measured = interleave(&effort(full), rate, perf)?;
    let note = format!(
        "4 KiB random reads of {name}, depth 32; fio without clock, perf with latencies; core {core}"
    );
    Ok(row(READ, 0.85, &measured, &note))
}

/// Latency at depth 1, beside a file in memory that is read by a system call.
pub(crate) fn qd1(full: &Effort) -> Result<Row> {
    let core = cores::first()?;
    let size = unvme::Size(full.media_bytes.min(256 << 20)).to_string();
    let device = ours(&format!("mem:block:{size}"))?;
    let device: Vec<&str> = device.iter().map(String::as_str).collect();
    let folder = Scratch::new()?;
    let file = format!("--filename={}", folder.0.join("file").display());
    let size = format!("--size={size}");
    let common = [size.as_str(), "--norandommap", "--randrepeat=0", "--iodepth=1"];
    let (fill, job) = (["--rw=write", "--bs=128k"], ["--rw=randread", "--bs=4k"]);
    let latency = |engine: &[&str]| {
        let done = fio(core, &words(&[engine, &common]), &fill, &job, side(full))?;
        number(&done, "/read/lat_ns/mean")
    };
    let psync = ["--ioengine=psync", file.as_str()];
    let measured = interleave(&effort(full), || latency(&device), || latency(&psync))?;
    let note = format!(
        "{:.0} / {:.0} ns, median of pairs A B A B; 4 KiB random reads one at a time; psync on a file of {}; core {core}",
        measured.first,
        measured.second,
        folder.0.display()
    );
    Ok(Row { id: QD1, value: measured.ratio, unit: "x", target: 0.6, better: Better::Lower, note })
}

/// Commands per second of processor time, beside io_uring on a loop device over memory.
pub(crate) fn uring(full: &Effort) -> Result<Row> {
    let core = cores::first()?;
    let size = unvme::Size(full.media_bytes.min(256 << 20)).to_string();
    let device = ours(&format!("mem:block:{size}"))?;
    let device: Vec<&str> = device.iter().map(String::as_str).collect();
    let folder = Scratch::new()?;
    let looped = Loop::new(&folder.0.join("disk"), full.media_bytes.min(256 << 20))?;
    let file = format!("--filename={}", looped.0);
    let size = format!("--size={size}");
    let common = [size.as_str(), "--norandommap", "--randrepeat=0", "--iodepth=32", "--direct=1"];
    let (fill, job) = (["--rw=write", "--bs=128k"], ["--rw=randread", "--bs=4k"]);
    // All that ours takes, the job takes.
    let own = || {
        let done = fio(core, &words(&[&device, &common]), &fill, &job, side(full))?;
        let cores = (number(&done, "/usr_cpu")? + number(&done, "/sys_cpu")?) / 100.0;
        Ok(number(&done, "/read/iops")? / cores.max(0.01))
    };
    let uring = ["--ioengine=io_uring", file.as_str()];
    fio(core, &words(&[&uring, &common]), &[], &fill, side(full))?;
    // A loop device works in threads of the kernel's, too: what the whole machine is busy with is counted.
    let kernel = || {
        let before = busy_seconds()?;
        let done = fio(core, &words(&[&uring, &common]), &[], &job, side(full))?;
        let busy = busy_seconds()? - before;
        Ok(number(&done, "/read/total_ios")? / busy.max(0.01))
    };
    let measured = interleave(&effort(full), own, kernel)?;
    let note = "commands for a second of processor time: the job's, and for the kernel that of the whole machine, \
                as its loop device works beside the job; 4 KiB random reads, depth 32; io_uring on a loop device \
                over tmpfs";
    Ok(row(URING, 6.0, &measured, note))
}

/// Seconds that all processors together have been busy since the machine began.
fn busy_seconds() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/stat").context("read /proc/stat")?;
    let line = text.lines().next().context("/proc/stat has no line")?;
    let ticks: Vec<f64> = line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
    ensure!(ticks.len() >= 7, "/proc/stat: {line}");
    // user, nice, system, irq, softirq; without idle and iowait. Of a hundredth of a second each.
    Ok((ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6]) / 100.0)
}

/// Retrieves, beside `kv_perf`.
pub(crate) fn kv(full: &Effort) -> Result<Row> {
    let core = cores::first()?;
    let keys: u64 = if full.smoke { 5_000 } else { 100_000 };
    let name = format!("mem:kv:{}", unvme::Size((keys * 4096 * 3 / 2).next_multiple_of(64 << 20)));
    let device = ours(&name)?;
    let device: Vec<&str> = device.iter().map(String::as_str).collect();
    let size = format!("--size={}", keys * 4096);
    let fill = [size.as_str(), "--rw=write", "--bs=4k", "--iodepth=32"];
    let job = [size.as_str(), "--rw=randread", "--bs=4k", "--iodepth=32"];
    let job = words(&[&LEAN, &job]);
    let keys = keys.to_string();
    let kv_perf = || {
        let mut command = Command::new("taskset");
        command.args([
            "-c",
            &core.to_string(),
            env!("CARGO_BIN_EXE_unvme"),
            "kv_perf",
            "-d",
            &name,
            "-n",
            &keys,
        ]);
        command.args(["-q", "32", "-v", "4096", "-k", "16", "-p", "4", "-w", "-r"]);
        let text = finished(&mut command)?;
        let line =
            text.lines().find(|line| line.contains("Read OPS/sec:")).context("kv_perf's Read OPS/sec")?;
        line.rsplit(' ').next().and_then(|rate| rate.parse::<f64>().ok()).context("kv_perf's rate")
    };
    let rate = || number(&fio(core, &device, &fill, &job, side(full))?, "/read/iops");
    let measured = interleave(&effort(full), rate, kv_perf)?;
    let note = format!("random retrieves of 4 KiB, {keys} keys of 16 bytes, depth 32, all on core {core}");
    Ok(row(KV, 0.85, &measured, &note))
}

/// Runs a program to its end; what it printed.
fn finished(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("run {command:?}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!("{command:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(text)
}

/// A folder in memory, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self> {
        let folder = Path::new("/dev/shm").join(format!("unvme-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        Ok(Self(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A loop device over a file, let go at the end.
struct Loop(String);

impl Loop {
    fn new(file: &Path, bytes: u64) -> Result<Self> {
        std::fs::File::create(file)?.set_len(bytes)?;
        let arguments: [OsString; 4] =
            ["--find".into(), "--show".into(), "--direct-io=off".into(), file.into()];
        let name = finished(Command::new("losetup").args(arguments))?;
        Ok(Self(name.trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

/// Why there is no loop device to compare with; `None` when there can be one.
pub(crate) fn no_loop() -> Option<String> {
    match finished(Command::new("losetup").arg("--find")) {
        Ok(_) => None,
        Err(error) => {
            Some(format!("no loop device can be had: {error:#}").lines().collect::<Vec<_>>().join(" "))
        }
    }
}
