//! Comparisons of runs that are made up.

use super::*;
use crate::report::{combine, sample};

/// A run of depths, each measured once for each factor, by which its rate is higher and its latency lower.
fn run(depths: &[u32], factors: &[f64]) -> Run {
    let mut run = sample::single(1, 1);
    let scaled = |depth: u32, factor: f64| {
        let mut point = sample::point(1, depth);
        for row in point.rows.iter_mut().chain([&mut point.total]) {
            row.iops *= factor;
            row.mib_per_second *= factor;
            row.latency_us_average = row.latency_us_average.map(|us| us / factor);
        }
        point
    };
    let point = |&depth: &u32| combine(factors.iter().map(|&factor| scaled(depth, factor)).collect());
    run.points = depths.iter().filter_map(point).collect();
    run
}

fn compare(one: Run, other: Run) -> Comparison {
    Comparison::new(vec![(Some("a.json".to_owned()), one), (Some("b.json".to_owned()), other)])
        .expect("points in common")
}

fn text(comparison: &Comparison) -> String {
    let mut out = Vec::new();
    text::write(comparison, &mut out).expect("a vector");
    String::from_utf8(out).expect("UTF-8")
}

const AROUND: [f64; 5] = [0.99, 1.0, 1.01, 0.995, 1.005];

#[test]
fn a_difference_beyond_the_spread_is_shown_and_named() {
    let slower = AROUND.map(|factor| factor * 0.8);
    let comparison = compare(run(&[1, 8], &AROUND), run(&[8, 1], &slower));
    assert_eq!(comparison.points.len(), 2);
    let iops = &comparison.points[0].metrics[0];
    assert_eq!((iops.metric, iops.verdict, iops.repetitions), (Metric::Iops, Verdict::Worse, (5, 5)));
    assert!((iops.test.p - 2.0 / 252.0).abs() < 1e-12, "{}", iops.test.p);
    let text = text(&comparison);
    assert!(text.contains("Mann-Whitney U test, exact, two-sided"), "{text}");
    assert!(text.contains("0.008  B is worse"), "{text}");
    // The tail is the same each time.
    assert!(text.contains("p99 latency") && text.contains("1.000  no difference shown"), "{text}");
    assert_eq!(comparison.worse_by_more_than(30.0), Vec::<String>::new());
    let worse = comparison.worse_by_more_than(19.0);
    assert_eq!(worse.len(), 6, "{worse:?}");
    assert!(
        worse[0].contains("IOPS of B, 4 KiB random read, 1 thread, depth 1, is 20.0 % worse"),
        "{worse:?}"
    );
}

#[test]
fn a_side_that_completes_nothing_has_no_better_latency() {
    let stalled = |version: &str| {
        let mut run = run(&[1], &AROUND);
        for repetition in &mut run.points[0].repetitions[1..3] {
            (repetition.iops, repetition.mib_per_second) = (0.0, 0.0);
            // As earlier versions wrote it.
            repetition.latency_us_average = (version == "old").then_some(0.0);
            repetition.latency_us_p99 = None;
        }
        run
    };
    for version in ["new", "old"] {
        let comparison = compare(run(&[1], &AROUND), stalled(version));
        let metrics: Vec<Metric> = comparison.points[0].metrics.iter().map(|it| it.metric).collect();
        assert_eq!(metrics, [Metric::Iops, Metric::MibPerSecond], "{version}");
        let told = "B: no completions in 2 of 5 repetitions: its latency is not compared";
        assert!(text(&comparison).contains(told), "{}", text(&comparison));
        let worse = comparison.worse_by_more_than(1e6);
        assert_eq!(worse, [format!("{told}, of {}", comparison.points[0].what)]);
        assert!(compare(stalled(version), run(&[1], &AROUND)).worse_by_more_than(1e6).is_empty());
    }
}

#[test]
fn no_p_is_written_as_zero() {
    let rates: Vec<f64> = (0..10).map(|step| 1.0 + f64::from(step) / 1000.0).collect();
    let slower: Vec<f64> = rates.iter().map(|rate| rate / 2.0).collect();
    let text = text(&compare(run(&[1], &rates), run(&[1], &slower)));
    assert!(text.contains("  <0.001  B is worse") && !text.contains("0.000 "), "{text}");
}

#[test]
fn runs_that_do_not_differ_are_not_said_to() {
    let comparison = compare(run(&[1], &AROUND), run(&[1], &AROUND));
    let all = || comparison.points.iter().flat_map(|point| &point.metrics);
    assert!(all().all(|metric| metric.verdict == Verdict::NoDifferenceShown));
    assert!(all().all(|metric| metric.ratio.is_some_and(|ratio| ratio.ratio == 1.0)));
}

#[test]
fn too_few_repetitions_are_said_to_be() {
    let comparison = compare(run(&[1], &AROUND[..3]), run(&[1], &[0.1, 0.2, 0.3]));
    assert_eq!(comparison.points[0].metrics[0].verdict, Verdict::TooFewRepetitions);
    let text = text(&comparison);
    let said =
        "no difference shown: 3 against 3 repetitions give a p of 0.10 at best, 4 against 4 one of 0.029";
    assert!(text.contains(said), "{text}");
    assert!(comparison.worse_by_more_than(0.0).is_empty());
    let once = compare(run(&[1], &[1.0]), run(&[1], &[2.0]));
    assert!(once.points[0].metrics[0].ratio.is_some_and(|ratio| ratio.interval.is_none()));
}

#[test]
fn points_of_one_side_alone_are_named() {
    let comparison = compare(run(&[1, 8], &AROUND), run(&[8, 32], &AROUND));
    let text = text(&comparison);
    assert!(text.contains("Only in A, not in B: 4 KiB random read, 1 thread, depth 1\n"), "{text}");
    assert!(text.contains("Only in B, not in A: 4 KiB random read, 1 thread, depth 32\n"), "{text}");
    let none = Comparison::new(vec![(None, run(&[1], &AROUND)), (None, run(&[2], &AROUND))]);
    assert!(none.expect_err("nothing in common").contains("nothing to compare"));
}

#[test]
fn the_page_draws_all_sides_in_each_picture() {
    let comparison = compare(run(&[1, 8], &AROUND), run(&[1, 8], &[0.5; 5]));
    let mut out = Vec::new();
    page::write(&comparison, &mut out).expect("a vector");
    let page = String::from_utf8(out).expect("UTF-8");
    let figures: Vec<&str> = page.split("<figure").skip(1).collect();
    assert_eq!(figures.len(), 5);
    for figure in figures {
        assert!(figure.contains("line c0") && figure.contains("line c1"), "{figure}");
    }
}
