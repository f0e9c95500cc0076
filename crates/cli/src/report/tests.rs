//! The renderers, through the functions that the command line calls.

use hdrhistogram::Histogram;

use super::latency::Distribution;
use super::table::Percentiles;
use super::{
    CommandFigures, Latency, Point, Row, RowRates, Run, csv, html, sample, sentence, stalled, table,
    write_json,
};

/// Runs a renderer into a string.
fn rendered(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).expect("writing to memory succeeds");
    String::from_utf8(out).expect("every renderer writes UTF-8")
}

fn page(run: &Run) -> String {
    rendered(|out| html::write(run, out))
}

/// The row of the benchmark document whose table is reproduced here.
fn document_row() -> Row {
    Row {
        label: "PCIE (e20005:04:00.0) NSID 1".to_owned(),
        core: Some(0),
        iops: 102_351.15,
        mib_per_second: 399.81,
        latency_us_average: Some(9.76),
        latency_us_min: Some(8.55),
        latency_us_max: Some(49_644.32),
        errors: 0,
        miscompares: 0,
    }
}

fn point_of(rows: Vec<Row>) -> Point {
    Point::of_rows(1, 1, rows)
}

#[test]
fn the_table_has_the_bytes_of_the_benchmark_document() {
    let text = rendered(|out| table::write(&point_of(vec![document_row()]), Percentiles::List, out));
    let expected = "\
========================================================
                                                                             Latency(us)
Device Information                       :       IOPS      MiB/s    Average        min        max
PCIE (e20005:04:00.0) NSID 1 from core  0:  102351.15     399.81       9.76       8.55   49644.32
========================================================
Total                                    :  102351.15     399.81       9.76       8.55   49644.32
";
    assert_eq!(text, expected);
}

#[test]
fn rows_of_several_cores_and_longer_names_stay_aligned() {
    let long = "VFIO-USER (vfio-user:/run/unvme/0.sock) NSID 12";
    let other = Row { label: long.to_owned(), core: Some(11), iops: 50_000.0, ..document_row() };
    let text = rendered(|out| table::write(&point_of(vec![document_row(), other]), Percentiles::List, out));
    let expected = "\
========================================================
                                                                                                Latency(us)
Device Information                                          :       IOPS      MiB/s    Average        min        max
PCIE (e20005:04:00.0) NSID 1 from core  0                   :  102351.15     399.81       9.76       8.55   49644.32
VFIO-USER (vfio-user:/run/unvme/0.sock) NSID 12 from core 11:   50000.00     399.81       9.76       8.55   49644.32
========================================================
Total                                                       :  152351.15     799.62       9.76       8.55   49644.32
";
    assert_eq!(text, expected);
}

#[test]
fn percentiles_follow_the_table_when_latency_was_recorded() {
    let mut ns = Histogram::<u64>::new(3).expect("three digits are allowed");
    ns.record_n(9_000, 1970).expect("the range grows");
    ns.record_n(20_000, 29).expect("the range grows");
    ns.record_n(150_000, 1).expect("the range grows");
    let point = Point { latency: Latency::from_histogram_ns(&ns), ..point_of(vec![document_row()]) };
    let text = rendered(|out| table::write(&point, Percentiles::List, out));
    let expected = "
Summary latency data for PCIE (e20005:04:00.0) NSID 1:
=================================================================================
  1.00000% :     9.007us
 10.00000% :     9.007us
 25.00000% :     9.007us
 50.00000% :     9.007us
 75.00000% :     9.007us
 90.00000% :     9.007us
 95.00000% :     9.007us
 98.00000% :     9.007us
 99.00000% :    20.015us
 99.50000% :    20.015us
 99.90000% :    20.015us
 99.99000% :   150.015us
 99.99900% :   150.015us
";
    assert!(text.ends_with(expected), "{text}");
}

#[test]
fn a_line_of_percentiles_goes_as_far_as_there_are_samples() {
    let line = |samples: u64| {
        let mut ns = Histogram::<u64>::new(3).expect("three digits are allowed");
        ns.record_n(1_000, samples).expect("the range grows");
        let point = Point { latency: Latency::from_histogram_ns(&ns), ..point_of(vec![document_row()]) };
        let text = rendered(|out| table::write(&point, Percentiles::Line, out));
        assert!(!text.contains("Summary latency data"), "{text}");
        text.lines().find_map(|line| line.strip_prefix("Latency: ").map(str::to_owned))
    };
    assert_eq!(line(199), None);
    assert_eq!(line(200).as_deref(), Some("p50 1.00 µs"));
    assert_eq!(line(99_000).as_deref(), Some("p50 1.00 µs, p90 1.00 µs, p99 1.00 µs"));
    let far = line(100_000_000_000).expect("a line");
    assert!(far.ends_with(", p99.9999999 1.00 µs") && far.matches(", p").count() == 9, "{far}");
}

