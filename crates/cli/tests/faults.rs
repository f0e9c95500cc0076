//! `unvme fault`, and `--faults` of other commands.

mod home;

use home::{DEVICE, Home, pattern};

/// Unrecovered Read Error for the third write to one of the blocks 100 to 200.
const THIRD_WRITE: [&str; 11] =
    ["--opcode", "write", "--lba", "100-200", "--after", "2", "--count", "1", "--status", "0x281", "--dnr"];

/// What came of each rule of [`DEVICE`]: its number, matches, faults.
fn counted(home: &Home) -> Vec<[u64; 3]> {
    let listed = home.json(&["fault", "list", DEVICE]);
    let number = |value: &serde_json::Value| value.as_u64().expect("a number");
    let rules = listed.as_array().expect("an array").iter();
    rules.map(|rule| [number(&rule["rule"]["id"]), number(&rule["matched"]), number(&rule["hits"])]).collect()
}

#[test]
fn a_rule_outlives_processes_and_counts_over_all_of_them() {
    let home = Home::with_device();
    let added = home.ok(&[&["fault", "add", DEVICE][..], &THIRD_WRITE].concat());
    assert_eq!(added, "added rule 1\n");
    home.ok_with(&["write", DEVICE, "-s", "100"], &[1; 512]);
    home.ok_with(&["write", DEVICE, "-s", "99"], &[1; 512]);
    home.ok_with(&["write", DEVICE, "-s", "200"], &[1; 512]);
    assert_eq!(counted(&home), [[1, 2, 0]]);
    let third = home.run_with(&["write", DEVICE, "-s", "150"], &[1; 512]);
    third.fails_with(1, &["Unrecovered Read Error"]);
    let table = "\
Rule  Match                                     Act            Matched  Hits
----  ----------------------------------------  -------------  -------  ----
1     after=2 count=1 lba=100-200 opcode=write  status=0x4281  3        1
";
    assert_eq!(home.ok(&["fault", "list", DEVICE]), table);
    home.ok_with(&["write", DEVICE, "-s", "150"], &[1; 512]);
    assert_eq!(home.ok(&["fault", "clear", DEVICE, "1"]), "cleared 1 rule\n");
    home.run(&["fault", "clear", DEVICE, "1"]).fails_with(2, &["there is no rule 1"]);
    assert_eq!(home.ok(&["fault", "clear", DEVICE]), "cleared 0 rules\n");
    assert_eq!(counted(&home), [[0; 3]; 0]);
}

