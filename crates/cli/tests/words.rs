//! nvme-cli's words: what they print, what they refuse, and questions on a terminal.

mod home;

use std::io::Write;
use std::process::{Command, Stdio};

use home::{DEVICE, Home};

#[test]
fn registers_are_shown_and_explained_of_a_controller_here_and_on_the_network() {
    let home = Home::with_device();
    let text = home.ok(&["show-regs", DEVICE]);
    assert!(text.starts_with("cap     : ") && text.contains("\nversion : 20000\n"), "{text}");
    assert!(text.contains("\ncsts    : 1\n"), "{text}");
    let explained = home.ok(&["show-regs", DEVICE, "-H"]);
    for line in
        ["\tMaximum Queue Entries Supported (MQES): 4096\n", "\tReady (RDY): Yes\n", "\tEnable (EN): Yes\n"]
    {
        assert!(explained.contains(line), "{line:?} is not in {explained}");
    }
    let json = home.json(&["show-regs", DEVICE]);
    assert_eq!((json["vs"].as_u64(), json["csts"].as_u64()), (Some(0x20000), Some(1)));
    let property = home.ok(&["get-property", DEVICE, "-O", "8", "-H"]);
    assert_eq!(property, "property: 0x08 (Version), value: 20000\n\tNVMe specification: 2.0.0\n\n");
    home.run(&["get-property", DEVICE, "-O", "0x24"]).fails_with(2, &["--offset 0x24", "0x1c (csts)"]);
}

#[test]
fn logs_about_what_a_controller_can_do_have_nvme_clis_keys() {
    let home = Home::with_device();
    let effects = home.json(&["effects-log", DEVICE]);
    assert_eq!(effects[0]["command_set_identifier"], 0);
    assert_eq!(effects[0]["admin_cmd_set"]["ACS_6 (Identify)"], 0x20_0001);
    assert_eq!(effects[0]["io_cmd_set"]["IOCS_1 (Write)"], 3);
    let text = home.ok(&["effects-log", DEVICE, "-H"]);
    assert!(text.contains("IOCS1     [Write ") && text.contains("CSUPP+  LBCC+  NCC-"), "{text}");
    assert_eq!(home.run(&["effects-log", DEVICE, "-b"]).stdout.len(), 4096);
    let pages = home.json(&["supported-log-pages", DEVICE]);
    assert_eq!(pages["supported_logs"][1]["lid_0x1 "], 1);
    assert!(home.ok(&["supported-log-pages", DEVICE]).contains("\nLID 0x2 - SMART / Health Information\n"));
    home.ok(&["device", "create", "0000:03:00.0", "--size", "64M", "--ftl", "page"]);
    let endurance = home.json(&["endurance-log", "0000:03:00.0"]);
    assert_eq!(endurance["avl_spare"], 100);
    home.run(&["endurance-log", "0000:03:00.0", "-g", "7"])
        .fails_with(1, &["0x09 (Endurance Group Information)"]);
    home.run(&["ana-log", DEVICE]).fails_with(1, &["0x0c (Asymmetric Namespace Access)", "Invalid Log Page"]);
    home.run(&["telemetry-log", DEVICE, "-O", "/nonexistent/file"]).fails_with(2, &["has no telemetry"]);
}

#[test]
fn identities_are_explained() {
    let home = Home::with_device();
    let descriptors = home.json(&["ns-descs", DEVICE, "-n", "1"]);
    assert_eq!(descriptors["ns-descs"][0]["Type"], "eui64");
    assert_eq!(home.run(&["ns-descs", DEVICE, "-b"]).stdout.len(), 4096);
    let text = home.ok(&["id-ns", DEVICE, "-H"]);
    assert!(text.contains("\n  [0:0] : 0\tThin Provisioning Not Supported\n"), "{text}");
    assert!(text.contains("Data Size: 512 bytes - Relative Performance: "), "{text}");
    let text = home.ok(&["smart-log", DEVICE, "-H"]);
    assert!(text.contains("\n      Available Spare[0]             : 0\n"), "{text}");
    let json = home.json(&["id-ctrl", DEVICE]);
    for key in ["bpcap", "crcap", "kpioc", "tmpthha", "cqt", "hirt", "trattr", "nmcmr"] {
        assert!(json[key].is_u64(), "{key}");
    }
    assert_eq!(home.json(&["id-ns", DEVICE])["vs"], serde_json::json!([]));
}

