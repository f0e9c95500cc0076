//! Blocks: written, read back by another process, compared, zeroed.

mod home;

use std::process::Command;

use home::{DEVICE, Home, pattern};

#[test]
fn what_one_process_writes_another_reads() {
    let home = Home::with_device();
    let data = pattern(1, 3 << 20);
    let file = home.file("data", &data);
    let line = home.ok(&["write", DEVICE, "-s", "100", "-d", &file]);
    assert_eq!(line, "write: Success, 3145728 bytes\n");
    assert_eq!(home.run(&["read", DEVICE, "-s", "100", "-z", "3M"]).stdout, data);
    // Through a file, and only a part.
    let line = home.ok(&["read", DEVICE, "-s", "101", "-z", "700", "-d", "part"]);
    assert_eq!(line, "read: Success, 700 bytes\n");
    assert_eq!(std::fs::read(home.path("part")).expect("read"), &data[512..1212]);
    // The count is minus one, as in nvme-cli.
    assert_eq!(home.run(&["read", DEVICE, "-s", "100", "-c", "1"]).stdout, &data[..1024]);
    assert_eq!(
        home.run(&["read", DEVICE, "-s", "100"]).stdout,
        &data[..512],
        "one block when nothing is said"
    );
}

#[test]
fn standard_input_is_written_as_far_as_it_goes() {
    let home = Home::with_device();
    let data = pattern(2, (1 << 20) + 512);
    home.ok_with(&["write", DEVICE, "-s", "8"], &data);
    assert_eq!(home.run(&["read", DEVICE, "-s", "8", "-z", &data.len().to_string()]).stdout, data);
    home.run_with(&["write", DEVICE], b"no whole block")
        .fails_with(2, &["the input has 14 bytes", "no whole blocks of 512", "--data-size"]);
    assert_eq!(home.run(&["read", DEVICE]).stdout, [0; 512], "nothing of it was written");
    let written = home.run_with(&["write", DEVICE, "-z", "1K", "-o", "json"], b"short").json();
    assert_eq!(
        written,
        serde_json::json!({"nsid": 1, "start_block": 0, "blocks": 2, "bytes": 5, "padding": 1019})
    );
    let mut expected = b"short".to_vec();
    expected.resize(1024, 0);
    assert_eq!(home.run(&["read", DEVICE, "-c", "1"]).stdout, expected);
}

#[test]
fn compare_tells_equal_from_different() {
    let home = Home::with_device();
    let mut data = pattern(3, 64 << 10);
    home.ok_with(&["write", DEVICE, "--force-unit-access"], &data);
    assert_eq!(home.ok_with(&["compare", DEVICE], &data), "compare: Success, 65536 bytes\n");
    data[40_000] ^= 1;
    home.run_with(&["compare", DEVICE], &data).fails_with(
        1,
        &["0000:02:00.0 namespace 1: compare 128 blocks from block 0", "Compare Failure (0x285"],
    );
}

#[test]
fn zeroed_and_deallocated_blocks_read_as_zeroes() {
    let home = Home::with_device();
    home.ok_with(&["write", DEVICE], &[0xff; 64 * 512]);
    assert_eq!(home.ok(&["write-zeroes", DEVICE, "-s", "8", "-c", "7"]), "NVME Write Zeroes Success\n");
    assert_eq!(home.ok(&["dsm", DEVICE, "-d", "-s", "24,40", "-b", "8,16"]), "NVMe DSM: success\n");
    assert_eq!(home.ok(&["flush", DEVICE]), "NVMe Flush: success\n");
    assert_eq!(home.ok(&["verify", DEVICE, "-c", "63"]), "NVME Verify Success\n");
    let data = home.run(&["read", DEVICE, "-c", "63"]).stdout;
    for (block, bytes) in data.chunks(512).enumerate() {
        let expected = if matches!(block, 8..16 | 24..32 | 40..56) { 0 } else { 0xff };
        assert!(bytes.iter().all(|b| *b == expected), "block {block}");
    }
}