#[test]
fn rules_come_from_text_files_and_standard_input_all_or_none() {
    let home = Home::with_device();
    let text = r#"[{"id":9,"act":{"delay":"1us"}},{"match":{"queue":2},"act":{"drop":true}}]"#;
    assert_eq!(home.ok(&["fault", "add", DEVICE, "--json", text]), "added 2 rules, the first is 9\n");
    let file = home.file("rules.json", text.replace('9', "8").as_bytes());
    let added = home.json(&["fault", "add", DEVICE, "--file", &file]);
    assert_eq!((&added["added"], &added["first"]), (&2.into(), &8.into()));
    home.run(&["fault", "add", DEVICE, "--file", &file]).fails_with(2, &["id: there is a rule 8 already"]);
    home.ok_with(&["fault", "add", DEVICE, "--file", "-"], br#"{"match":{"queue":3},"act":{"drop":true}}"#);
    let ids: Vec<u64> = counted(&home).iter().map(|[id, ..]| *id).collect();
    assert_eq!(ids, [9, 1, 8, 2, 3]);
    home.ok(&["fault", "add", DEVICE, "--queue", "4", "--drop", "--passing"]);
    assert_eq!(counted(&home).len(), 5, "a passing rule ends with the process that has the device");
}

#[test]
fn what_is_wrong_names_the_file_the_line_and_the_key() {
    let home = Home::with_device();
    let wrong =
        home.file("wrong.json", b"[\n  {\"match\": {\"opcode\": \"read\"},\n   \"act\": {\"delay\": 5}}]");
    let place = format!("{wrong}:3:22: act: delay: `5`: expected a time such as 50ms");
    for args in [
        &["fault", "add", DEVICE, "--file", &wrong][..],
        &["serve", DEVICE, "--faults", &wrong],
        &["perf", "-r", "mem:block:4M", "-t", "0.05", "--warmup", "0", "--faults", &wrong],
    ] {
        home.run(args).fails_with(2, &[&place]);
        let missing: Vec<&str> =
            args.iter().map(|arg| if *arg == wrong { "none.json" } else { arg }).collect();
        assert!(home.run(&missing).stderr.contains("none.json"), "{missing:?}");
    }
    let bytes = home.file("bytes.json", b"\xff\xfe");
    home.run(&["fault", "add", DEVICE, "--file", &bytes])
        .fails_with(2, &["bytes.json: the file is not UTF-8 text"]);
    home.run(&["fault", "add", DEVICE, "--json", "{}"])
        .fails_with(2, &["--json:1:2: act: nothing is not possible"]);
    home.run(&["fault", "add", DEVICE]).fails_with(2, &["the rule: act: nothing is not possible"]);
    home.run(&["fault", "add", DEVICE, "--drop", "--program", "3"]).fails_with(2, &["match.program"]);
    home.run(&["fault", "add", DEVICE, "--drop", "--json", "{}"]).fails_with_usage("cannot be used with");
    home.run(&["fault", "add", DEVICE, "--opcode", "raed", "--drop"]).fails_with_usage("raed");
    home.run(&["fault", "add", DEVICE, "--corrupt-xor", "80"]).fails_with_usage("--corrupt <DATA>");
    assert_eq!(counted(&home), [[0; 3]; 0], "nothing was added");
}

#[test]
fn perf_has_rules_from_the_first_point_to_the_end_and_says_what_came_of_them() {
    let home = Home::with_device();
    home.ok(&["fault", "add", DEVICE, "--queue", "60", "--drop"]);
    let rules = home.file("rules.json", br#"{"match":{"opcode":"read","every":10},"act":{"delay":"1us"}}"#);
    let done = home.run(&[
        "perf",
        "-r",
        DEVICE,
        "-t",
        "0.05",
        "--warmup",
        "0",
        "-w",
        "randread",
        "--range",
        "1M",
        "--prefill",
        "--faults",
        &rules,
    ]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let (_, told) =
        done.stderr.split_once("rule 2 (every=10 opcode=read: delay=1us) matched ").expect("a note");
    let mut counts = told.lines().next().expect("a line").split(" and acted on ");
    let [matched, hits] =
        [(); 2].map(|()| counts.next().and_then(|n| n.parse::<u64>().ok()).expect("a number"));
    assert!(matched >= 10 && hits == matched / 10, "{told}");
    assert!(!done.stderr.contains("rule 1 "), "only what perf has added: {}", done.stderr);
    assert_eq!(counted(&home), [[1, 0, 0]], "and its rules have ended with it");
    let failing =
        home.file("failing.json", br#"{"match":{"opcode":"read","count":3},"act":{"status":"0x281"}}"#);
    let done = home
        .run(&["perf", "-r", DEVICE, "-t", "0.05", "--warmup", "0", "-w", "randread", "--faults", &failing]);
    assert_ne!(done.code, 0);
    assert!(done.stderr.contains("matched ") && done.stderr.contains("and acted on 3\n"), "{}", done.stderr);
    assert!(done.stderr.contains("Unrecovered Read Error"), "{}", done.stderr);
}

#[test]
fn a_command_that_a_rule_has_ended_says_what_it_did_and_to_whom() {
    let home = Home::with_device();
    for (act, parts) in [
        (
            "--fatal",
            ["it reports Controller Fatal Status", "rule 1 of its faults has set Controller Fatal Status"],
        ),
        ("--unplug", ["its registers read as all ones", "rule 1 of its faults has unplugged it"]),
        ("--power-cut", ["its registers read as all ones", "rule 1 of its faults has cut its power"]),
    ] {
        home.ok(&["fault", "add", DEVICE, "--opcode", "read", "--count", "1", act]);
        let done = home.run(&["read", DEVICE, "-z", "4096"]);
        assert_ne!(done.code, 0, "{act}");
        assert!(parts.iter().all(|part| done.stderr.contains(part)), "{act}: {}", done.stderr);
        home.ok(&["fault", "clear", DEVICE]);
    }
    // The controller comes back, and the measurement goes on.
    let rules =
        home.file("fatal.json", br#"{"match":{"opcode":"read","after":50,"count":1},"act":{"fatal":true}}"#);
    let done =
        home.run(&["perf", "-r", DEVICE, "-t", "0.2", "-w", "randread", "-q", "4", "--faults", &rules]);
    let expected = "it reports Controller Fatal Status; rule 1 of its faults has set Controller Fatal Status";
    assert!(done.code == 1 && done.stderr.contains(expected), "{}", done.stderr);
    assert!(!done.text().contains(" 0 IOPS"), "{}", done.text());
}

#[test]
fn a_server_has_rules_until_it_ends() {
    let home = Home::with_device();
    let rules = home.file("rules.json", br#"{"match":{"opcode":"write"},"act":{"status":"write-fault"}}"#);
    let server = home.serve(&[DEVICE, "--faults", &rules]);
    home.run_with(&["write", DEVICE], &[1; 512]).fails_with(1, &["Write Fault"]);
    assert_eq!(counted(&home), [[1, 1, 1]]);
    home.ok(&["fault", "add", DEVICE, "--opcode", "flush", "--status", "internal-error"]);
    assert_eq!(counted(&home).len(), 2, "a rule is added to the device as it is served");
    assert_eq!(server.terminate(), 0);
    assert_eq!(counted(&home), [[2, 0, 0]]);
    home.ok_with(&["write", DEVICE], &[1; 512]);
}

#[test]
fn power_that_is_cut_at_a_program_leaves_what_was_written_before() {
    let home = Home::new();
    home.ok(&[
        "device",
        "create",
        DEVICE,
        "--size",
        "16M",
        "--block",
        "4096",
        "--op",
        "28%",
        "--ru-size",
        "256K",
    ]);
    let data = pattern(3, 16384);
    home.ok_with(&["write", DEVICE, "-f"], &data);
    home.ok(&["fault", "add", DEVICE, "--power-cut", "3"]);
    let cut = home.run_with(&["write", DEVICE, "-s", "2"], &pattern(4, 16384));
    cut.fails_with(4, &["gone", "its registers read as all ones"]);
    let counts = counted(&home);
    assert_eq!(counts, [[1, 3, 1]], "the rule has acted, and does so once");
    home.ok(&["device", "check", DEVICE]);
    let found = home.run(&["read", DEVICE, "-z", "24576"]).stdout;
    assert_eq!(found[..8192], data[..8192], "blocks that nobody wrote since");
    let whole = |at: usize| {
        found[at..at + 4096] == data[at..at + 4096]
            || found[at..at + 4096] == pattern(4, 16384)[at - 8192..at - 4096]
    };
    assert!(whole(8192) && whole(12288), "as they were or as they were to be");
    assert_eq!(found[16384..], [0; 8192], "the program that was cut, and what came after it");
    home.ok_with(&["write", DEVICE, "-s", "2"], &data);
}
