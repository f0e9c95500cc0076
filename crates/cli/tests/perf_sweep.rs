//! `unvme perf` over many points: sweeps of any setting, files of phases and of jobs at once, sheets,
//! comparisons within a run, figures over time. Nothing here depends on how fast the machine is.

mod home;

use home::Home;
use serde_json::Value;

const QUICK: [&str; 7] = ["perf", "-t", "0.05", "--warmup", "0", "-r", "mem:block:4M"];

fn quick<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&QUICK, more].concat()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn points(run: &Value) -> &Vec<Value> {
    run["points"].as_array().expect("points")
}

fn settings(point: &Value) -> String {
    let settings = point["settings"].as_array().expect("settings");
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let one = |setting: &Value| format!("{}={}", text(&setting["name"]), text(&setting["value"]));
    settings.iter().map(one).collect::<Vec<String>>().join(" ")
}

/// The first CPU that this process may use.
fn first_cpu() -> String {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("CPUs");
    list.trim().split([',', '-']).next().expect("a CPU").to_owned()
}

#[test]
fn cores_are_swept_and_each_point_runs_on_its_own() {
    let home = Home::new();
    let cpu = first_cpu();
    let run = home.json(&quick(&["--matrix", &format!("cores={cpu}"), "depth=1,2"]));
    let found: Vec<String> = points(&run).iter().map(settings).collect();
    assert_eq!(found, [format!("cores={cpu} depth=1"), format!("cores={cpu} depth=2")]);
    for point in points(&run) {
        assert_eq!(point["rows"][0]["core"].to_string(), cpu, "{point}");
    }
    home.run(&quick(&["--matrix", "cores=1000"])).fails_with(2, &["-c: core 1000 is not there"]);
    let file =
        format!("[[phase]]\n[[phase.job]]\nname = \"a\"\ncores = \"{cpu}\"\n[[phase.job]]\nname = \"b\"\n");
    home.file("jobs.toml", file.as_bytes());
    home.measured(&quick(&["--job", "jobs.toml"]));
}

#[test]
fn any_setting_is_swept_and_each_point_says_what_it_was() {
    let home = Home::new();
    let args = quick(&[
        "-w",
        "randrw",
        "--matrix",
        "size=4K..8K",
        "mix=100,0",
        "--report",
        "r.html",
        "--csv",
        "r.csv",
    ]);
    let table = home.ok(&[&args[..], &["--json", "r.json"]].concat());
    assert!(table.starts_with("io-size  read-percent  IOPS"), "{table}");
    assert!(table.contains("\nBest: io-size "), "{table}");
    let run: Value =
        serde_json::from_slice(&std::fs::read(home.path("r.json")).expect("read")).expect("JSON");
    let found: Vec<String> = points(&run).iter().map(settings).collect();
    assert_eq!(
        found,
        [
            "io-size=4K read-percent=100",
            "io-size=4K read-percent=0",
            "io-size=8K read-percent=100",
            "io-size=8K read-percent=0"
        ]
    );
    // What differs from the run's own workload is said, and the bytes are those of the point.
    assert_eq!(run["workload"]["io_bytes"], 4096);
    assert!(points(&run)[0]["workload"].is_null());
    assert_eq!(points(&run)[3]["workload"]["io_bytes"], 8192);
    assert_eq!(points(&run)[3]["workload"]["read_percent"], 0);
    for (point, kib) in points(&run).iter().zip([4.0, 4.0, 8.0, 8.0]) {
        let total = &point["total"];
        let mib = number(&total["iops"]) * kib / 1024.0;
        assert!((mib - number(&total["mib_per_second"])).abs() < 1e-6 * mib, "{total}");
    }
    let page = std::fs::read_to_string(home.path("r.html")).expect("read");
    for text in ["IOPS by io-size and read-percent", "p99 latency by io-size", "Throughput by reads (%)"] {
        assert!(page.contains(text), "{text}");
    }
    let csv = std::fs::read_to_string(home.path("r.csv")).expect("read");
    assert!(csv.lines().next().is_some_and(|line| line.ends_with(",interrupted,phase,settings")), "{csv}");
    let last = csv.lines().last().expect("lines");
    assert!(
        last.starts_with("randrw,8192,0,1,32,total,") && last.ends_with(",io-size=8K read-percent=0"),
        "{last}"
    );
}

