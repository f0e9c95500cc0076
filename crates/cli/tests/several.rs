//! Several processes and one device: whoever comes first holds it, and the others use it through the holder.

mod home;

use std::io::Write;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use home::{DEVICE, Home, pattern, wait};

/// A command in the background, killed at the end of the test.
struct Background(Child);

impl Background {
    fn start(home: &Home, args: &[&str]) -> Self {
        let child = home
            .command(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("start");
        Self(child)
    }

    /// Exit code and standard error.
    fn ended(mut self) -> (i32, String) {
        let code = wait(&mut self.0);
        let mut stderr = String::new();
        std::io::Read::read_to_string(&mut self.0.stderr.take().expect("piped"), &mut stderr).expect("read");
        (code, stderr)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until `holder` holds the device and shares it.
fn wait_shared(home: &Home, holder: &Background) {
    let started = Instant::now();
    let (lock, says) = (home.slot().join("lock"), format!("{}\nshared\n", holder.0.id()));
    while std::fs::read_to_string(&lock).unwrap_or_default() != says {
        assert!(started.elapsed() < Duration::from_secs(30), "the device is shared");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until a command has had a quarter of a second of a processor: opening takes much less, so it is at
/// work.
fn wait_busy(command: &Background) {
    const TICKS: u64 = 25;
    let started = Instant::now();
    let path = format!("/proc/{}/stat", command.0.id());
    let ticks = || {
        let stat = std::fs::read_to_string(&path).expect("the command runs");
        let (_, fields) = stat.rsplit_once(')').expect("a name in parentheses");
        let user = fields.split_whitespace().nth(11).expect("utime");
        user.parse::<u64>().expect("a number")
    };
    while ticks() < TICKS {
        assert!(started.elapsed() < Duration::from_secs(60), "the command does nothing");
        std::thread::sleep(Duration::from_millis(10));
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
    home.ok(&perf("0.05", &["-w", "write", "--verify", "--range", "1M"]));
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

#[test]
fn a_killed_holder_ends_the_others_with_errors_and_the_next_takes_over() {
    let home = Home::with_device();
    let kept = pattern(9, 1 << 20);
    home.ok_with(&["write", DEVICE, "-s", "65536", "-f"], &kept);
    let mut holder = Background::start(&home, &perf("600", &["-w", "randwrite", "--range", "1M"]));
    wait_shared(&home, &holder);
    let others: Vec<_> = (0..2)
        .map(|_| Background::start(&home, &perf("600", &["-w", "randread", "--range", "1M"])))
        .collect();
    // One that is still opening the device would be the next to hold it.
    others.iter().for_each(wait_busy);
    holder.0.kill().expect("kill");
    holder.0.wait().expect("wait");
    let started = Instant::now();
    for other in others {
        let (code, stderr) = other.ended();
        assert_eq!(code, 4, "{stderr}");
        assert!(stderr.contains(DEVICE), "{stderr}");
    }
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    assert_eq!(home.run(&["read", DEVICE, "-s", "65536", "-z", "1M"]).stdout, kept);
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
        assert!(started.elapsed() < Duration::from_secs(10), "{before} descriptors became {}", count());
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
