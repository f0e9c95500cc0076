//! `unvme perf compare`: runs that were saved, side by side. The runs are those of models in virtual time,
//! which are the same on every machine.

mod home;

use home::Home;
use serde_json::Value;

fn save(home: &Home, timing: &str, depth: &str, file: &str) {
    let device = format!("mem:block:64M,block=4096,timing={timing}");
    let perf = ["perf", "-r", &device, "-t", "0.01", "--virtual-time", "-L", "--matrix", depth];
    home.ok(&[&perf[..], &["--repeat", "5", "--json", file]].concat());
}

fn home() -> Home {
    let home = Home::new();
    save(&home, "optane", "depth=1,8", "a.json");
    save(&home, "tlc", "depth=8,16", "b.json");
    home
}

#[test]
fn a_slower_device_is_shown_to_be_slower_in_all_forms() {
    let home = home();
    let text = home.ok(&["perf", "compare", "a.json", "b.json", "--report", "r.html"]);
    for part in [
        "A: mem:block:64M,block=4096,timing=optane (a.json)\nB: mem:block:64M,block=4096,timing=tlc (b.json)\n",
        "4 KiB random read, 1 thread, depth 8: median (least to greatest)",
        "  0.008  B is worse\n",
        "Only in A, not in B: 4 KiB random read, 1 thread, depth 1\n",
        "Only in B, not in A: 4 KiB random read, 1 thread, depth 16\n",
        "Mann-Whitney U test, exact, two-sided: a difference is shown where p < 0.05",
    ] {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
    let json: Value = home.json(&["perf", "compare", "a.json", "b.json"]);
    let iops = &json["points"][0]["metrics"][0];
    assert_eq!((&iops["metric"], &iops["verdict"]), (&"iops".into(), &"worse".into()), "{iops}");
    assert_eq!((&iops["test"]["method"], &iops["test"]["u"]), (&"mann-whitney-exact".into(), &0.0.into()));
    assert!(iops["ratio"]["ratio"].as_f64().is_some_and(|ratio| ratio < 0.5), "{iops}");
    let page = std::fs::read_to_string(home.path("r.html")).expect("report");
    assert!(page.contains("IOPS by repetition") && page.contains("Latency percentiles"));
}

#[test]
fn the_exit_code_is_that_of_a_difference_only_where_it_is_asked_for() {
    let home = home();
    let compare = |more: &[&str]| home.run(&[&["perf", "compare"], more].concat());
    compare(&["a.json", "b.json", "--fail-if-worse", "5"]).fails_with(1, &["IOPS of B, ", " % worse"]);
    for fine in [["b.json", "a.json", "5"], ["a.json", "a.json", "0"], ["a.json", "b.json", "1000000"]] {
        let done = compare(&[fine[0], fine[1], "--fail-if-worse", fine[2]]);
        assert_eq!(done.code, 0, "{}", done.stderr);
    }
    let same = compare(&["a.json", "a.json"]).text();
    assert!(same.contains("1.000  no difference shown") && !same.contains("worse\n"), "{same}");
    compare(&["a.json", "b.json", "--fail-if-worse=-1"]).fails_with_usage("expected a percentage");
}

#[test]
fn files_that_cannot_be_compared_are_named() {
    let home = home();
    std::fs::create_dir(home.path("none")).expect("folder");
    std::fs::create_dir(home.path("runs")).expect("folder");
    for file in ["b.json", "a.json"] {
        std::fs::copy(home.path(file), home.path("runs").join(file)).expect("copy");
    }
    let text = home.ok(&["perf", "compare", "runs"]);
    assert!(text.starts_with("A: mem:block:64M,block=4096,timing=optane (runs/a.json)\nB: "), "{text}");
    std::fs::write(home.path("other.json"), "{\"jobs\": []}").expect("write");
    let compare = |files: &[&str]| home.run(&[&["perf", "compare"], files].concat());
    compare(&["a.json", "other.json"])
        .fails_with(2, &["other.json: expected JSON as --json of unvme perf writes it: missing field"]);
    compare(&["a.json"]).fails_with(2, &["a.json: one file; expected at least two"]);
    compare(&["a.json", "none"]).fails_with(2, &["none: no *.json in it"]);
    compare(&["a.json", "gone.json"]).fails_with(4, &["read gone.json: No such file"]);
    save(&home, "tlc", "depth=2", "c.json");
    compare(&["a.json", "c.json"]).fails_with(2, &["nothing to compare", "(c.json) has 4 KiB random read"]);
    compare(&[]).fails_with_usage("<FILE>");
    home.run(&["perf", "-r", "mem:block:4M", "compare", "a.json"]).fails_with_usage("compare");
}