#[test]
fn a_device_cannot_send_escape_sequences_to_the_terminal() {
    let row = Row { label: "VIRT (\u{1b}[2J\u{202e}x) NSID 1".to_owned(), ..document_row() };
    let text = rendered(|out| table::write(&point_of(vec![row]), Percentiles::List, out));
    assert!(text.contains("VIRT (?[2J?x) NSID 1 from core  0"), "{text}");
}

#[test]
fn failed_commands_are_named_below_the_total() {
    let row = Row { errors: 3, miscompares: 1, ..document_row() };
    let text = rendered(|out| table::write(&point_of(vec![row]), Percentiles::List, out));
    assert!(text.ends_with("49644.32\n3 commands failed, 1 read returned wrong data\n"), "{text}");
}

#[test]
fn the_summary_of_a_sweep_has_a_row_per_depth_and_columns_per_thread_count() {
    let mut wide = point_of(vec![document_row()]);
    wide.threads = 2;
    wide.depth = 16;
    let run = Run { points: vec![point_of(vec![document_row()]), wide], ..sample::single(1, 1) };
    let text = rendered(|out| table::write_sweep(&run, out));
    let expected = "
       |            1 thread               |            2 threads
Depth  |       IOPS    avg(us)    p99(us)  |       IOPS    avg(us)    p99(us)
-------+-----------------------------------+---------------------------------
    1  |  102351.15       9.76          -  |          -          -          -
   16  |          -          -          -  |  102351.15       9.76          -
";
    assert_eq!(format!("\n{text}"), expected);
}

#[test]
fn a_total_weighs_the_average_by_rate_and_skips_rows_without_a_command() {
    let row = |iops: f64, average: f64, min: f64| Row {
        iops,
        latency_us_average: Some(average),
        latency_us_min: Some(min),
        ..document_row()
    };
    let idle = idle_row();
    let total = Row::total(&[row(300.0, 10.0, 5.0), row(100.0, 50.0, 7.0), idle.clone()]);
    assert_eq!((total.iops, total.latency_us_average, total.latency_us_min), (400.0, Some(20.0), Some(5.0)));
    let nothing = Row::total(&[idle]);
    assert_eq!((nothing.iops, nothing.latency_us_average, nothing.latency_us_min), (0.0, None, None));
}

/// A row in which no command completed.
fn idle_row() -> Row {
    Row {
        iops: 0.0,
        mib_per_second: 0.0,
        latency_us_average: None,
        latency_us_min: None,
        latency_us_max: None,
        ..document_row()
    }
}

#[test]
fn a_point_without_a_completion_has_no_latency_in_any_form() {
    let mut run = sample::single(1, 1);
    let mut point = point_of(vec![idle_row()]);
    run.points = vec![point.clone()];
    let told = "no command completed in the time measured: threads 1, depth 1";
    assert_eq!(stalled(&run).as_deref(), Some(told));
    let table = rendered(|out| table::write(&point, Percentiles::Line, out));
    assert!(table.contains("0.00       0.00          -          -          -"), "{table}");
    let json = rendered(|out| write_json(&run, out));
    assert!(json.contains("\"latency_us_average\": null"), "{json}");
    assert_eq!(serde_json::from_str::<Run>(&json).expect("a run"), run);
    assert!(rendered(|out| csv::write(&run, out)).contains(",0.00,0.00,,,,,,,,0,0,"), "empty fields");
    assert!(page(&run).contains("no completions"));
    assert!(sentence(&run).ends_with("; no completions"), "{}", sentence(&run));
    // Deallocations are commands, too.
    let mut ns = Histogram::<u64>::new(3).expect("three digits are allowed");
    ns.record(1000).expect("the range grows");
    point.trims = Some(CommandFigures::from_histogram_ns(&ns));
    run.points = vec![point];
    assert_eq!(stalled(&run), None);
}

#[test]
fn a_row_converts_nanoseconds_and_bytes() {
    let mut ns = Histogram::<u64>::new(3).expect("three digits are allowed");
    ns.record_n(1_000, 512).expect("the range grows");
    let rates = RowRates { seconds: 2.0, bytes: 512 * 4096, errors: 1, miscompares: 0 };
    let row = Row::from_histogram_ns("x".to_owned(), 3, &ns, rates);
    assert_eq!((row.iops, row.mib_per_second, row.core, row.errors), (256.0, 1.0, Some(3), 1));
    assert_eq!((row.latency_us_average, row.latency_us_min), (Some(1.0), Some(1.0)));
}

