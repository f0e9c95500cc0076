use super::*;

/// A file of fio's with these jobs.
fn file(global: &str, jobs: &str) -> String {
    format!(
        "{{\n\"fio version\" : \"fio-3.33\", \"timestamp\" : 1763634847, \"global options\" : {{{global}}}, \
         \"jobs\" : [{jobs}]\n}}\n"
    )
}

fn job(name: &str, group: u32, options: &str, iops: f64) -> String {
    format!(
        "{{\"jobname\" : \"{name}\", \"groupid\" : {group}, \"error\" : 0, \"job options\" : {{{options}}}, \
         \"job_runtime\" : 5000, \"usr_cpu\" : 50.0, \"sys_cpu\" : 25.0, \
         \"read\" : {{\"iops\" : {iops}, \"bw_bytes\" : {}, \"total_ios\" : 1000, \
         \"lat_ns\" : {{\"min\" : 900, \"max\" : 50000, \"mean\" : 2000.0, \"N\" : 1000}}, \
         \"clat_ns\" : {{\"min\" : 800, \"max\" : 49000, \"mean\" : 1900.0, \"N\" : 1000, \
         \"percentile\" : {{\"50.000000\" : 1800, \"99.000000\" : 9000}}}}}}}}",
        iops * 4096.0
    )
}

fn run(text: &str) -> Run {
    let output = Output::parse(text).expect("it is fio's");
    run_of(&[("a.json".to_owned(), output)]).expect("there are jobs")
}

#[test]
fn a_job_is_a_point_with_its_figures() {
    let text = file("\"filename\" : \"mem\\\\:block\\\\:1G\", \"ioengine\" : \"/x/fio-unvme.so\"", "");
    let text = text.replace(
        "[]",
        &format!("[{}]", job("t", 0, "\"rw\":\"randread\",\"bs\":\"4k\",\"iodepth\":\"32\"", 5e5)),
    );
    let run = run(&text);
    assert_eq!(run.started, "2025-11-20T10:34:07Z");
    assert_eq!(
        (run.workload.pattern.as_str(), run.workload.io_bytes, run.workload.read_percent),
        ("randread", 4096, 100)
    );
    assert_eq!(
        (run.devices[0].name.as_str(), run.devices[0].transport.as_str()),
        ("mem:block:1G", "fio-3.33, fio-unvme.so")
    );
    let [point] = run.points.as_slice() else { panic!("{} points", run.points.len()) };
    assert_eq!((point.phase.as_deref(), point.threads, point.depth), (None, 1, 32));
    assert_eq!(
        (point.total.iops, point.total.latency_us_average, point.total.latency_us_max),
        (5e5, Some(2.0), Some(50.0))
    );
    assert_eq!(point.total.mib_per_second, 5e5 * 4096.0 / f64::from(1 << 20));
    let latency = &point.latency.as_ref().expect("it was recorded").all;
    assert_eq!((latency.samples, latency.percentile_us(99.0)), (1000, Some(9.0)));
    // Half of them to the median, nearly all of the rest to the 99th percentile, ten to the longest.
    let counts: Vec<u64> = latency.buckets.iter().map(|bucket| bucket.count).collect();
    assert_eq!(counts, [500, 490, 10]);
    assert_eq!(point.cpu.map(|cpu| cpu.percent), Some(75.0));
}

#[test]
fn bins_are_taken_where_there_are_some() {
    let text = file(
        "",
        &job("t", 0, "", 1.0)
            .replace("\"percentile\"", "\"bins\" : {\"1000\" : 600, \"8000\" : 400}, \"percentile\""),
    );
    let run = run(&text);
    let latency = &run.points[0].latency.as_ref().expect("it was recorded").all;
    let counts: Vec<u64> = latency.buckets.iter().map(|bucket| bucket.count).collect();
    assert_eq!(counts, [600, 400]);
    let longest = latency.buckets[1].value_us;
    assert!((8.0..8.01).contains(&longest), "three digits are kept: {longest}");
}

