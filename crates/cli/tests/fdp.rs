//! Flexible Data Placement: enabled, used and looked at from the command line.

mod home;

use home::{DEVICE, Home, pattern};

/// A home with [`DEVICE`] of 64 MiB, FDP enabled, in blocks of 4 KiB.
fn with_fdp() -> Home {
    let home = Home::new();
    home.ok(&["device", "create", DEVICE, "--size", "64M", "--block", "4096", "--handles", "4", "--fdp"]);
    home
}

/// The value of `name` in the text of id-ctrl.
fn value(text: &str, name: &str) -> String {
    let line = text.lines().find(|line| line.starts_with(&format!("{name:10}: "))).expect(name);
    line.split_once(": ").expect("a value").1.trim().to_owned()
}

/// The steps of "Here is how to activate FDP" on the slides of "FDP: Libraries, tools and applications",
/// SDC 2023.
#[test]
fn fdp_is_activated_step_by_step_as_with_nvme_cli() {
    let home = Home::new();
    home.ok(&["device", "create", DEVICE, "--size", "64M", "--ftl", "page"]);

    // Validate the FDP capability: the 19th bit is on.
    let id = home.ok(&["id-ctrl", DEVICE]);
    let ctratt = u32::from_str_radix(value(&id, "ctratt").trim_start_matches("0x"), 16).expect("a number");
    assert_ne!(ctratt & 1 << 19, 0, "{ctratt:#x}");
    assert!(
        home.ok(&["id-ctrl", DEVICE, "-H"]).contains("  [19:19] : 0x1\tFlexible Data Placement Supported\n")
    );
    // Delete the namespaces in the endurance group; before that, FDP cannot be enabled.
    home.run(&["set-feature", DEVICE, "-f", "0x1D", "-c", "1", "-s"])
        .fails_with(1, &["Set Features", "Command Sequence Error"]);
    home.ok(&["delete-ns", DEVICE, "-n", "1"]);
    // Print the configurations.
    let configs = home.ok(&["fdp", "configs", DEVICE, "-e", "1", "-H"]);
    assert!(configs.starts_with("FDP Configuration[0]\nFDP Attributes: "), "{configs}");
    assert!(configs.contains("  [7:7] : 0x1\tFDP Configuration Valid\n"), "{configs}");
    assert!(configs.contains("\nNumber of Reclaim Unit Handles: 8\n"), "{configs}");
    assert!(configs.contains("\n  [7]: Initially Isolated\n"), "{configs}");
    // Enable FDP with configuration 0: -c sends index 0 and FDPE 1.
    home.ok(&["set-feature", DEVICE, "-f", "0x1D", "-c", "1", "-s"]);
    let feature = home.ok(&["get-feature", DEVICE, "-f", "0x1D", "-H"]);
    assert_eq!(
        feature,
        "get-feature:0x1d (Flexible Direct Placement), Current value:0x00000001\n\
         \tFlexible Direct Placement Enable (FDPE)       : Yes\n\
         \tFlexible Direct Placement Configuration Index : 0\n"
    );
    // Create a namespace over the whole capacity, with four placement handles.
    let capacity: u64 = value(&home.ok(&["id-ctrl", DEVICE]), "tnvmcap").parse().expect("a number");
    assert_eq!(capacity, 64 << 20);
    let nsze = (capacity / 4096).to_string();
    let (nsze, ncap) = (format!("--nsze={nsze}"), format!("--ncap={nsze}"));
    let text = home.ok(&["create-ns", DEVICE, "-b", "4096", &nsze, &ncap, "-p", "0,1,2,3", "-n", "4"]);
    assert_eq!(text, "create-ns: Success, created nsid:1\n");
    // Attach it.
    let controller = format!("--controllers={}", value(&home.ok(&["id-ctrl", DEVICE]), "cntlid"));
    home.ok(&["attach-ns", DEVICE, "--namespace-id=1", &controller]);
    // Directives: the fifth bit is set.
    let id = home.ok(&["id-ctrl", DEVICE]);
    let oacs = u16::from_str_radix(value(&id, "oacs").trim_start_matches("0x"), 16).expect("a number");
    assert_ne!(oacs & 1 << 5, 0, "{oacs:#x}");

    assert_eq!(home.json(&["fdp", "status", DEVICE])["nruhsd"], 4);
    assert_eq!(home.json(&["id-ns", DEVICE])["endgid"], 1);
}