#[test]
fn blocks_beyond_the_end_are_refused_before_anything_happens() {
    let home = Home::with_device();
    let end = "131071";
    for args in [
        &["read", DEVICE, "-s", end, "-c", "1"][..],
        &["read", DEVICE, "-s", "18446744073709551615"],
        &["write", DEVICE, "-s", end, "-z", "1024"],
        &["compare", DEVICE, "-s", end, "-z", "1024"],
        &["write-zeroes", DEVICE, "-s", end, "-c", "1"],
        &["verify", DEVICE, "-s", "0", "-c", "131072"],
    ] {
        home.run(args).fails_with(2, &["namespace 1 has 131072 blocks of 512 bytes"]);
    }
    // Without a length of its own the input is found too long on the way.
    home.run_with(&["write", DEVICE, "-s", end], &[1; 1024])
        .fails_with(2, &["the namespace has 131072 blocks"]);
    // What only the device can know is the device's to refuse.
    home.run(&["dsm", DEVICE, "-d", "-s", end, "-b", "2"]).fails_with(1, &["LBA Out of Range (0x080"]);
}

#[test]
fn a_memory_device_lives_and_dies_with_the_command() {
    let home = Home::new();
    home.ok_with(&["write", "mem:block:16M,block=4096", "-z", "4K"], b"x");
    assert_eq!(home.run(&["read", "mem:block:16M"]).stdout, [0; 512]);
    let id = home.json(&["id-ns", "mem:block:16M,block=4096"]);
    assert_eq!((id["nsze"].as_u64(), id["flbas"].as_u64()), (Some(4096), Some(1)));
    assert!(!home.path("unvme").exists(), "nothing is left on the disk");
}

/// Runs on a disk of 8 MiB of its own, which takes a user and a mount namespace.
const ON_A_SMALL_DISK: &str = r#"
set -e
mount -t tmpfs -o size=8m tmpfs "$UNVME_HOME"
"$0" device create 0000:02:00.0 --size 64M > /dev/null
head -c 4096 /dev/zero | tr '\0' a | "$0" write 0000:02:00.0 > /dev/null
code=0
"$0" write 0000:02:00.0 -s 8 -z 32M < /dev/zero || code=$?
echo "code $code"
"$0" read 0000:02:00.0 -z 4096 | tr -d a | wc -c
"$0" verify 0000:02:00.0 -c 7
"#;

/// Runs a script with a folder that it can mount a disk on. `None` where this machine gives a test no disk of
/// its own; the same is tested below, in the device, with a store that fails.
fn unshared(folder: &std::path::Path, script: &str) -> Option<std::process::Output> {
    let run = |script: &str| {
        Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "bash", "-c", script, env!("CARGO_BIN_EXE_unvme")])
            .env("UNVME_HOME", folder)
            .output()
    };
    let probe = run("mount -t tmpfs tmpfs \"$UNVME_HOME\"");
    probe.is_ok_and(|probe| probe.status.success()).then(|| run(script).expect("run"))
}

#[test]
fn a_full_disk_is_capacity_exceeded_and_nothing_is_lost() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let Some(output) = unshared(folder.path(), ON_A_SMALL_DISK) else { return };
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("Capacity Exceeded (0x081"), "{stderr}");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(stdout, "code 1\n0\nNVME Verify Success\n", "{stderr}");
}

/// Runs on a disk of 32 MiB of its own, which another file has filled.
const PAIRS_ON_A_FULL_DISK: &str = r#"
set -e
mount -t tmpfs -o size=32m tmpfs "$UNVME_HOME"
"$0" device create 0000:02:00.0 --type kv --size 64M > /dev/null
for key in 1 2 3 4 5 6; do "$0" kv store 0000:02:00.0 key$key value > /dev/null; done
cat /dev/zero > "$UNVME_HOME/filler" 2> /dev/null || true
for key in 1 2 3 4 5; do "$0" kv delete 0000:02:00.0 key$key; done
for rule in 1 2 3 4 5 6 7 8 9 10 11 12; do "$0" fault add 0000:02:00.0 --opcode 0x02 --delay 1us > /dev/null; done
"$0" kv list 0000:02:00.0
"#;

#[test]
fn pairs_are_deleted_and_faults_are_saved_on_a_disk_that_others_have_filled() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let Some(output) = unshared(folder.path(), PAIRS_ON_A_FULL_DISK) else { return };
    let stderr = String::from_utf8_lossy(&output.stderr);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(stdout, "delete: Success\n".repeat(5) + "key6\n", "{stderr}");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let home = Home::with_device();
    let mut command = Command::new("bash");
    command
        .args(["-c", "set -o pipefail; \"$0\" \"$@\" | head -c 1", env!("CARGO_BIN_EXE_unvme")])
        .args(["read", DEVICE, "-z", "32M"])
        .env("UNVME_HOME", home.path("unvme"));
    let output = command.output().expect("run");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
}