#[test]
fn any_command_is_sent_dword_by_dword() {
    let home = Home::with_device();
    let identify = ["admin-passthru", DEVICE, "--opcode", "6", "--cdw10", "1", "-r"];
    let raw = home.run(&[identify.as_slice(), &["-l", "4096", "-b"]].concat()).stdout;
    assert_eq!(raw, home.run(&["id-ctrl", DEVICE, "-b"]).stdout);
    // What older tools have: the opcode behind -o, fewer bytes than the command moves.
    let text = home.ok(&["admin-passthru", DEVICE, "-o", "6", "--cdw10=1", "-l", "4", "-s"]);
    assert!(text.starts_with("opcode       : 06\nflags        : 00\n"), "{text}");
    assert!(text.contains("\nAdmin Command Identify is Success and result: 0x00000000\n"), "{text}");
    assert!(text.contains("\n0000: 36 1b 36 1b "), "{text}");
    let json = home.json(&["admin-passthru", DEVICE, "-O", "0xa", "--cdw10", "7"]);
    assert_eq!(json["result"], 0x003f_003f);

    // Written, and read back, also without its length: the command has it.
    home.ok_with(&["io-passthru", DEVICE, "-O", "1", "-n", "1", "--cdw10", "8", "-l", "512"], b"by hand");
    let read = ["io-passthru", DEVICE, "-O", "2", "-n", "1", "--cdw10", "8", "-b"];
    let raw = home.run(&read).stdout;
    assert_eq!((&raw[..7], raw.len()), (b"by hand".as_slice(), 512));
    let dry =
        home.ok(&["io-passthru", DEVICE, "-O", "1", "-n", "1", "--cdw10", "8", "-l", "512", "--dry-run"]);
    assert!(dry.contains("\ndata_len     : 00000200\ncdw10        : 00000008\n"), "{dry}");
    assert_eq!(home.run(&read).stdout, raw, "a dry run writes nothing");

    let write = ["io-passthru", DEVICE, "-O", "1", "-n", "1", "--cdw10", "9", "-p", "7"];
    home.ok(&[&write[..], &["-l", "0"]].concat());
    assert_eq!(home.run(&["read", DEVICE, "-s", "9"]).stdout, [7; 512], "of -l 0, the prefill");
    home.run(&write).fails_with(2, &["it is empty; the command sends 512 bytes"]);
    home.run(&["io-passthru", DEVICE, "-O", "0x77"]).fails_with(2, &["both ways"]);
    home.run(&["io-passthru", DEVICE, "-O", "0", "-l", "512"]).fails_with(2, &["it moves no data"]);
    home.run(&["io-passthru", DEVICE, "-O", "1", "-r", "-l", "512"]).fails_with(2, &["goes to the device"]);
    home.run(&["io-passthru", DEVICE]).fails_with(2, &["--opcode"]);
    home.run(&["admin-passthru", DEVICE, "-O", "0x7c"]).fails_with(1, &["Invalid Command Opcode"]);
}

#[test]
fn a_key_value_command_is_sent_dword_by_dword() {
    let home = Home::new();
    home.ok(&["device", "create", DEVICE, "--type", "kv", "--size", "64M"]);
    home.ok(&["kv", "store", DEVICE, "abcd", "value"]);
    // Retrieve: 16 bytes of host buffer in dword 10, a key of 4 bytes in dwords 2 and 11.
    let key = u32::from_le_bytes(*b"abcd").to_string();
    let args =
        ["io-passthru", DEVICE, "-O", "2", "-n", "1", "--cdw2", &key, "--cdw10", "16", "--cdw11", "4", "-b"];
    let raw = home.run(&args).stdout;
    assert_eq!(&raw[..5], b"value");
}

