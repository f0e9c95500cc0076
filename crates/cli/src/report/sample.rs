//! Runs made up for the tests of the renderers: plausible in every figure, the same on every machine.

use hdrhistogram::Histogram;

use super::{
    DeviceIdentity, HarnessCost, Latency, Machine, Point, Row, RowRates, Run, Sample, Shape, Workload,
};

/// Latency of the pretended device at rest, what one thread can drive, and what the device gives at most.
const SERVICE_NS: f64 = 9_760.0;
const THREAD_IOPS: f64 = 634_000.0;
const DEVICE_IOPS: f64 = 1.51e6;
const IO_BYTES: u64 = 4096;

/// A sweep over `threads` and powers of two up to `deepest`.
pub(crate) fn sweep(threads: &[u32], deepest: u32) -> Run {
    let mut points = Vec::new();
    for &threads in threads {
        let mut depth = 1;
        while depth <= deepest {
            points.push(point(threads, depth));
            depth *= 2;
        }
    }
    run(points)
}

/// A run of one point.
pub(crate) fn single(threads: u32, depth: u32) -> Run {
    run(vec![point(threads, depth)])
}

fn run(points: Vec<Point>) -> Run {
    let words =
        "unvme perf -r mem:block:1G -w randread -o 4096 -t 10 --latency --matrix threads=1,2 depth=1..256";
    Run {
        tool_version: "0.1.0".to_owned(),
        started: "2025-11-20T10:34:07Z".to_owned(),
        command_line: words.split(' ').map(str::to_owned).collect(),
        machine: Machine {
            cpu_model: "AMD EPYC 7B13".to_owned(),
            cores: 2,
            memory_bytes: 8 << 30,
            kernel: "Linux 6.1.0-28-amd64".to_owned(),
            hugepages_bytes: 1 << 30,
        },
        devices: vec![DeviceIdentity {
            name: "mem:block:1G".to_owned(),
            transport: "VIRT".to_owned(),
            model: "unvme virtual SSD".to_owned(),
            serial: "UNVME0000000001".to_owned(),
            firmware: "0.1.0".to_owned(),
            nsid: 1,
            block_bytes: 4096,
            capacity_bytes: 1 << 30,
        }],
        workload: Workload {
            pattern: "randread".to_owned(),
            io_bytes: IO_BYTES,
            read_percent: 100,
            distribution: "uniform".to_owned(),
            seconds: 10.0,
            verify: false,
            rate_limit_iops: None,
            arrivals: None,
            virtual_time: false,
            commands: None,
            amount: None,
            placement: None,
            shape: Shape::default(),
        },
        points,
        harness: Some(HarnessCost { depth: 256, ops_per_second: 46.7e6, ns_per_op: 21.4 }),
        unjudged_reads: None,
        interrupted: false,
    }
}

/// One point: the rate approaches that of a saturated thread, the latency follows from it (Little's law).
pub(crate) fn point(threads: u32, depth: u32) -> Point {
    let unloaded = f64::from(depth) * 1e9 / SERVICE_NS;
    let limit = THREAD_IOPS.min(DEVICE_IOPS / f64::from(threads));
    let iops = unloaded / (1.0 + (unloaded / limit).powi(4)).powf(0.25);
    let average_ns = f64::from(depth) * 1e9 / iops;
    let seconds = 10.0;
    let mut all = Histogram::<u64>::new(3).expect("three digits are allowed");
    let mut rows = Vec::new();
    for core in 0..threads {
        let core_histogram = latencies(average_ns, (iops * seconds) as u64 + u64::from(core) * 4321);
        let rates = RowRates { seconds, bytes: core_histogram.len() * IO_BYTES, errors: 0, miscompares: 0 };
        rows.push(Row::from_histogram_ns(
            "VIRT (mem:block:1G) NSID 1".to_owned(),
            core,
            &core_histogram,
            rates,
        ));
        all.add(&core_histogram).expect("both have three digits");
    }
    let total = Row::total(&rows);
    let wobble =
        |second: u32| 1.0 + 0.012 * (f64::from(second) * 1.7).sin() - if second == 6 { 0.05 } else { 0.0 };
    let series =
        (1..=10).map(|second| Sample::of_rate(f64::from(second), total.iops * wobble(second))).collect();
    Point { latency: Latency::from_histogram_ns(&all), series, ..Point::of_rows(threads, depth, rows) }
}

/// A narrow body with a shoulder and a long tail around `average_ns`.
fn latencies(average_ns: f64, count: u64) -> Histogram<u64> {
    let mut histogram = Histogram::new(3).expect("three digits are allowed");
    let steps = 4000;
    for step in 0..steps {
        let share = (f64::from(step) + 0.5) / f64::from(steps);
        let logit = (share / (1.0 - share)).ln();
        let body = average_ns * 0.97 * (0.045 * logit).exp();
        histogram.record_n(body as u64, count / 4000).expect("the range grows");
        histogram.record_n((body * 1.3) as u64, count / 60000).expect("the range grows");
    }
    let mut tail = count / 500;
    let mut at = average_ns * 1.6;
    while tail > 0 {
        histogram.record_n(at as u64, tail).expect("the range grows");
        tail = tail * 3 / 5;
        at = at * 1.24 + 40.0;
    }
    histogram
}