#[test]
fn points_are_told_apart_by_what_differs() {
    let depths = [job("a", 0, "\"iodepth\":\"1\"", 1.0), job("b", 1, "\"iodepth\":\"2\"", 2.0)].join(",");
    let run_of_depths = run(&file("\"rw\":\"randread\"", &depths));
    assert!(run_of_depths.points.iter().all(|point| point.phase.is_none() && point.settings.is_empty()));
    assert_eq!(run_of_depths.points.iter().map(|point| point.depth).collect::<Vec<_>>(), [1, 2]);

    let sizes = [job("a", 0, "\"bs\":\"4k\"", 1.0), job("b", 1, "\"bs\":\"1m\"", 2.0)].join(",");
    let sizes = run(&file("\"rw\":\"randread\"", &sizes));
    let settings: Vec<_> = sizes
        .points
        .iter()
        .flat_map(|point| &point.settings)
        .map(|it| (it.name.as_str(), it.value.as_str()))
        .collect();
    assert_eq!(settings, [("io-size", "4096"), ("io-size", "1048576")]);

    let others = [job("a", 0, "\"ks\":\"4\"", 1.0), job("b", 1, "\"ks\":\"8\"", 2.0)].join(",");
    let others = run(&file("\"rw\":\"randread\"", &others));
    assert_eq!(
        others.points.iter().map(|point| point.phase.as_deref()).collect::<Vec<_>>(),
        [Some("a"), Some("b")]
    );
}

#[test]
fn jobs_that_ran_together_are_one_point() {
    let both = [job("hot", 0, "", 1.0), job("cold", 0, "", 2.0)].join(",");
    let run = run(&file("", &both));
    let [point] = run.points.as_slice() else { panic!("{} points", run.points.len()) };
    assert_eq!((point.total.iops, point.threads, point.rows.len()), (3.0, 2, 2));
    assert_eq!(point.jobs.iter().map(|job| job.name.as_str()).collect::<Vec<_>>(), ["hot", "cold"]);
    assert_eq!(point.latency.as_ref().map(|latency| latency.all.samples), Some(2000));
}

#[test]
fn text_around_the_json_is_passed_over_and_what_is_not_fios_is_an_error() {
    let text = format!("t: (g=0): rw=read\n{}\nRun status\n", file("", &job("t", 0, "", 1.0)));
    assert_eq!(run(&text).points.len(), 1);
    for bad in ["", "{", "}\n{", "[]", "{\"a\":1}", "\n}\n{", "{\"fio version\":3}"] {
        assert!(Output::parse(bad).is_err(), "{bad}");
    }
    let none = Output::parse(&file("", "")).expect("it is fio's");
    assert!(run_of(&[("a.json".to_owned(), none)]).expect_err("no job").starts_with("a.json: "));
}

#[test]
fn numbers_out_of_range_do_no_harm() {
    let odd = "{\"jobname\":\"x\",\"total_err\":18446744073709551615,\"job_runtime\":1e308,\"usr_cpu\":-1e308,\
        \"job options\":{\"bs\":\"99999999999t\",\"iodepth\":\"-1\",\"numjobs\":\"4294967295\",\"group_reporting\":\"1\",\
        \"rwmixwrite\":\"4000\",\"rw\":\"rw\"},\
        \"read\":{\"iops\":1e308,\"bw_bytes\":1e308,\"total_ios\":18446744073709551615,\"clat_ns\":{\"min\":-1,\"max\":1e308,\
        \"mean\":1e308,\"N\":18446744073709551615,\"percentile\":{\"x\":1,\"-5\":2,\"500\":3,\"99\":1e300},\
        \"bins\":{\"18446744073709551615\":18446744073709551615,\"0\":18446744073709551615,\"y\":1}}},\
        \"write\":{\"iops\":1e308,\"clat_ns\":{\"N\":18446744073709551615,\"max\":1e308}}}";
    let run = run(&file("", &format!("{odd},{odd}")));
    // A page or an error, and nothing else.
    report::html::write(&run, &mut Vec::new()).expect("memory takes it");
    let _ = report::write_json(&run, &mut Vec::new());
}

#[test]
fn a_job_of_trims_alone_has_their_figures() {
    let text = file("", &job("t", 0, "\"rw\":\"trim\"", 7.0).replace("\"read\"", "\"trim\""));
    let run = run(&text);
    assert_eq!((run.points[0].total.iops, run.points[0].trims), (7.0, None));
    assert!(run.points[0].latency.is_some());
}