#[test]
fn directives_and_placement_are_sent_as_they_come() {
    let home = Home::new();
    home.ok(&["device", "create", DEVICE, "--size", "256M", "--fdp"]);
    let text = home.ok(&["dir-receive", DEVICE, "-n", "1", "-D", "0", "-O", "1", "-H"]);
    assert!(text.contains("\n\t\tData Placement Directive : supported\n"), "{text}");
    let json = home.json(&["dir-receive", DEVICE, "-H"]);
    assert_eq!(json["directives"]["streams"]["supported"], false);
    let sent = home.ok(&["dir-send", DEVICE, "-D", "0", "-O", "1", "-T", "2", "-e", "1"]);
    assert_eq!(sent, "dir-send: type 0, operation 0x1, spec_val 0, nsid 0x1, result 0\n");
    home.ok_with(&["write", DEVICE, "-s", "0", "-z", "4096"], &[1; 4096]);
    let left = |home: &Home| home.json(&["fdp", "status", DEVICE])["ruhss"][0]["ruamw"].as_u64();
    let before = left(&home).expect("blocks that are left");
    let update = ["io-mgmt-send", DEVICE, "--mo", "1", "--mos", "0", "-l", "4"];
    let sent = home.ok_with(&update, &[0; 4]);
    assert_eq!(sent, "io-mgmt-send: Success, mos:0 mo:1 nsid:1\n");
    assert!(left(&home).expect("blocks that are left") > before, "a new reclaim unit");
    let received = home.ok(&["io-mgmt-recv", DEVICE, "--mo", "1", "-l", "32"]);
    assert!(received.starts_with("io-mgmt-recv: Success, mos:0 mo:1 nsid:1\n"), "{received}");
    home.run(&["io-mgmt-recv", DEVICE, "-l", "5"]).fails_with(2, &["multiple of 4"]);
}

#[test]
fn blocks_become_unreadable_until_they_are_written_again() {
    let home = Home::with_device();
    assert_eq!(
        home.ok(&["write-uncor", DEVICE, "-s", "100", "-c", "7"]),
        "NVME Write Uncorrectable Success\n"
    );
    home.run(&["read", DEVICE, "-s", "107"]).fails_with(1, &["Unrecovered Read Error"]);
    home.ok(&["read", DEVICE, "-s", "108", "--data", "/dev/null"]);
    home.ok_with(&["write", DEVICE, "-s", "100", "-c", "7"], &[7; 8 * 512]);
    assert_eq!(home.run(&["read", DEVICE, "-s", "107"]).stdout, [7; 512]);
}

#[test]
fn commands_are_shown_timed_and_held_back() {
    let home = Home::with_device();
    let args = ["write", DEVICE, "-s", "16", "-c", "7", "--dry-run"];
    let text = home.ok_with(&args, &[9; 4096]);
    assert!(text.contains("opcode       : 01\n") && text.contains("nblocks      : 0007\n"), "{text}");
    assert_eq!(home.run(&["read", DEVICE, "-s", "16"]).stdout, [0; 512]);
    let done = home.run(&["read", DEVICE, "-s", "16", "-t", "-V"]);
    assert_eq!(done.stdout, [0; 512]);
    assert!(done.stderr.contains("slba         : 10\n"), "{}", done.stderr);
    assert!(done.stderr.contains(" latency: read: "), "{}", done.stderr);
    let large = home.ok_with(&["compare", DEVICE, "-z", "4M", "-w"], &[]);
    assert!(large.contains("sent as 2 commands of at most 4096 blocks\n"), "{large}");
    home.run_with(&["write", DEVICE], b"").fails_with(2, &["the input is empty"]);
}

