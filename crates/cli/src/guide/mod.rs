//! The programs of the guide, under their names and with their lines.
//!
//! | module | concept |
//! |---|---|
//! | `program` | the programs by their names, as subcommands and as links to the one binary |
//! | `kv_perf` | workloads on key-value and block devices |
//! | `sdk_perf`, `sdk_iterate` | `sdk_perf`, `sdk_perf_async`, `sdk_iterate`, `sdk_iterate_async` |
//! | `blobfs`, `blobfs_perf`, `blobfs_report` | `mkfs`, `fuse` and `blobfs_perf`, on our file system |
//! | `ids`, `pair` | which pairs are touched in which order, and what they are made of |
//! | `lane`, `in_flight` | a thread and its queue; what is under way on an asynchronous one |
//! | `lent` | values that are not copied |
//! | `phase` | all threads doing one thing at the same time |
//! | `record` | what a thread found out |
//! | `samples` | configurations that are installed beside the program |
//! | `about`, `console` | how full a device is, as it is printed; where to |
//! | `document` | the whole result, for programs and for the report |
//!
//! They stand on [`unvme_guide::session`], as programs of the C library do.

mod about;
mod blobfs;
mod blobfs_perf;
mod blobfs_report;
mod console;
mod document;
mod ids;
mod in_flight;
mod kv_perf;
mod lane;
mod pair;
mod phase;
mod program;
mod record;
mod samples;
mod sdk_iterate;
mod sdk_perf;

use std::path::Path;

use unvme::Error;
use unvme_guide::SdkConfig;

use crate::exit::usage;

pub(crate) use lane::{is_missing, status_text};
pub(crate) use program::{Program, called};

/// Reads a configuration that the user has named: what is wrong in it is the user's to mend, and no fault of
/// the system. A sample that is used because the name is nowhere else is among the warnings.
fn load_configuration(path: impl AsRef<Path>) -> anyhow::Result<(SdkConfig, Vec<String>)> {
    let (named, found) = (path.as_ref(), samples::found(path.as_ref()));
    let (config, mut warnings) = SdkConfig::load(&found).map_err(|error| match error {
        Error::Config { .. } => usage(error.to_string()),
        error => anyhow::Error::from(error),
    })?;
    if found != named {
        warnings.insert(0, format!("{} is not here; {} is used", named.display(), found.display()));
    }
    Ok((config, warnings))
}
