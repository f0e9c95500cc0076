//! A file system that is mounted: no command changes the namespace below it, by whichever name.

mod home;
mod network;

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use home::{DEVICE, Home, wait};
use network::name_of;
use rustix::process::{Pid, Signal, kill_process};

const NQN: &str = "nqn.2024-01.io.example:ssd";

/// A server that has the file system of namespace 1 mounted.
struct Mounted(Child);

impl Mounted {
    fn start(home: &Home, name: &str) -> Self {
        let mut command = home.command(&["fs", "serve", name, "-n", "1", "--socket", "s"]);
        let mut process =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("start the server");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("piped")).read_line(&mut line).expect("read");
        assert!(line.starts_with("serving the file system of "), "{line}");
        Self(process)
    }

    fn end(mut self) {
        kill_process(Pid::from_raw(self.0.id() as i32).expect("a process"), Signal::TERM).expect("signalled");
        assert_eq!(wait(&mut self.0), 0);
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Every command that changes blocks, formats or namespaces is refused, and names the process.
fn expect_refused(home: &Home, name: &str, mounted: &Mounted) {
    let holder = format!("process {} (", mounted.0.id());
    for words in [
        "format --force",
        "write -s 0 -z 512 --force",
        "write-zeroes -s 0 -c 7 --force",
        "dsm -d -s 0 -b 8 --force",
        "delete-ns -n 1 --force",
        "detach-ns -n 1",
        "admin-passthru -O 0x80 -n 1 --force",
        "io-passthru -O 0x08 -n 1 --force",
        "fs mkfs --force",
    ] {
        let mut args: Vec<&str> = words.split(' ').collect();
        args.insert(if args[0] == "fs" { 2 } else { 1 }, name);
        let done = home.run_with(&args, &[7; 512]);
        assert_eq!(done.code, 3, "{args:?}: {} {}", done.text(), done.stderr);
        assert!(
            done.stderr.contains(&holder) && done.stderr.contains("mounted"),
            "{args:?}: {}",
            done.stderr
        );
    }
    let perf = ["perf", "-r", name, "-w", "randwrite", "-t", "0.1", "--no-prefill", "--force"];
    let done = home.run(&perf);
    assert!(done.code != 0 && done.stderr.contains(&holder), "{}: {}", done.code, done.stderr);
}

#[test]
fn nothing_changes_the_namespace_of_a_mounted_file_system_by_any_name() {
    let home = Home::with_device();
    let server = home.serve(&["--tcp", "0", "--nqn", NQN, DEVICE]);
    let tcp = name_of(&server);
    let socket = format!("vfio-user:{}", home.slot().join("cntrl").display());
    home.ok(&["fs", "mkfs", DEVICE, "--force"]);
    let file = home.file("file", &[5; 100_000]);
    home.ok(&["fs", "put", DEVICE, &file, "/kept"]);
    let mounted = Mounted::start(&home, DEVICE);
    for name in [DEVICE, &tcp, &socket] {
        expect_refused(&home, name, &mounted);
        // Reads go on, and another mount is refused.
        assert_eq!(home.run(&["read", name, "-s", "0", "-z", "512"]).code, 0);
        home.run(&["fs", "serve", name, "--socket", "t"]).fails_with(3, &["has the file system mounted"]);
    }
    mounted.end();
    // By the network's name, while others come by the slot's.
    let mounted = Mounted::start(&home, &tcp);
    expect_refused(&home, DEVICE, &mounted);
    mounted.end();
    assert!(home.ok(&["fs", "check", DEVICE]).contains("all is well"));
    assert_eq!(home.run(&["fs", "cat", DEVICE, "/kept"]).stdout, [5; 100_000]);
    // No process has it mounted now.
    home.ok(&["write-zeroes", DEVICE, "-s", "0", "-c", "7"]);
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_device_whose_file_system_is_mounted_is_not_served_and_namespaces_without_one_are_written() {
    let home = Home::new();
    home.ok(&["device", "create", DEVICE, "--size", "64M", "--namespaces", "32M,16M"]);
    home.ok(&["fs", "mkfs", DEVICE, "-n", "1"]);
    let mounted = Mounted::start(&home, DEVICE);
    let holder = format!("process {}", mounted.0.id());
    home.run(&["serve", DEVICE, "--socket", "u"]).fails_with(3, &[&holder]);
    home.run(&["device", "remove", DEVICE, "--force"]).fails_with(3, &[&holder]);
    home.ok_with(&["write", DEVICE, "-n", "2", "-s", "0"], &[1; 512]);
    home.ok(&["format", DEVICE, "-n", "2"]);
    home.run(&["format", DEVICE, "-n", "0xffffffff"]).fails_with(3, &[&holder]);
    mounted.end();
}