#[test]
fn devices_and_settings_are_compared_in_turns() {
    let home = Home::new();
    let two =
        ["perf", "-t", "0.05", "-r", "mem:block:4M", "-r", "mem:block:8M", "--repeat", "4", "--compare"];
    let text = home.ok(&[&two[..], &["--report", "c.html", "--json", "c.json"]].concat());
    assert!(text.starts_with("A: device mem:block:4M\nB: device mem:block:8M\n"), "{text}");
    assert!(text.contains("Mann-Whitney") && text.contains("Report: c.html"), "{text}");
    let page = std::fs::read_to_string(home.path("c.html")).expect("read");
    assert!(page.contains("device mem:block:8M"));
    let run: Value =
        serde_json::from_slice(&std::fs::read(home.path("c.json")).expect("read")).expect("JSON");
    let found: Vec<String> = points(&run).iter().map(settings).collect();
    assert_eq!(found, ["device=mem:block:4M", "device=mem:block:8M"]);
    assert!(
        points(&run).iter().all(|point| point["repetitions"].as_array().is_some_and(|all| all.len() == 4))
    );
    // Of two settings the first is compared, at each value of the other; ten times by itself.
    let compared = home.json(&quick(&["--compare", "--matrix", "depth=1,2", "size=4K,8K"]));
    let names: Vec<&str> =
        compared["points"].as_array().expect("points").iter().filter_map(|p| p["what"].as_str()).collect();
    assert_eq!(names.len(), 2, "{compared}");
    assert!(names[0].contains("4 KiB") && names[1].contains("8 KiB"), "{names:?}");
    assert_eq!(compared["points"][0]["metrics"][0]["repetitions"], serde_json::json!([10, 10]));
    assert_eq!(compared["sides"][1]["setting"]["value"], "2");
}

#[test]
fn a_file_has_phases_and_jobs_at_once() {
    let home = Home::new();
    std::fs::write(
        home.path("jobs.toml"),
        "device = \"mem:block:4M\"\ntime = 0.05\nwarmup = 0\nverify = true\n\n[[phase]]\nname = \"fill\"\nworkload = \
         \"write\"\nio-size = \"64K\"\nrange = \"2M\"\namount = \"100%\"\ndepth = 2\n\n[[phase]]\nname = \
         \"both\"\ndepth = 4\n[[phase.job]]\nname = \"reader\"\nrange = \"2M\"\n[[phase.job]]\nname = \
         \"writer\"\nworkload = \"randwrite\"\noffset = \"2M\"\nrate = 1000\n",
    )
    .expect("write");
    let args = ["perf", "--job", "jobs.toml", "--json", "r.json", "--csv", "r.csv", "--report", "r.html"];
    let text = home.ok(&args);
    assert!(text.contains("Phase") && text.contains("\n  reader ") && text.contains("\n  writer "), "{text}");
    let run: Value =
        serde_json::from_slice(&std::fs::read(home.path("r.json")).expect("read")).expect("JSON");
    let [fill, both] = &points(&run)[..] else { panic!("{run}") };
    assert_eq!((&fill["phase"], &both["phase"]), (&"fill".into(), &"both".into()));
    assert_eq!(fill["latency"]["all"]["samples"], 32, "2M in commands of 64K");
    let jobs = both["jobs"].as_array().expect("jobs");
    assert_eq!((&jobs[0]["name"], &jobs[1]["name"]), (&"reader".into(), &"writer".into()));
    assert_eq!(
        (&jobs[0]["workload"]["pattern"], &jobs[1]["workload"]["pattern"]),
        (&"randread".into(), &"randwrite".into())
    );
    let sum: f64 = jobs.iter().map(|job| number(&job["total"]["iops"])).sum();
    assert!((sum - number(&both["total"]["iops"])).abs() < 1e-6 * sum, "{both}");
    let samples: f64 = jobs.iter().map(|job| number(&job["latency"]["all"]["samples"])).sum();
    assert_eq!(samples, number(&both["latency"]["all"]["samples"]));
    assert_eq!(both["threads"], 2);
    let csv = std::fs::read_to_string(home.path("r.csv")).expect("read");
    assert!(csv.contains(",job,writer,"), "{csv}");
    // What is typed is below a phase and over the top of the file.
    let run = home.json(&["perf", "--job", "jobs.toml", "-q", "1", "-o", "8K"]);
    assert_eq!((&points(&run)[0]["depth"], &points(&run)[1]["depth"]), (&2.into(), &4.into()));
    assert_eq!(points(&run)[1]["jobs"][0]["workload"]["io_bytes"], 8192);
}

