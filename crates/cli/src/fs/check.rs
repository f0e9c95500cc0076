//! `fs check`.

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use unvme_fs::{check, repair};

use super::place::Place;
use crate::count::count;
use crate::exit::Failed;
use crate::output::Output;
use crate::perf::Progress;

/// Arguments of `fs check`.
#[derive(Debug, Args)]
#[command(after_help = "\
Nothing is written without --repair. With it, what cannot be read is given up, and what has lost its
name gets one in /lost+found. The exit code is 1 when something is wrong, 0 when it was repaired,
and 3 when the file system is in use: then nothing was checked.

Examples:
  unvme fs check 0000:02:00.0
  unvme fs check 0000:02:00.0 --repair --output json")]
pub(crate) struct Check {
    #[command(flatten)]
    place: Place,
    /// Put right what is wrong
    #[arg(short, long)]
    repair: bool,
    #[command(flatten)]
    output: Output,
}

#[derive(Serialize)]
struct Problem {
    about: String,
    what: String,
}

#[derive(Serialize)]
struct Report {
    directories: u64,
    files: u64,
    unnamed: u64,
    blocks: u64,
    repaired: bool,
    problems: Vec<Problem>,
}

impl Check {
    pub(crate) fn run(self) -> Result<()> {
        let (device, block) = self.place.open()?;
        // How many there are is known when it is over.
        let progress = Progress::new("check", 1);
        let shown = |inodes: u64| {
            progress.of(inodes + 1);
            progress.set(inodes);
        };
        let mut survey = check(&block, device.name(), shown)?;
        let found = std::mem::take(&mut survey.problems);
        let is_repaired = self.repair && !found.is_empty();
        if is_repaired {
            repair(&block, device.name(), shown)?;
            survey = check(&block, device.name(), shown)?;
        }
        drop(progress);
        let problem = |problem: &unvme_fs::Problem| Problem {
            about: problem.about.clone(),
            what: problem.what.clone(),
        };
        let report = Report {
            directories: survey.directories,
            files: survey.files,
            unnamed: survey.unnamed,
            blocks: survey.blocks,
            repaired: is_repaired,
            problems: found.iter().map(problem).collect(),
        };
        let wrong = count(found.len() as u64, "problem");
        let verdict = match (found.is_empty(), is_repaired) {
            (true, _) => "all is well".to_owned(),
            (_, true) => format!("{wrong}, repaired"),
            _ => format!("{wrong}; --repair puts right what is wrong"),
        };
        self.output.output.show(&report, |out| {
            found.iter().try_for_each(|problem| writeln!(out, "{}: {}", problem.about, problem.what))?;
            let directories = match report.directories {
                1 => "1 directory".to_owned(),
                many => format!("{many} directories"),
            };
            writeln!(
                out,
                "{directories}, {}, {} without a name, {} in use; {verdict}",
                count(report.files, "file"),
                report.unnamed,
                count(report.blocks, "block"),
            )
        })?;
        let left = if is_repaired { survey.problems.len() } else { found.len() };
        if left > 0 {
            return Err(Failed(format!("{}: {}", device.name(), count(left as u64, "problem"))).into());
        }
        Ok(())
    }
}