#[test]
fn what_is_written_is_counted_and_where_it_goes_is_shown() {
    let home = with_fdp();
    let fresh = home.ok(&["fdp", "stats", DEVICE]);
    assert!(fresh.ends_with("Write Amplification (MBMW / HBMW): nothing was written yet\n"), "{fresh}");
    home.ok_with(&["write", DEVICE], &pattern(1, 16 << 10));
    home.ok_with(&["write", DEVICE, "-s", "100", "--dir-type", "2", "--dir-spec", "2"], &pattern(2, 8 << 10));
    let stats = home.json(&["fdp", "stats", DEVICE]);
    assert_eq!((&stats["hbmw"], &stats["mbmw"], &stats["mbe"]), (&24576.into(), &24576.into(), &0.into()));
    assert_eq!(stats["waf"], 1.0);
    let text = home.ok(&["fdp", "stats", DEVICE, "-e", "1"]);
    assert!(text.starts_with("Host Bytes with Metadata Written (HBMW): 24576\n"), "{text}");
    assert!(text.ends_with("Write Amplification (MBMW / HBMW): 1.000\n"), "{text}");
    // A unit has 16 pages.
    let status = home.json(&["fdp", "status", DEVICE, "-n", "1"]);
    let left = |pid: usize| status["ruhss"][pid]["ruamw"].as_u64();
    assert_eq!((left(0), left(1), left(2), left(3)), (Some(12), Some(16), Some(14), Some(16)), "{status}");
    home.ok_with(&["fdp", "update", DEVICE, "-p", "0,2"], b"");
    let status = home.json(&["fdp", "status", DEVICE]);
    assert_eq!((&status["ruhss"][0]["ruamw"], &status["ruhss"][2]["ruamw"]), (&16.into(), &16.into()));
    let usage = home.ok(&["fdp", "usage", DEVICE]);
    assert_eq!(usage.lines().count(), 4, "{usage}");
    assert!(usage.starts_with("Reclaim Unit Handle 0 Attributes: "), "{usage}");
    assert_eq!(home.run(&["fdp", "stats", DEVICE, "-b"]).stdout.len(), 64);
    assert_eq!(home.run(&["fdp", "usage", DEVICE, "-b"]).stdout.len(), 8 + 4 * 8);
    assert_eq!(home.run(&["fdp", "events", DEVICE, "-b"]).stdout.len(), 64 * 64);
}

#[test]
fn events_are_recorded_once_they_are_enabled() {
    let home = with_fdp();
    assert_eq!(home.ok(&["fdp", "events", DEVICE, "-E"]), "no host events\n");
    assert_eq!(home.ok(&["fdp", "events", DEVICE]), "no controller events\n");
    let set = ["fdp", "set-events", DEVICE, "-n", "1", "-p", "1", "-t", "0,3", "--enable"];
    assert_eq!(home.ok(&set), "set-events: Success\n");
    let feature = home.ok(&["get-feature", DEVICE, "-f", "0x1e", "-c", "0xff0001", "-H"]);
    assert!(
        feature.contains("\tReclaim Unit Not Fully Written                       : Enabled\n"),
        "{feature}"
    );
    home.ok_with(&["write", DEVICE, "-T", "2", "-S", "1"], &pattern(1, 4096));
    home.ok(&["fdp", "update", DEVICE, "--pids", "1"]);
    let events = home.json(&["fdp", "events", DEVICE, "--host-events"]);
    let first = &events["events"][0];
    assert_eq!((&events["n"], &first["type"], &first["pid"]), (&1.into(), &0.into(), &1.into()), "{events}");
    let text = home.ok(&["fdp", "events", DEVICE, "-E"]);
    assert!(text.starts_with("Event[0]\n  Event Type: 0 (Reclaim Unit Not Fully Written)\n"), "{text}");
}

#[test]
fn fdp_is_shown_disabled_and_enabled_with_another_configuration() {
    let home = with_fdp();
    let state = home.ok(&["fdp", "feature", DEVICE]);
    assert_eq!(
        state,
        "Endurance Group                               : 1\n\
         Flexible Direct Placement Enable (FDPE)       : Yes\n\
         Flexible Direct Placement Configuration Index : 0\n"
    );
    home.run(&["fdp", "feature", DEVICE, "--disable"])
        .fails_with(1, &["FDP can change only without namespaces", "Command Sequence Error"]);
    home.ok(&["delete-ns", DEVICE, "-n", "0xffffffff"]);
    assert_eq!(home.ok(&["fdp", "feature", DEVICE, "-d"]), "Success disabling Endurance Group: 1\n");
    assert_eq!(home.json(&["fdp", "feature", DEVICE])["fdpe"], false);
    home.run(&["fdp", "stats", DEVICE]).fails_with(1, &["FDP Disabled"]);
    assert_eq!(
        home.ok(&["fdp", "feature", DEVICE, "--enable-conf-idx", "1", "--endgid", "1"]),
        "Success enabling Endurance Group: 1, FDP configuration index: 1\n"
    );
    assert_eq!(home.json(&["fdp", "feature", DEVICE])["fdpcidx"], 1);
    home.ok(&["create-ns", DEVICE, "--size", "32M", "--phndls", "3,1", "--endg-id", "1"]);
    home.ok(&["attach-ns", DEVICE, "-n", "1"]);
    let status = home.json(&["fdp", "status", DEVICE]);
    assert_eq!((&status["ruhss"][0]["ruhid"], &status["ruhss"][1]["ruhid"]), (&3.into(), &1.into()));
}

