//! From fio's jobs to the points of a report.

use std::collections::BTreeMap;

use super::output::{Job, Options, Output, Side, Spread};
use crate::report::{
    CommandFigures, CpuUse, Distribution, JobFigures, Latency, Percentile, Point, Row, Setting, Shape,
    Workload,
};

/// Options of jobs that tell points apart in a report's words, and in the order of its settings.
const SETTINGS: [(&str, &str); 3] = [("bs", "io-size"), ("rwmixread", "read-percent"), ("rw", "workload")];

/// More errors than that are not counted, so that those of all jobs can be added up.
const ERRORS_MAX: u64 = 1 << 48;

/// Jobs that ran at the same time, with the file they are of.
struct Group<'a> {
    output: &'a Output,
    jobs: Vec<&'a Job>,
}

/// All points of files, in order.
pub(super) fn points(outputs: &[(String, Output)]) -> Vec<Point> {
    let groups = groups(outputs);
    let mut points: Vec<Point> = groups.iter().map(point).collect();
    tell_apart(&groups, &mut points);
    let first = points.first().and_then(|point| point.workload.clone());
    for point in &mut points {
        if point.workload == first {
            point.workload = None;
        }
    }
    points
}

/// What the first job was asked for.
pub(super) fn first_workload(outputs: &[(String, Output)]) -> Option<Workload> {
    let group = groups(outputs).into_iter().next()?;
    Some(workload(group.output, group.jobs.first()?))
}

fn groups(outputs: &[(String, Output)]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for (_, output) in outputs {
        let mut known = BTreeMap::new();
        for job in &output.jobs {
            let at = *known.entry(job.groupid).or_insert_with(|| {
                groups.push(Group { output, jobs: Vec::new() });
                groups.len() - 1
            });
            groups[at].jobs.push(job);
        }
    }
    groups
}