#[test]
fn buckets_keep_every_command_in_ascending_order_and_end_at_the_longest() {
    let mut ns = Histogram::<u64>::new(3).expect("three digits are allowed");
    for value in (500..90_000).step_by(7) {
        ns.record(value).expect("the range grows");
    }
    let spread = Distribution::from_histogram_ns(&ns).expect("the histogram is not empty");
    assert_eq!(spread.buckets.iter().map(|bucket| bucket.count).sum::<u64>(), ns.len());
    assert!(spread.buckets.is_sorted_by(|one, other| one.value_us < other.value_us));
    assert!(spread.buckets.len() < 260, "{} buckets for 7.5 octaves", spread.buckets.len());
    assert_eq!(spread.buckets.last().map(|bucket| bucket.value_us), Some(ns.max() as f64 / 1e3));
}

#[test]
fn an_empty_histogram_has_no_latency_and_neither_has_its_row() {
    let ns = Histogram::<u64>::new(3).expect("three digits are allowed");
    assert_eq!(Latency::from_histogram_ns(&ns), None);
    let rates = RowRates { seconds: 1.0, bytes: 0, errors: 9, miscompares: 0 };
    let row = Row::from_histogram_ns("x".to_owned(), 0, &ns, rates);
    assert_eq!(
        (row.iops, row.latency_us_average, row.latency_us_min, row.latency_us_max),
        (0.0, None, None, None)
    );
}

#[test]
fn reads_and_writes_are_kept_apart_and_together() {
    let mut read = Histogram::<u64>::new(3).expect("three digits are allowed");
    read.record_n(1_000, 30).expect("the range grows");
    let mut write = Histogram::<u64>::new(3).expect("three digits are allowed");
    write.record_n(8_000, 10).expect("the range grows");
    let latency = Latency::from_read_and_write_ns(&read, &write).expect("something was recorded");
    let samples = |part: Option<&Distribution>| part.map(|part| part.samples);
    assert_eq!(latency.all.samples, 40);
    assert_eq!((samples(latency.read.as_ref()), samples(latency.write.as_ref())), (Some(30), Some(10)));
    assert_eq!(latency.all.percentile_us(50.0), Some(1.0));
}

#[test]
fn json_comes_back_as_it_was() {
    let run = sample::sweep(&[1, 2], 4);
    let text = rendered(|out| write_json(&run, out));
    assert!(text.contains("\"latency_us_average\": ") && text.ends_with("}\n"));
    assert_eq!(serde_json::from_str::<Run>(&text).expect("what was written can be read"), run);
}

#[test]
fn json_refuses_what_it_could_not_read_back() {
    let mut run = sample::single(1, 32);
    run.points[0].total.latency_us_max = Some(f64::INFINITY);
    let error = write_json(&run, &mut Vec::new()).expect_err("infinity is not JSON");
    assert_eq!(error.to_string(), "a figure of the point of 1 thread at depth 32 is not a finite number");
}

#[test]
fn csv_has_a_line_per_core_and_one_for_the_sum_and_quotes_what_would_split() {
    let mut run = sample::single(1, 1);
    let row = Row { label: "a \"b\", c".to_owned(), ..document_row() };
    run.points = vec![point_of(vec![row])];
    let text = rendered(|out| csv::write(&run, out));
    let expected = "pattern,io_bytes,read_percent,threads,depth,scope,device,core,iops,mib_per_second,\
        latency_us_average,latency_us_min,latency_us_max,point_latency_us_p50,point_latency_us_p99,\
        point_latency_us_p99_9,point_latency_us_p99_99,errors,miscompares,\
        point_from_submission_us_average,point_from_submission_us_p99,point_overdue_commands,\
        point_cpu_percent,point_cpu_us_per_command,interrupted,phase,settings\r\n\
        randread,4096,100,1,1,core,\"a \"\"b\"\", c\",0,102351.15,399.81,9.760,8.550,49644.320,,,,,0,0,,,,,,false,,\r\n\
        randread,4096,100,1,1,total,Total,,102351.15,399.81,9.760,8.550,49644.320,,,,,0,0,,,,,,false,,\r\n";
    assert_eq!(text, expected);
}

