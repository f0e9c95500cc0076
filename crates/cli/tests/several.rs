//! Several processes and one device: whoever comes first holds it, and the others use it through the holder.

mod home;

use std::io::{Read, Write};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use home::{DEVICE, Home, pattern, wait, wait_busy};

/// A command in the background, killed at the end of the test.
struct Background(Child);

impl Background {
    fn start(home: &Home, args: &[&str]) -> Self {
        let child = home
            .command(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("start");
        Self(child)
    }

    /// Exit code and standard error.
    fn ended(mut self) -> (i32, String) {
        let code = wait(&mut self.0);
        let mut stderr = String::new();
        self.0.stderr.take().expect("piped").read_to_string(&mut stderr).expect("read");
        (code, without_notes(&stderr))
    }

    /// What Ctrl-C does.
    fn interrupt(&self) {
        let pid = self.0.id().to_string();
        assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().expect("kill").success());
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Lines that do not say that a command waits, as it does on a busy machine.
fn without_notes(stderr: &str) -> String {
    stderr.lines().filter(|line| !line.starts_with("unvme: note: ")).collect::<Vec<_>>().join("\n")
}

/// The process that holds the device and shares it, by its lock file.
fn sharer(home: &Home) -> Option<u32> {
    let says = std::fs::read_to_string(home.slot().join("lock")).ok()?;
    let (holder, note) = says.split_once('\n')?;
    (note == "shared\n").then(|| holder.split(' ').next()?.parse().ok()).flatten()
}

/// Waits until one of `those` holds the device and shares it: which one.
fn wait_for_heir(home: &Home, those: &[Background]) -> usize {
    let started = Instant::now();
    loop {
        let holder = sharer(home);
        if let Some(at) = those.iter().position(|one| Some(one.0.id()) == holder) {
            return at;
        }
        assert!(started.elapsed() < Duration::from_secs(60), "nobody takes over: {holder:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until `holder` holds the device and shares it.
fn wait_shared(home: &Home, holder: &Background) {
    let started = Instant::now();
    while sharer(home) != Some(holder.0.id()) {
        assert!(started.elapsed() < Duration::from_secs(60), "the device is shared");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn perf<'a>(time: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["perf", "--warmup", "0", "-t", time, "-r", DEVICE, "-q", "4"], more].concat()
}

#[test]
fn commands_work_while_another_process_measures_the_same_device() {
    let home = Home::with_device();
    home.ok_with(&["write", DEVICE, "-s", "4096"], &pattern(3, 1 << 20));
    let holder = Background::start(&home, &perf("600", &["-w", "randwrite", "--range", "1M"]));
    wait_shared(&home, &holder);
    assert!(home.ok(&["smart-log", DEVICE]).contains("temperature"));
    assert!(home.ok(&["id-ctrl", DEVICE]).contains("UNVME000002000"));
    assert!(home.ok(&["list"]).contains("UNVME000002000"));
    home.ok(&["get-log", DEVICE, "-i", "2", "-l", "512"]);
    assert_eq!(home.run(&["read", DEVICE, "-s", "4096", "-z", "1M"]).stdout, pattern(3, 1 << 20));
    home.ok_with(&["write", DEVICE, "-s", "8192"], &[7; 512]);
    assert_eq!(home.run(&["read", DEVICE, "-s", "8192"]).stdout, [7; 512]);
    home.run(&["device", "remove", DEVICE]).fails_with(3, &["in use by process"]);
    drop(holder);
    assert_eq!(home.run(&["read", DEVICE, "-s", "8192"]).stdout, [7; 512], "after it was killed, too");
}

#[test]
fn three_processes_read_and_verify_one_device_at_once() {
    let home = Home::with_device();
    // It says that it writes all of it first.
    let filled = home.run(&perf("0.05", &["-w", "write", "--verify", "--range", "1M"]));
    assert_eq!(filled.code, 0, "{}", filled.stderr);
    let read = |time| {
        let more = ["-w", "randread", "--verify", "--no-prefill", "--range", "1M"];
        Background::start(&home, &perf(time, &more))
    };
    // The one that holds the device outlives the others: when it ends they do.
    let holder = read("600");
    wait_shared(&home, &holder);
    for other in [read("1"), read("1")] {
        let (code, stderr) = other.ended();
        assert_eq!(code, 0, "{stderr}");
    }
}

/// What a measurement says that was ended by a signal.
const INTERRUPTED: &str = "unvme: interrupted: the figures are of the time until then";

#[test]
fn whoever_uses_a_device_goes_on_when_its_holder_is_killed() {
    let home = Home::with_device();
    let kept = pattern(9, 1 << 20);
    home.ok_with(&["write", DEVICE, "-s", "65536", "-f"], &kept);
    let mut holder = Background::start(&home, &perf("600", &["-w", "randwrite", "--range", "1M"]));
    wait_shared(&home, &holder);
    let work = ["-w", "randrw", "--range", "1M"];
    let mut others: Vec<_> = (0..3).map(|_| Background::start(&home, &perf("600", &work))).collect();
    // One that is still opening the device would be the next to hold it.
    others.iter().for_each(|other| wait_busy(&other.0));
    holder.0.kill().expect("kill");
    holder.0.wait().expect("wait");
    let next = wait_for_heir(&home, &others);
    assert_eq!(home.run(&["read", DEVICE, "-s", "65536", "-z", "1M"]).stdout, kept);
    // The next one is killed too, and the one after that is asked to end.
    let mut killed = others.swap_remove(next);
    killed.0.kill().expect("kill");
    killed.0.wait().expect("wait");
    let next = wait_for_heir(&home, &others);
    let ending = others.swap_remove(next);
    ending.interrupt();
    assert_eq!(ending.ended(), (130, INTERRUPTED.to_owned()));
    wait_for_heir(&home, &others);
    let last = others.remove(0);
    last.interrupt();
    assert_eq!(last.ended(), (130, INTERRUPTED.to_owned()));
    assert_eq!(home.run(&["read", DEVICE, "-s", "65536", "-z", "1M"]).stdout, kept);
}

#[test]
fn three_kv_perf_on_one_slot_all_succeed_whoever_ends_first() {
    let home = Home::new();
    home.ok(&["device", "create", DEVICE, "--type", "kv", "--size", "256M"]);
    home.file(
        "config.json",
        br#"{ "cache": "off", "slab_size": 44, "slab_alloc_policy": "huge", "ssd_type": "kv", "driver": "udd", "log_level": 0,
              "device_description": { "dev_id": "0000:02:00.0", "core_mask": 1, "sync_mask": 1, "cq_thread_mask": 1, "queue_depth": 64 } }"#,
    );
    for counts in [["2000", "8000", "14000"], ["14000", "8000", "2000"]] {
        let start = |count| {
            Background::start(&home, &["kv_perf", "-j", "config.json", "-n", count, "-v", "4096", "-w", "-r"])
        };
        for one in counts.map(start) {
            let (code, stderr) = one.ended();
            assert_eq!((code, stderr.as_str()), (0, ""));
        }
    }
}

#[test]
fn forty_processes_store_at_once_on_a_fresh_slot() {
    let home = Home::new();
    home.ok(&["device", "create", DEVICE, "--type", "kv", "--size", "64M"]);
    let keys: Vec<String> = (0..40).map(|number| format!("key{number}")).collect();
    let all: Vec<_> =
        keys.iter().map(|key| Background::start(&home, &["kv", "store", DEVICE, key, key])).collect();
    for one in all {
        let (code, stderr) = one.ended();
        assert_eq!((code, stderr.as_str()), (0, ""));
    }
    assert_eq!(home.ok(&["kv", "list", DEVICE]).lines().count(), keys.len());
}

#[test]
fn whoever_opens_a_device_waits_for_one_that_is_opening_it_and_says_so() {
    let home = Home::with_device();
    // What somebody has done who was stopped while opening it: the lock is taken, and nobody listens.
    let path = home.slot().join("lock");
    let held = std::fs::File::create(&path).expect("a lock file");
    held.lock().expect("lock");
    let waiting = Background::start(&home, &["id-ctrl", DEVICE]);
    let mut child = waiting;
    let mut said = String::new();
    let mut stderr = std::io::BufReader::new(child.0.stderr.take().expect("piped"));
    std::io::BufRead::read_line(&mut stderr, &mut said).expect("read");
    assert_eq!(
        said,
        "unvme: note: 0000:02:00.0: waiting: in use by another process; it is opening the device\n"
    );
    drop(held);
    assert_eq!(wait(&mut child.0), 0);
}

/// Two programs, each process 1 of a namespace of its own: `$0` is the program and `$1` the device. The first
/// one holds it, and the second one opens it meanwhile.
const TWICE_PROCESS_1: &str = r#"
own="unshare --pid --fork --kill-child"
$own "$0" perf --warmup 0 -t 600 -w randread --range 1M -q 4 -r "$1" > /dev/null &
until grep -qs shared "$UNVME_HOME/slots/$1/lock"; do kill -0 $! || exit 1; sleep 0.01; done
$own "$0" id-ctrl "$1"
echo "code $?"
kill -KILL $!
"#;

#[test]
fn a_holder_of_another_namespace_is_not_taken_for_this_process() {
    let home = Home::with_device();
    let unshared = |script: &str| {
        let mut command = std::process::Command::new("unshare");
        command.args([
            "--user",
            "--map-root-user",
            "bash",
            "-c",
            script,
            env!("CARGO_BIN_EXE_unvme"),
            DEVICE,
        ]);
        command.env("UNVME_HOME", home.path("unvme")).output()
    };
    if !unshared("unshare --pid --fork --kill-child true").is_ok_and(|probe| probe.status.success()) {
        // This machine gives a test no namespaces. What a lock file says of them is tested with the lock.
        return;
    }
    let output = unshared(TWICE_PROCESS_1).expect("run");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(stdout.ends_with("code 0\n"), "{stdout}{stderr}");
}

#[test]
fn a_slot_that_others_could_read_is_told_of_once() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::with_device();
    std::fs::set_permissions(home.slot(), std::fs::Permissions::from_mode(0o755)).expect("mode");
    let first = home.run(&["id-ctrl", DEVICE]);
    assert_eq!(first.code, 0);
    assert_eq!(
        first.stderr,
        format!(
            "unvme: note: {DEVICE}: others could read or change what is in {}; only its owner can now\n",
            home.slot().display()
        )
    );
    assert_eq!(home.run(&["id-ctrl", DEVICE]).stderr, "");
}

#[test]
fn killed_clients_leave_a_holder_that_works_and_room_for_others() {
    let home = Home::with_device();
    let holder = Background::start(&home, &perf("600", &["-w", "randread", "--range", "1M"]));
    wait_shared(&home, &holder);
    let descriptors = format!("/proc/{}/fd", holder.0.id());
    let count = || std::fs::read_dir(&descriptors).expect("the holder lives").count();
    let mut before = 0;
    for round in 0..20 {
        let mut client = home
            .command(&["write", DEVICE, "-z", "8M"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("start");
        // What is in the pipe is smaller than this: the client is attached and at work.
        client.stdin.take().expect("piped").write_all(&[1; 1 << 20]).expect("write");
        client.kill().expect("kill");
        client.wait().expect("wait");
        if round == 4 {
            home.ok(&["id-ctrl", DEVICE]);
            before = count();
        }
    }
    home.ok(&["id-ctrl", DEVICE]);
    let started = Instant::now();
    while count() > before {
        assert!(started.elapsed() < Duration::from_secs(60), "{before} descriptors became {}", count());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn many_processes_that_start_at_once_all_get_the_device() {
    let home = Home::with_device();
    let all: Vec<_> = (0..8).map(|_| Background::start(&home, &["id-ctrl", DEVICE])).collect();
    for one in all {
        let (code, stderr) = one.ended();
        assert_eq!((code, stderr.as_str()), (0, ""));
    }
}

#[test]
fn several_clients_of_a_server_do_not_wait_for_each_other() {
    let home = Home::with_device();
    let server = home.serve(&[DEVICE]);
    let first = Background::start(&home, &perf("600", &["-w", "randwrite", "--range", "1M"]));
    let second = Background::start(&home, &perf("1", &["-w", "randread", "--range", "1M"]));
    home.ok(&["smart-log", DEVICE]);
    let (code, stderr) = second.ended();
    assert_eq!(code, 0, "{stderr}");
    drop(first);
    home.ok_with(&["write", DEVICE, "-s", "8192"], &[5; 512]);
    assert_eq!(server.terminate(), 0);
    assert_eq!(home.run(&["read", DEVICE, "-s", "8192"]).stdout, [5; 512]);
}