#[test]
fn subsystems_have_their_controllers() {
    let home = Home::with_device();
    let text = home.ok(&["list-subsys"]);
    assert!(text.starts_with("nvme-subsys0 - NQN=nqn."), "{text}");
    assert!(text.ends_with("\n\\\n +- 0000:02:00.0 in-process live\n"), "{text}");
    let json = home.json(&["list-subsys", DEVICE]);
    assert_eq!(json["Subsystems"][0]["Paths"][0]["Name"], DEVICE);
    let text = home.ok(&["list", "-v"]);
    assert!(text.contains("Subsystem-NQN") && text.contains("Cntlid") && text.contains("NSID"), "{text}");
    let json = home.json(&["list", "--verbose"]);
    let controller = &json["Devices"][0]["Subsystems"][0]["Controllers"][0];
    assert_eq!(controller["ModelNumber"], "unvme virtual SSD");
    assert_eq!(controller["Namespaces"][0]["NSID"], 1);
    home.run(&["list-subsys", "0000:0f:00.0"]).fails_with(3, &["no such device"]);
    let version = home.ok(&["version"]);
    assert_eq!(version, format!("unvme version {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn errors_say_what_to_type_and_what_they_are_about() {
    let home = Home::with_device();
    home.run(&["id-ctrl", "/dev/nvme0"]).fails_with(2, &["kernel:/dev/nvme0"]);
    home.run(&["id-ctrl", "nvme0n1"]).fails_with(2, &["kernel:/dev/nvme0n1"]);
    home.run(&["id-ctrl", "/tmp"]).fails_with(2, &["a folder is no device", "vfio-user:/tmp"]);
    home.run(&["id-ctrl", "tcp:127.0.0.1:4420"]).fails_with(2, &["unvme discover 127.0.0.1:4420"]);
    home.run(&["get-feature", DEVICE, "-f", "0xc"])
        .fails_with(1, &["Get Features of feature 0x0c (Autonomous Power State Transition)"]);
    home.run(&["get-log", DEVICE, "-i", "0xcf", "-l", "512"]).fails_with(1, &["Get Log Page of page 0xcf"]);
    let done = home.command(&["list"]).env("UNVME_LOG", "nonsense").output().expect("run");
    assert_eq!(done.status.code(), Some(2));
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert_eq!(stderr, "unvme: UNVME_LOG=nonsense: expected off, error, warn, info, debug or trace\n");
    let done = home.command(&["list"]).env("UNVME_LOG", "debug").output().expect("run");
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert!(stderr.starts_with("20") && stderr.contains("T") && stderr.contains("Z DEBUG "), "{stderr}");
}

/// Runs a command on a terminal, with an answer typed.
fn on_a_terminal(home: &Home, args: &[&str], answer: &str) -> (Option<i32>, String) {
    let command = home.command(args);
    let program = command.get_program().to_string_lossy().into_owned();
    let line = [&[program.as_str()], args].concat().join(" ");
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).envs(command.get_envs().filter_map(|(k, v)| Some((k, v?))));
    let child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("script, of util-linux");
    child.stdin.take().expect("a pipe").write_all(answer.as_bytes()).expect("write");
    let output = child.wait_with_output().expect("wait");
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn what_takes_all_data_with_it_is_asked_for_on_a_terminal() {
    let home = Home::with_device();
    home.ok_with(&["write", DEVICE, "-z", "512"], &[5; 512]);
    for args in
        [&["format", DEVICE, "-n", "1"][..], &["delete-ns", DEVICE, "-n", "1"], &["device", "remove", DEVICE]]
    {
        let (code, text) = on_a_terminal(&home, args, "no\n");
        assert_eq!(code, Some(5), "{text}");
        assert!(text.contains("Type yes to go on") && text.contains("--force"), "{text}");
        assert_eq!(home.run(&["read", DEVICE]).stdout, [5; 512], "{args:?}");
    }
    let (code, text) = on_a_terminal(&home, &["format", DEVICE, "-n", "1"], "yes\n");
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(home.run(&["read", DEVICE]).stdout, [0; 512]);
    let (code, text) = on_a_terminal(&home, &["device", "remove", DEVICE, "--force"], "");
    assert_eq!(code, Some(0), "{text}");
    assert!(!text.contains("Type yes"), "{text}");
}

#[test]
fn a_value_ends_its_line_on_a_terminal_alone() {
    let home = Home::new();
    home.ok(&["device", "create", DEVICE, "--type", "kv", "--size", "64M"]);
    home.ok(&["kv", "store", DEVICE, "k", "value"]);
    assert_eq!(home.run(&["kv", "retrieve", DEVICE, "k"]).stdout, b"value");
    let (code, text) = on_a_terminal(&home, &["kv", "retrieve", DEVICE, "k"], "");
    assert_eq!((code, text.as_str()), (Some(0), "value\r\n"));
}