#[test]
fn what_a_file_cannot_mean_is_refused() {
    let home = Home::new();
    let refused = |text: &str, parts: &[&str]| {
        std::fs::write(home.path("bad.toml"), text).expect("write");
        home.run(&["perf", "-r", "mem:block:4M", "--job", "bad.toml"]).fails_with(2, parts);
    };
    refused("[[phase]]\nname = \"a\"\ndepth = 0\n", &["bad.toml: phase 1 `a`: ", "0 is not in 1..=4095"]);
    refused("[[phase]\n", &["bad.toml: line 1: "]);
    refused("[[phase]]\nsiez = 1\n", &["phase 1: `siez` is not a setting; expected one of device"]);
    let shared = "verify = true\n[[phase]]\n[[phase.job]]\nname = \"a\"\n[[phase.job]]\nname = \"b\"\nworkload = \"write\"\n";
    refused(shared, &["--verify: two jobs at once use the same part of VIRT (mem:block:4M) NSID 1"]);
    home.run(&["perf", "-r", "mem:block:4M", "--job", "none.toml"]).fails_with(4, &["read none.toml"]);
    home.run(&["perf", "--sheet", "quick", "--matrix", "depth=1"])
        .fails_with(2, &["--matrix: --sheet says what is swept; write matrix = [...] into a phase"]);
    home.run(&["perf"]).fails_with(2, &["-r: expected a device"]);
    for (args, part) in [
        (&["--job", "bad.toml", "--sheet", "quick"][..], "cannot be used with"),
        (&["--explain"], "--sheet <NAME>"),
        (&["--sheet", "slow"], "steady-state"),
    ] {
        let done = home.run(&[&["perf", "-r", "mem:block:4M"], args].concat());
        assert!(done.code == 2 && done.stderr.contains(part), "{args:?}: {}", done.stderr);
    }
}

#[test]
fn sheets_run_and_are_explained_as_files() {
    let home = Home::new();
    let sheets = [("quick", 6), ("latency", 18), ("mixed", 28), ("steady-state", 2), ("iops", 51)];
    for (sheet, count) in sheets {
        let words = ["-t", "0.004", "--warmup", "0", "--output", "json", "--sheet", sheet];
        let run = home.measured(&[&["perf", "-r", "mem:block:8M,ftl=page"], &words[..]].concat()).json();
        assert_eq!(points(&run).len(), count, "{sheet}");
        let explained = home.ok(&["perf", "--sheet", sheet, "--explain"]);
        assert!(explained.starts_with("# "), "{explained}");
        std::fs::write(home.path("sheet.toml"), explained).expect("write");
        if sheet == "quick" {
            let words = ["-t", "0.004", "--output", "json", "--job", "sheet.toml"];
            let again = home.measured(&[&["perf", "-r", "mem:block:8M"], &words[..]].concat()).json();
            let names =
                |run: &Value| points(run).iter().map(|point| point["phase"].clone()).collect::<Vec<Value>>();
            assert_eq!(names(&again), names(&run));
        }
    }
}