#[test]
fn devices_in_memory_have_fdp_too() {
    let home = Home::new();
    let name = "mem:block:64M,block=4096,fdp=2,handles=4,op=28%,policy=cost-benefit";
    assert_eq!(home.json(&["fdp", "status", name])["nruhsd"].as_u64(), Some(4));
    let configs = home.json(&["fdp", "configs", name]);
    let mixed: Vec<u64> = configs["configs"][2]["ruhs"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|handle| handle["ruht"].as_u64())
        .collect();
    assert_eq!(mixed, [1, 1, 2, 2], "{configs}");
    assert_eq!(home.json(&["fdp", "feature", name])["fdpcidx"], 2);
    assert_eq!(home.json(&["fdp", "stats", name])["hbmw"], 0);
}

#[test]
fn bad_input_is_refused_with_what_was_expected() {
    let home = with_fdp();
    for (args, code, parts) in [
        (&["fdp", "configs", "mem:block:64M"][..], 2, &["the device has no Flexible Data Placement"][..]),
        (&["fdp", "status", "mem:kv:64M,fdp"], 2, &["namespace 1 holds pairs"]),
        (&["fdp", "stats", DEVICE, "-e", "2"], 2, &["there is no endurance group 2; the device has 1 to 1"]),
        (&["fdp", "feature", DEVICE, "-c", "99"], 2, &["there is no FDP configuration 99"]),
        (
            &["fdp", "update", DEVICE, "-p", "4"],
            2,
            &["no placement identifier 4; the namespace has 4: 0 to 3"],
        ),
        (&["write", DEVICE, "-z", "4K", "-T", "2", "-S", "9"], 2, &["there is no placement identifier 9"]),
        (&["write", DEVICE, "-T", "1"], 2, &["--dir-type 1 --dir-spec 0: expected --dir-type 2"]),
        (&["write", DEVICE, "-S", "1"], 2, &["--dir-type 0 --dir-spec 1: expected --dir-type 2"]),
        (
            &["fdp", "set-events", DEVICE, "-p", "4", "-t", "0", "-e"],
            2,
            &["namespace 1 has no placement handle 4"],
        ),
        (
            &["fdp", "set-events", DEVICE, "-t", "0,0x42", "-e"],
            2,
            &["no events of type 0x42, expected some of 0x0, 0x1, 0x2, 0x3, 0x80, 0x81"],
        ),
        (
            &["fdp", "set-events", "mem:block:64M", "-t", "0"],
            2,
            &["the device has no Flexible Data Placement"],
        ),
        (
            &["fdp", "set-events", "mem:block:64M,ftl=page", "-t", "0"],
            1,
            &["FDP is disabled", "FDP Disabled"],
        ),
        (&["fdp", "update", "mem:kv:64M,fdp", "-p", "0"], 2, &["namespace 1 holds pairs"]),
        (&["create-ns", DEVICE, "--size", "2M", "-p", "0", "-n", "2"], 2, &["--nphndls 2: --phndls lists 1"]),
    ] {
        home.run(args).fails_with(code, parts);
    }
    for (args, part) in [
        (&["fdp", "update", DEVICE][..], "--pids <LIST>"),
        (&["fdp", "update", DEVICE, "-p", "x"], "expected a number"),
        (&["fdp", "set-events", DEVICE], "--event-types <LIST>"),
        (&["fdp", "feature", DEVICE, "-c", "0", "-d"], "cannot be used with"),
        (&["fdp", "configs", DEVICE, "-e", "65536"], "expected a number up to 65535"),
        (&["create-ns", DEVICE, "--size", "2M", "-n", "2"], "--phndls <LIST>"),
    ] {
        home.run(args).fails_with_usage(part);
    }
    // A list that names what there is not, and namespaces without room.
    home.ok(&["delete-ns", DEVICE, "-n", "1"]);
    home.run(&["create-ns", DEVICE, "--size", "2M", "--phndls", "0,4"])
        .fails_with(1, &["Invalid Placement Handle List"]);
    home.run(&["create-ns", DEVICE, "--size", "2M", "--phndls", "1,1"])
        .fails_with(1, &["Invalid Placement Handle List"]);
}

