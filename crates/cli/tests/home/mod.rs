//! A folder of virtual devices of its own for a test, and the program in it.
#![allow(dead_code)] // Each test file uses a part of it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The name most tests give their device.
pub(crate) const DEVICE: &str = "0000:02:00.0";
/// No command of a test takes this long; one that does hangs.
const LIMIT: Duration = Duration::from_secs(60);

pub(crate) struct Home {
    folder: tempfile::TempDir,
}

/// What a command did.
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Done {
    fn new(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    /// Asserts a failure: its exit code, and one line on stderr with these parts.
    #[track_caller]
    pub(crate) fn fails_with(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.text(), self.stderr);
        assert!(self.stderr.starts_with("unvme: "), "{}", self.stderr);
        assert_eq!(self.stderr.matches('\n').count(), 1, "one line: {}", self.stderr);
        for part in parts {
            assert!(self.stderr.contains(part), "`{part}` is not in: {}", self.stderr);
        }
    }
}

impl Done {
    /// Asserts that clap refused an option: exit code 2, and what it says about it.
    #[track_caller]
    pub(crate) fn fails_with_usage(&self, part: &str) {
        assert_eq!(self.code, 2, "stdout: {}\nstderr: {}", self.text(), self.stderr);
        assert!(self.stderr.starts_with("error: ") && self.stderr.contains(part), "{}", self.stderr);
    }
}

impl Home {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("temporary folder") }
    }

    /// A home with [`DEVICE`] of 64 MiB in it.
    pub(crate) fn with_device() -> Self {
        let home = Self::new();
        home.ok(&["device", "create", DEVICE, "--size", "64M"]);
        home
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn slot(&self) -> PathBuf {
        self.path("unvme/slots").join(DEVICE)
    }

    /// Makes a file and returns its path as an argument.
    pub(crate) fn file(&self, name: &str, content: &[u8]) -> String {
        let path = self.path(name);
        std::fs::write(&path, content).expect("write");
        path.to_str().expect("UTF-8").to_owned()
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_unvme"));
        command.args(args).env_clear().env("UNVME_HOME", self.path("unvme")).current_dir(self.folder.path());
        // A machine without drives, whatever the one has that the tests run on.
        command.env("UNVME_SYSTEM_ROOT", self.path("system"));
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Done {
        self.run_with(args, b"")
    }

    /// Runs the program with something on its standard input.
    pub(crate) fn run_with(&self, args: &[&str], stdin: &[u8]) -> Done {
        let output = assert_cmd::Command::from_std(self.command(args))
            .write_stdin(stdin)
            .timeout(LIMIT)
            .output()
            .expect("run the program");
        Done::new(output)
    }

    /// Runs the program, which succeeds, and returns its output.
    #[track_caller]
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        self.ok_with(args, b"")
    }

    #[track_caller]
    pub(crate) fn ok_with(&self, args: &[&str], stdin: &[u8]) -> String {
        let done = self.run_with(args, stdin);
        assert_eq!(done.code, 0, "{args:?}: {}", done.stderr);
        assert_eq!(done.stderr, "", "{args:?}");
        done.text()
    }

    /// Runs the program, which succeeds, with JSON for output.
    #[track_caller]
    pub(crate) fn json(&self, args: &[&str]) -> serde_json::Value {
        let done = self.run(&[args, &["--output", "json"]].concat());
        assert_eq!(done.code, 0, "{args:?}: {}", done.stderr);
        done.json()
    }

    /// Runs `perf`, which succeeds, or says that a busy machine has left a point no time for one command.
    #[track_caller]
    pub(crate) fn measured(&self, args: &[&str]) -> Done {
        let done = self.run(args);
        let is_stalled =
            done.code == 1 && done.stderr.contains("no command completed in the time measured: ");
        assert!(done.code == 0 || is_stalled, "{args:?}: {}: {}", done.code, done.stderr);
        done
    }

    /// Starts `unvme serve` and waits until it says that clients can attach.
    pub(crate) fn serve(&self, args: &[&str]) -> Server {
        self.serve_to(args, Stdio::inherit(), "")
    }

    /// The same, with what it logs in a file; at the default level when `level` is empty.
    pub(crate) fn serve_logged(&self, args: &[&str], log: &str, level: &str) -> Server {
        self.serve_to(args, std::fs::File::create(self.path(log)).expect("create").into(), level)
    }

    fn serve_to(&self, args: &[&str], stderr: Stdio, level: &str) -> Server {
        let mut command = self.command(&[&["serve"], args].concat());
        if !level.is_empty() {
            command.env("UNVME_LOG", level);
        }
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .expect("start the server");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("piped")).read_line(&mut line).expect("read");
        assert!(line.starts_with("serving "), "{line}");
        Server { process, line }
    }
}

/// A server in the background, killed at the end of the test.
pub(crate) struct Server {
    process: Child,
    pub(crate) line: String,
}

impl Server {
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// SIGKILL: it has no chance to clean up.
    pub(crate) fn kill(mut self) {
        self.process.kill().expect("kill");
        self.process.wait().expect("wait");
    }

    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.pid().to_string()]).status();
        assert!(status.expect("kill").success());
    }

    /// Its exit code, when it ends by itself.
    pub(crate) fn ended(mut self) -> i32 {
        wait(&mut self.process)
    }

    /// SIGTERM, then its exit code.
    pub(crate) fn terminate(mut self) -> i32 {
        self.signal("TERM");
        wait(&mut self.process)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Waits for a process, which ends in time; its exit code, -1 for a signal.
pub(crate) fn wait(process: &mut Child) -> i32 {
    let started = Instant::now();
    loop {
        if let Some(status) = process.try_wait().expect("wait") {
            return status.code().unwrap_or(-1);
        }
        if started.elapsed() > LIMIT {
            let _ = process.kill();
            panic!("process {} does not end", process.id());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until a command has had a quarter of a second of a processor: opening takes much less, so it is at
/// work.
pub(crate) fn wait_busy(command: &Child) {
    const TICKS: u64 = 25;
    let started = Instant::now();
    let path = format!("/proc/{}/stat", command.id());
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

/// True when `path` is there within a while.
pub(crate) fn appears(path: &Path) -> bool {
    becomes(|| path.exists())
}

/// True when `condition` holds within a while.
pub(crate) fn becomes(mut condition: impl FnMut() -> bool) -> bool {
    let started = Instant::now();
    while started.elapsed() < LIMIT {
        if condition() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

/// Bytes that differ from block to block and from run to run of `seed`.
pub(crate) fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(bytes + 8);
    while out.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(bytes);
    out
}