#[test]
fn rounds_go_on_until_they_are_steady_and_say_whether_they_were() {
    let home = Home::new();
    // In virtual time, where nothing disturbs: a drive that is rewritten in order is steady at once.
    let file = "device = \"mem:block:64M,ftl=page,timing=tlc,media=tags\"\nvirtual-time = true\n[[phase]]\nname = \
                \"rewrite\"\nworkload = \"write\"\nio-size = \"64K\"\ntime = 0.1\nrounds = 9\nsteady = \"throughput\"\n";
    std::fs::write(home.path("rounds.toml"), file).expect("write");
    let run = home.json(&["perf", "--job", "rounds.toml"]);
    let steady = &points(&run)[0]["steady"];
    assert_eq!(steady["reached"], true, "{steady}");
    let rounds = steady["rounds"].as_array().expect("rounds").len();
    assert!((5..=9).contains(&rounds), "{steady}");
    assert_eq!(
        points(&run)[0]["repetitions"].as_array().map(Vec::len),
        Some(5),
        "the last window stands for it"
    );
    let text = home.ok(&["perf", "--job", "rounds.toml"]);
    assert!(
        text.contains(&format!("rewrite: Steady MiB/s after {rounds} rounds: the last 5 are apart by ")),
        "{text}"
    );
}

#[test]
fn an_amount_ends_a_point_and_a_device_has_written_so_much() {
    let home = Home::new();
    home.ok(&["device", "create", home::DEVICE, "--size", "8M"]);
    let common = ["perf", "-r", home::DEVICE, "-w", "write", "-o", "64K", "--no-prefill", "--output", "json"];
    let run: Value =
        serde_json::from_str(&home.ok(&[&common[..], &["--amount", "150%"]].concat())).expect("JSON");
    let point = &points(&run)[0];
    assert_eq!(point["latency"]["all"]["samples"], 192, "12M of 8M");
    assert_eq!(run["workload"]["amount"], "150%");
    let run: Value = serde_json::from_str(&home.ok(&[&common[..], &["--amount", "1M", "-q", "3"]].concat()))
        .expect("JSON");
    assert_eq!(points(&run)[0]["latency"]["all"]["samples"], 16);
}

#[test]
fn figures_over_time_have_latency_and_write_amplification() {
    let home = Home::new();
    let device = "mem:block:16M,ftl=page,timing=tlc,media=tags";
    let args = ["perf", "-r", device, "-w", "randwrite", "-t", "2", "--warmup", "0", "--virtual-time"];
    let run = home.json(&[&args[..], &["--interval", "0.1", "--report", "r.html"]].concat());
    let series = points(&run)[0]["series"].as_array().expect("series");
    assert_eq!(series.len(), 20);
    for at in series {
        let (average, most) = (number(&at["latency_us_average"]), number(&at["latency_us_max"]));
        assert!(0.0 < average && average <= most, "{at}");
        assert!(number(&at["write_amplification"]) >= 1.0, "{at}");
    }
    let page = std::fs::read_to_string(home.path("r.html")).expect("read");
    assert!(page.contains("Latency over time") && page.contains("Write amplification over time"));
}

#[test]
fn a_line_of_status_is_printed_so_often_without_a_terminal() {
    let home = Home::new();
    let done = home.run(&["perf", "-r", "mem:block:4M", "-t", "1", "--status-interval", "0.2"]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let lines: Vec<&str> =
        done.stderr.lines().filter(|line| line.starts_with("unvme: 1 thread, depth 32: ")).collect();
    assert!((1..=6).contains(&lines.len()), "{}", done.stderr);
    assert!(lines.iter().all(|line| line.contains(" s: ") && line.contains(" IOPS")), "{}", done.stderr);
}