#[test]
fn nothing_that_a_device_or_a_user_says_becomes_markup() {
    let evil = "<script>alert(1)</script>\"'&\u{0}";
    let mut run = sample::sweep(&[1, 2], 8);
    let device = &mut run.devices[0];
    for field in [&mut device.name, &mut device.transport, &mut device.model, &mut device.serial] {
        evil.clone_into(field);
    }
    evil.clone_into(&mut device.firmware);
    for field in
        [&mut run.started, &mut run.tool_version, &mut run.machine.cpu_model, &mut run.machine.kernel]
    {
        evil.clone_into(field);
    }
    evil.clone_into(&mut run.workload.pattern);
    evil.clone_into(&mut run.workload.distribution);
    run.command_line.push(evil.to_owned());
    for point in &mut run.points {
        point.rows.iter_mut().for_each(|row| evil.clone_into(&mut row.label));
    }
    let text = page(&run);
    assert_eq!(text.matches("<script>").count(), 1, "only the page's own script");
    assert!(!text.contains("<script>alert"));
    assert!(!text.contains('\0'));
    let escaped = "&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;\u{fffd}";
    // Title, heading and five lines of the device, its model again in the header, and the rest once or more.
    assert!(text.matches(escaped).count() >= 14, "{}", text.matches(escaped).count());
}

#[test]
fn the_page_refers_to_nothing_outside() {
    let text = page(&sample::sweep(&[1, 2, 4], 64));
    for reference in ["http://", "https://", "src=", "@import", "url("] {
        assert!(!text.contains(reference), "{reference}");
    }
    assert_eq!(text.matches("href=").count(), 1, "the empty icon");
}

#[test]
fn a_sweep_is_drawn_with_a_line_per_thread_count() {
    let text = page(&sample::sweep(&[1, 2], 256));
    assert_eq!(text.matches("<figure").count(), 6);
    for title in [
        "Throughput by queue depth",
        "Latency by queue depth",
        "Latency by throughput",
        "Latency percentiles",
        "Latency distribution",
        "Throughput over time",
    ] {
        assert!(text.contains(&format!("<h3>{title}</h3>")), "{title}");
    }
    assert!(text.contains("at depth 256 on 2 threads; "));
    assert!(!text.contains("NaN") && !text.contains("inf"), "a coordinate is not a number");
}

#[test]
fn a_single_point_is_drawn_without_the_plots_of_a_sweep() {
    let text = page(&sample::single(1, 32));
    assert_eq!(text.matches("<figure").count(), 3);
    assert!(!text.contains("Throughput by") && text.contains("Latency percentiles"));
}

#[test]
fn thread_counts_at_one_depth_are_drawn_over_threads() {
    let mut run = sample::single(1, 32);
    run.points.extend([sample::point(2, 32), sample::point(4, 32)]);
    let text = page(&run);
    assert!(text.contains("Throughput by thread count") && text.contains(">Threads</text>"));
}

#[test]
fn a_run_without_latency_without_series_or_without_points_is_still_a_page() {
    let mut run = sample::sweep(&[1], 8);
    for point in &mut run.points {
        point.latency = None;
        point.series.clear();
    }
    assert_eq!(page(&run).matches("<figure").count(), 3);
    for point in &mut run.points {
        point.rows.clear();
        point.total = Row::total(&[]);
    }
    let idle = page(&run);
    assert!(idle.contains("0 IOPS") && !idle.contains("NaN"), "nothing completed");
    run.points.clear();
    run.devices.clear();
    run.harness = None;
    assert!(page(&run).contains("Nothing was measured."));
}

#[test]
fn failures_are_said_at_the_top_of_the_page() {
    let mut run = sample::single(1, 1);
    assert!(!page(&run).contains("role=\"alert\""));
    run.points[0].total.errors = 2;
    assert!(page(&run).contains("role=\"alert\">2 commands failed.</p>"));
}

#[test]
fn an_interrupted_run_says_so_in_every_form() {
    let mut run = sample::single(1, 1);
    assert!(!page(&run).contains("Stopped early") && page(&run).matches("role=\"alert\"").count() == 0);
    run.interrupted = true;
    assert!(page(&run).contains("role=\"alert\">Stopped early: the figures are of the time until then.</p>"));
    assert!(rendered(|out| write_json(&run, out)).contains("\"interrupted\": true"));
    let text = rendered(|out| csv::write(&run, out));
    assert!(text.lines().skip(1).all(|line| line.ends_with(",true,,")), "{text}");
}

