//! `unvme fdp`: Flexible Data Placement, in the words of `nvme fdp`.
//!
//! | module | concept |
//! |---|---|
//! | `logs` | `configs`, `usage`, `stats`, `events`: the log pages of an endurance group |
//! | `handles` | `status`, `update`: reclaim unit handles of a namespace, by I/O Management |
//! | `features` | `feature`, `set-events`: what is enabled |
//! | `watch` | `watch`: what is written and in use, over time |
//! | `plot` | `plot`: that of two runs, with placement and without, drawn |

mod features;
mod handles;
mod logs;
mod plot;
mod watch;

use clap::{Args, Subcommand};

use crate::cmd::commands;
use crate::numbers;

commands! {
/// Flexible Data Placement.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
FDP is enabled for an endurance group that has no namespaces; `device create --fdp` does it for a
new device. A namespace then has placement handles, each of which stands for a reclaim unit handle.

Examples:
  unvme device create 0000:02:00.0 --size 1G --op 28%
  unvme delete-ns 0000:02:00.0 -n 1
  unvme fdp configs 0000:02:00.0
  unvme fdp feature 0000:02:00.0 --enable-conf-idx 0
  unvme create-ns 0000:02:00.0 --size 1G --block-size 4096 --phndls 0,1
  unvme attach-ns 0000:02:00.0 -n 1
  unvme fdp status 0000:02:00.0 -n 1
  unvme fdp stats 0000:02:00.0")]
pub(crate) enum Command {
    /// Configurations that an endurance group can have
    Configs(logs::Configs),
    /// Which reclaim unit handles are in use, and by whom
    Usage(logs::Usage),
    /// Bytes that hosts wrote, that went to the media and that were erased, and the write amplification
    Stats(logs::Stats),
    /// What happened to reclaim units: events of the controller, or of hosts
    Events(logs::Events),
    /// State of the reclaim unit handles of a namespace
    Status(handles::Status),
    /// Have placement identifiers go on with new reclaim units
    Update(handles::Update),
    /// Choose the events that are recorded for a placement handle
    SetEvents(features::SetEvents),
    /// Show, enable or disable FDP
    Feature(features::Feature),
    /// What is written and in use over time, a line at each interval
    Watch(watch::Watch),
    /// Draw write amplification and use over time, of a run with placement and of one without
    Plot(plot::Plot),
}
}

/// The endurance group a command is about.
#[derive(Clone, Copy, Debug, Args)]
struct Group {
    /// Endurance group
    #[arg(short = 'e', long = "endgrp-id", visible_alias = "endgid", value_name = "ENDGID", default_value = "1", value_parser = numbers::u16)]
    endgid: u16,
}