/// A size as fio has it: `4k` is 4096 bytes.
pub(super) fn size(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim_end_matches('b').trim_end_matches('i') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

fn workload(output: &Output, job: &Job) -> Workload {
    let option = |name: &str| output.option(job, name);
    let either = |name: &str, other: &str| option(name).or_else(|| option(other));
    let pattern = either("rw", "readwrite").unwrap_or_else(|| "read".to_owned());
    // Reads, writes and trims may differ: a report says the largest.
    let sizes = either("bs", "blocksize").unwrap_or_else(|| "4k".to_owned());
    let read_percent = match pattern.as_str() {
        "read" | "randread" => 100,
        "rw" | "randrw" | "readwrite" => {
            either("rwmixread", "rw_mix_read").and_then(|text| text.parse().ok()).unwrap_or_else(|| {
                option("rwmixwrite")
                    .and_then(|text| text.parse().ok())
                    .map_or(50, |writes: u32| 100 - writes.min(100))
            })
        }
        _ => 0,
    };
    Workload {
        io_bytes: sizes.split([',', '/', ':', '-']).filter_map(size).max().unwrap_or(0),
        read_percent,
        distribution: option("random_distribution").unwrap_or_else(|| "uniform".to_owned()),
        seconds: job.job_runtime.max(0.0) / 1e3,
        verify: option("verify").is_some_and(|method| method != "0" && method != "none"),
        rate_limit_iops: option("rate_iops").and_then(|text| text.split(',').next()?.parse().ok()),
        arrivals: None,
        virtual_time: false,
        commands: None,
        amount: None,
        placement: None,
        shape: Shape { completion: option("completion").filter(|mode| mode != "poll"), ..Shape::default() },
        pattern,
    }
}

fn point(group: &Group<'_>) -> Point {
    let Group { output, jobs } = group;
    let rows: Vec<Row> = jobs.iter().map(|job| row(output, job)).collect();
    let first = jobs[0];
    let number = |job: &Job, name: &str| output.option(job, name).and_then(|text| text.parse::<u32>().ok());
    // Of a group that fio reports as one, its jobs are a number.
    let threads = |job: &Job| match number(job, "group_reporting")
        .or(output.option(job, "group_reporting").map(|_| 1))
    {
        Some(on) if on > 0 => number(job, "numjobs").unwrap_or(1).max(1),
        _ => 1,
    };
    let total = Row::total(&rows);
    let cores = jobs.iter().map(|job| (job.usr_cpu + job.sys_cpu) / 100.0).sum::<f64>();
    let all_threads: u32 = jobs.iter().map(|job| threads(job)).fold(0, u32::saturating_add);
    let names: Vec<&str> = jobs.iter().map(|job| job.jobname.as_str()).collect();
    let is_mixed = names.iter().any(|name| *name != names[0]);
    let figures = |job: &&Job| JobFigures {
        name: job.jobname.clone(),
        threads: threads(job),
        depth: number(job, "iodepth").unwrap_or(1),
        workload: workload(output, job),
        total: Row { label: "Total".to_owned(), ..row(output, job) },
        latency: latency(&[*job]),
    };
    Point {
        phase: Some(first.jobname.clone()),
        settings: Vec::new(),
        workload: Some(workload(output, first)),
        jobs: if is_mixed { jobs.iter().map(figures).collect() } else { Vec::new() },
        threads: all_threads,
        depth: number(first, "iodepth").unwrap_or(1),
        latency: latency(jobs),
        cpu: (cores > 0.0).then(|| CpuUse::new(cores, all_threads, total.iops)),
        rows,
        total,
        schedule: None,
        series: Vec::new(),
        write_amplification: None,
        pairs: None,
        trims: if jobs.iter().all(|job| only_trims(job)) { None } else { aside(jobs, |job| &job.trim) },
        flushes: aside(jobs, |job| &job.sync),
        repetitions: Vec::new(),
        spread: None,
        steady: None,
    }
}

/// The commands that figures are of: reads and writes, or trims where there is nothing else.
fn sides(job: &Job) -> Vec<&Side> {
    if only_trims(job) { vec![&job.trim] } else { vec![&job.read, &job.write] }
}

fn only_trims(job: &Job) -> bool {
    job.read.total_ios == 0 && job.write.total_ios == 0 && job.trim.total_ios > 0
}

fn row(output: &Output, job: &Job) -> Row {
    let sides = sides(job);
    let spreads = || sides.iter().map(|side| side.whole()).filter(|spread| spread.count > 0);
    let count: u64 = spreads().map(|spread| spread.count).fold(0, u64::saturating_add);
    let sum: f64 = spreads().map(|spread| spread.mean * spread.count as f64).sum();
    Row {
        label: output.option(job, "filename").unwrap_or_else(|| job.jobname.clone()),
        core: None,
        iops: sides.iter().map(|side| side.iops).sum(),
        mib_per_second: sides.iter().map(|side| side.bw_bytes).sum::<f64>() / f64::from(1 << 20),
        latency_us_average: (count > 0).then(|| sum / count as f64 / 1e3),
        latency_us_min: spreads().map(|spread| spread.min / 1e3).reduce(f64::min),
        latency_us_max: spreads().map(|spread| spread.max / 1e3).reduce(f64::max),
        errors: job.total_err.max(u64::from(job.error != 0)).min(ERRORS_MAX),
        miscompares: 0,
    }
}

/// Commands that move no data.
fn aside(jobs: &[&Job], side: impl Fn(&Job) -> &Side) -> Option<CommandFigures> {
    let spreads: Vec<&Spread> = jobs.iter().map(|job| side(job).whole()).collect();
    let done: u64 = jobs.iter().map(|job| side(job).total_ios).fold(0, u64::saturating_add);
    let timed: u64 = spreads.iter().map(|spread| spread.count).fold(0, u64::saturating_add);
    let count = done.max(timed);
    let sum: f64 = spreads.iter().map(|spread| spread.mean * spread.count as f64).sum();
    (count > 0).then(|| CommandFigures {
        count,
        latency_us_average: (timed > 0).then(|| sum / timed as f64 / 1e3),
        latency_us_p99: merged(jobs.iter().map(|job| side(job).spread()))
            .and_then(|all| all.percentile_us(99.0)),
    })
}

fn latency(jobs: &[&Job]) -> Option<Latency> {
    let all = merged(jobs.iter().flat_map(|job| sides(job)).map(Side::spread))?;
    let apart = |side: fn(&Job) -> &Side| merged(jobs.iter().map(|job| side(job).spread()));
    match (apart(|job| &job.read), apart(|job| &job.write)) {
        (Some(read), Some(write)) => Some(Latency { all, read: Some(read), write: Some(write) }),
        _ => Some(Latency { all, read: None, write: None }),
    }
}

/// Several spreads as one. One alone keeps the percentiles that fio lists.
fn merged<'a>(spreads: impl Iterator<Item = &'a Spread>) -> Option<Distribution> {
    let spreads: Vec<&Spread> = spreads.filter(|spread| spread.count > 0 && spread.max > 0.0).collect();
    let mut steps: BTreeMap<u64, u64> = BTreeMap::new();
    for spread in &spreads {
        for (ns, count) in counted(spread) {
            let all = steps.entry(ns).or_default();
            *all = all.saturating_add(count);
        }
    }
    let mut made = Distribution::from_steps_ns(&steps)?;
    if let [only] = spreads.as_slice() {
        let listed = percentiles(only);
        if !listed.is_empty() {
            made.percentiles = listed;
        }
    }
    Some(made)
}

