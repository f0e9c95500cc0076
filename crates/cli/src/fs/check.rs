//! `fs check`.

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use unvme_fs::{MountOptions, Survey};

use super::place::Place;
use crate::count::count;
use crate::exit::Failed;
use crate::output::Output;
use crate::perf::Progress;

/// Arguments of `fs check`.
#[derive(Debug, Args)]
#[command(after_help = "\
Nothing is written. The exit code is 1 when something is wrong.

Example: unvme fs check 0000:02:00.0")]
pub(crate) struct Check {
    #[command(flatten)]
    place: Place,
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
    is_clean: bool,
    copy_of_superblock_used: Option<String>,
    problems: Vec<Problem>,
}

impl Check {
    pub(crate) fn run(self) -> Result<()> {
        let mounted =
            self.place.mount_with(&MountOptions { is_read_only: true, ..MountOptions::default() })?;
        let usage = mounted.fs.usage();
        let progress = Progress::new("check", usage.inodes - usage.free_inodes);
        let survey = mounted.fs.check(|inodes| progress.set(inodes))?;
        drop(progress);
        let description = mounted.fs.description();
        let report = report(&survey, description);
        let wrong = report.problems.len();
        self.output.output.show(&report, |out| {
            if let Some(why) = &report.copy_of_superblock_used {
                writeln!(out, "the copy of the superblock was used: {why}")?;
            }
            for problem in &report.problems {
                writeln!(out, "{}: {}", problem.about, problem.what)?;
            }
            writeln!(
                out,
                "{}, {}, {} without a name, {} in use; {}",
                if report.directories == 1 {
                    "1 directory".to_owned()
                } else {
                    format!("{} directories", report.directories)
                },
                count(report.files, "file"),
                report.unnamed,
                count(report.blocks, "block"),
                if wrong == 0 { "all is well".to_owned() } else { count(wrong as u64, "problem") },
            )
        })?;
        let is_copy = report.copy_of_superblock_used.is_some();
        if wrong > 0 || is_copy {
            let what = if wrong > 0 { count(wrong as u64, "problem") } else { "a damaged superblock".into() };
            return Err(Failed(format!("{}: {what}", self.place.device.device)).into());
        }
        Ok(())
    }
}

fn report(survey: &Survey, description: &unvme_fs::Description) -> Report {
    Report {
        directories: survey.directories,
        files: survey.files,
        unnamed: survey.unnamed,
        blocks: survey.blocks,
        is_clean: description.is_clean,
        copy_of_superblock_used: description.copy_taken.clone(),
        problems: survey
            .problems
            .iter()
            .map(|problem| Problem { about: problem.about.clone(), what: problem.what.clone() })
            .collect(),
    }
}