#[test]
fn phases_are_told_by_their_names_and_not_swept() {
    let mut run = sample::sweep(&[1], 4);
    for (point, phase) in run.points.iter_mut().zip(["write", "read", "<delete>"]) {
        (point.phase, point.depth) = (Some(phase.to_owned()), 64);
    }
    run.workload.commands = Some(1000);
    run.devices[0].block_bytes = 0;
    let text = page(&run);
    assert_eq!(text.matches("<figure").count(), 3, "percentiles, distribution, over time");
    assert!(
        text.contains("<th scope=\"col\" class=\"name\">Phase</th>") && text.contains(">&lt;delete&gt;<"),
        "{text}"
    );
    assert!(text.contains("for keys and values") && text.contains("1,000 commands of each thread"), "{text}");
    let sentence = sentence(&run);
    assert!(sentence.starts_with("write: ") && sentence.contains("; read: "), "{sentence}");
    let json = rendered(|out| write_json(&run, out));
    assert_eq!(serde_json::from_str::<Run>(&json).expect("what was written can be read"), run);
}

#[test]
fn a_figure_has_a_drawing_for_each_width_and_the_style_sheet_shows_one() {
    let text = page(&sample::sweep(&[1, 2], 8));
    for figure in text.split("<figure").skip(1) {
        let classes: Vec<&str> =
            figure.split("<svg class=\"").skip(1).filter_map(|svg| svg.split('"').next()).collect();
        let wide = figure.starts_with(" class=\"chart wide\"");
        let expected: &[&str] = if wide { &["large", "medium", "small"] } else { &["medium", "small"] };
        assert_eq!(classes, expected);
        assert!(figure.contains("viewBox=\"0 0 360 ") && !figure.contains("min-width"), "{figure}");
    }
    assert!(text.contains("@media print, (max-width: 560px)") && text.contains("break-inside: avoid"));
}

#[test]
fn every_plot_has_figures_with_a_unit_for_the_pointer() {
    let text = page(&sample::sweep(&[1, 2], 8));
    for figure in text.split("<figure").skip(1) {
        let figure = figure.split("</figure>").next().expect("its end");
        let tips: Vec<&str> =
            figure.split("<title>").skip(1).filter_map(|tip| tip.split("</title>").next()).collect();
        assert!(tips.len() > 3, "{figure}");
        let unit = |tip: &&str| ["IOPS", "µs", "ms", "%"].iter().any(|unit| tip.contains(unit));
        assert!(tips.iter().all(unit), "{tips:?}");
    }
}

#[test]
fn two_reports_are_told_apart_by_title_and_header() {
    let run = sample::single(1, 32);
    let text = page(&run);
    let device = &run.devices[0];
    let title = format!("<title>4 KiB random read, {}, {}</title>", device.name, run.started);
    assert!(text.contains(&title), "{title}");
    let header =
        text.split("<header>").nth(1).and_then(|rest| rest.split("</header>").next()).expect("a header");
    let machine = &run.machine;
    for said in [&device.model, &device.serial, &device.firmware, &device.transport, &machine.cpu_model] {
        assert!(header.contains(said.as_str()), "{said}: {header}");
    }
    for said in [&machine.kernel, &run.started, &run.tool_version] {
        assert!(header.contains(said.as_str()), "{said}: {header}");
    }
}

/// What the script of the page makes of the data in it.
fn raw_json(page: &str) -> String {
    let rest = page.split("<script type=\"application/json\" id=\"data\">").nth(1).expect("data");
    let data = rest.split("</script>").next().expect("its end");
    assert!(!data.contains('<'), "something that a parser of HTML could take for an end");
    let mut json = String::new();
    let mut rest = data;
    while let Some(at) = rest.find('\\') {
        json.push_str(&rest[..at]);
        let end = if rest[at..].starts_with("\\u003c") { at + 6 } else { at + 2 };
        json.push_str(if end == at + 6 { "<" } else { &rest[at..end] });
        rest = &rest[end..];
    }
    json + rest
}

#[test]
fn the_page_hands_out_the_very_json_of_the_run() {
    let mut run = sample::single(1, 32);
    for evil in ["</script><script>alert(1)</script>", "<!--<script>", "\\u003c \\\\u003c", "\u{2028}\"\\"] {
        run.devices[0].serial = evil.to_owned();
        let text = page(&run);
        assert_eq!(raw_json(&text), rendered(|out| write_json(&run, out)));
        assert_eq!(text.matches("<script").count(), 2, "the data and the page's own script");
    }
    assert!(text_of_link(&page(&run)).contains("download="));
    run.points[0].total.latency_us_max = Some(f64::INFINITY);
    assert!(!page(&run).contains("id=\"data\""), "there is no JSON of it");
}

fn text_of_link(page: &str) -> &str {
    page.split("<a id=\"raw\"").nth(1).and_then(|rest| rest.split('>').next()).expect("a link")
}