fn percentiles(spread: &Spread) -> Vec<Percentile> {
    let at =
        |(percent, ns): (&String, &f64)| Some(Percentile { percent: percent.parse().ok()?, us: ns / 1e3 });
    let mut listed: Vec<Percentile> =
        spread.percentile.iter().filter_map(at).filter(|at| (0.0..=100.0).contains(&at.percent)).collect();
    listed.sort_by(|one, other| one.percent.total_cmp(&other.percent));
    listed
}

/// How many commands took how many nanoseconds: what `json+` says, or else what follows from the percentiles,
/// each share counted as long as the longest of it.
fn counted(spread: &Spread) -> Vec<(u64, u64)> {
    if !spread.bins.is_empty() {
        return spread.bins.iter().filter_map(|(ns, count)| Some((ns.parse().ok()?, *count))).collect();
    }
    let mut steps = Vec::new();
    let mut below = 0u64;
    let ends = percentiles(spread).into_iter().filter(|at| at.us > 0.0);
    for at in ends.chain([Percentile { percent: 100.0, us: spread.max / 1e3 }]) {
        let until = (spread.count as f64 * at.percent / 100.0).round() as u64;
        if until > below {
            steps.push(((at.us * 1e3) as u64, until - below));
            below = until;
        }
    }
    steps
}

/// Points are told apart by threads and depth where that does it, by sizes and mixes where that does, and
/// otherwise by the names of their jobs.
fn tell_apart(groups: &[Group<'_>], points: &mut [Point]) {
    let are_single = points.iter().all(|point| point.jobs.is_empty());
    let mut settings: Vec<Vec<Setting>> = vec![Vec::new(); points.len()];
    for (option, name) in SETTINGS {
        let value = |group: &Group<'_>| group.output.option(group.jobs[0], option).unwrap_or_default();
        let values: Vec<String> = groups.iter().map(value).collect();
        if values.iter().any(|value| *value != values[0]) {
            for (settings, value) in settings.iter_mut().zip(values) {
                let value = if option == "bs" {
                    size(&value).map_or(value, |bytes| bytes.to_string())
                } else {
                    value
                };
                settings.push(Setting { name: name.to_owned(), value });
            }
        }
    }
    let numbers = |point: &Point| [("threads", point.threads), ("depth", point.depth)];
    let is_swept = settings.iter().any(|settings| !settings.is_empty());
    for at in 0..2 {
        if is_swept && points.iter().any(|point| numbers(point)[at] != numbers(&points[0])[at]) {
            for (settings, point) in settings.iter_mut().zip(points.iter()) {
                let (name, number) = numbers(point)[at];
                settings.push(Setting { name: name.to_owned(), value: number.to_string() });
            }
        }
    }
    let mut keys: Vec<_> = points
        .iter()
        .zip(&settings)
        .map(|(point, settings)| {
            let values: Vec<&str> = settings.iter().map(|setting| setting.value.as_str()).collect();
            (point.threads, point.depth, values)
        })
        .collect();
    keys.sort();
    let is_told = keys.windows(2).all(|pair| pair[0] != pair[1]) && !have_other_options(groups);
    if are_single && is_told {
        for (point, settings) in points.iter_mut().zip(settings) {
            point.phase = None;
            point.settings = settings;
        }
    }
}

/// Jobs differ in what settings do not say.
fn have_other_options(groups: &[Group<'_>]) -> bool {
    let said =
        ["name", "bs", "rwmixread", "rw", "iodepth", "numjobs", "stonewall", "group_reporting", "new_group"];
    let others = |group: &Group<'_>| -> Options {
        let mut all = group.output.global.clone();
        all.extend(group.jobs[0].options.clone());
        all.retain(|name, _| !said.contains(&name.as_str()));
        all
    };
    let all: Vec<Options> = groups.iter().map(others).collect();
    all.iter().any(|options| *options != all[0])
}