#[test]
fn what_is_written_and_what_is_in_use_is_watched() {
    let home = with_fdp();
    let watch = |home: &Home| home.json(&["fdp", "watch", DEVICE, "--count", "1"]);
    let before = watch(&home);
    assert_eq!(
        (&before["host_bytes"], &before["used_bytes"], &before["handles_open"]),
        (&0.into(), &0.into(), &0.into())
    );
    assert_eq!(before["capacity_bytes"], 64 << 20);
    let data = home.file("data", &pattern(1, 16 * 4096));
    for handle in ["1", "2"] {
        home.ok(&["write", DEVICE, "-s", "0", "-d", &data, "-z", "65536", "-T", "2", "-S", handle]);
    }
    let after = watch(&home);
    assert_eq!((&after["host_bytes"], &after["media_bytes"]), (&131_072.into(), &131_072.into()));
    // Whoever opens a device knows of chunks alone what was written before.
    let used = after["used_bytes"].as_u64().expect("a number");
    assert!((65_536..=4 << 20).contains(&used), "{used}");
    assert!(after["time"].as_f64() > before["time"].as_f64());

    let text = home.ok(&["fdp", "watch", DEVICE, "--count", "3", "--interval", "0.01"]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3);
    let begin = "host 131072 bytes, media 131072 bytes, WAF since the last line -, ";
    assert!(lines.iter().all(|line| line.starts_with(begin) && line.ends_with(" open")), "{text}");
    home.run(&["fdp", "watch", DEVICE, "--interval", "0"]).fails_with_usage("0.01 to 86400");
    home.run(&["fdp", "watch", DEVICE, "--count", "0"]).fails_with_usage("expected a number above 0");
    home.ok(&["device", "create", "0000:03:00.0", "--size", "64M", "--ftl", "page"]);
    home.run(&["fdp", "watch", "0000:03:00.0"]).fails_with(1, &["FDP is disabled"]);
}

#[test]
fn two_runs_are_drawn_and_what_is_none_is_refused() {
    let home = with_fdp();
    let mut lines = String::new();
    let data = home.file("data", &pattern(1, 16 * 4096));
    for _ in 0..5 {
        lines += &home.ok(&["fdp", "watch", DEVICE, "--count", "1", "-o", "json"]);
        home.ok(&["write", DEVICE, "-s", "0", "-d", &data, "-z", "65536"]);
    }
    home.file("on.jsonl", lines.as_bytes());
    home.file("off.jsonl", format!("{{\"phase\":\"all\"}}\n{lines}").as_bytes());
    let plot = ["fdp", "plot", "--placed", "on.jsonl", "--unplaced", "off.jsonl"];
    let table = home.ok(&[&plot[..], &["--html", "page.html", "--json", "all.json"]].concat());
    assert!(table.contains("\nwithout ") && table.contains("\nwith placement "), "{table}");
    let json = home.json(&plot);
    assert_eq!((&json["waf_placed"], &json["waf_unplaced"]), (&1.0.into(), &1.0.into()));
    assert_eq!(json["placed"]["host_bytes"], 4 * 65_536);
    let saved = std::fs::read(home.path("all.json")).expect("all.json");
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&saved).expect("JSON"), json);
    assert!(std::fs::read_to_string(home.path("page.html")).expect("page.html").contains("<svg"));

    for (text, part) in [
        (&b"{\"phase\":\"all\"}\nhello\n"[..], "none.jsonl: line 2: a line of `unvme fdp watch -o json`"),
        (
            b"{}\n",
            "none.jsonl: line 1: a line of `unvme fdp watch -o json`, or a remark, is expected: there is no",
        ),
        (
            b"{\"time\":1}\n",
            "none.jsonl: line 1: a line of `unvme fdp watch -o json` is expected: missing field",
        ),
    ] {
        home.file("none.jsonl", text);
        home.run(&["fdp", "plot", "--placed", "none.jsonl", "--unplaced", "off.jsonl"])
            .fails_with(2, &[part]);
    }
    home.run(&[&plot[..], &["--simulation", "on.jsonl"]].concat())
        .fails_with(2, &["on.jsonl: ", "unvme sim --fdp both"]);
}
