//! Programs in C that a row compares with, each in a process of its own: compiled when they are needed, told
//! on their standard input what to do, and answering with operations per second.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// A compiler's arguments behind the source: where headers and libraries are.
pub(crate) type Flags = Vec<String>;

/// A running peer. It ends when this is dropped.
pub(crate) struct Peer {
    name: &'static str,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// What it writes to its standard error.
    log: PathBuf,
}

impl Peer {
    /// Compiles `peers/NAME.c`.
    pub(crate) fn compile(name: &str, flags: &Flags) -> Result<PathBuf> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("benches/bench/peers/{name}.c"));
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("peer-{name}"));
        let output = Command::new("cc")
            .args(["-O2", "-std=gnu11", "-o"])
            .arg(&program)
            .arg(&source)
            .args(flags)
            .output()
            .context("run cc")?;
        if !output.status.success() {
            bail!("compile {}: {}", source.display(), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(program)
    }

    /// Starts a compiled peer on a core.
    pub(crate) fn start(
        name: &'static str,
        program: &Path,
        core: usize,
        arguments: &[String],
    ) -> Result<Self> {
        let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("peer-{name}.log"));
        let messages = File::create(&log).with_context(|| format!("create {}", log.display()))?;
        let mut child = Command::new("taskset")
            .args(["-c", &core.to_string()])
            .arg(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(messages)
            .spawn()
            .with_context(|| format!("start {name}"))?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().context("the peer has no output")?);
        Ok(Self { name, child, input, output, log })
    }

    /// Sends a command; returns the operations per second that the peer answers.
    pub(crate) fn ask(&mut self, command: &str) -> Result<f64> {
        let input = self.input.as_mut().context("the peer has no input")?;
        writeln!(input, "{command}").with_context(|| format!("tell {}: {command}", self.name))?;
        let mut line = String::new();
        self.output.read_line(&mut line).with_context(|| format!("ask {}: {command}", self.name))?;
        ensure!(!line.is_empty(), "{}: it ended at `{command}`; see {}", self.name, self.log.display());
        line.trim().parse().with_context(|| format!("{}: `{}` is no rate", self.name, line.trim()))
    }
}

impl Peer {
    /// Ends the peer: the end of its input tells it to.
    pub(crate) fn stop(&mut self) {
        drop(self.input.take());
        // It has been waited for already, at worst.
        let _ = self.child.wait();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.stop();
    }
}
