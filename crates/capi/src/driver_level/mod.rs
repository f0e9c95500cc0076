//! The functions of `kvnvme.h`. What they do is described there.

mod events;
mod information;
mod iterate;
mod lifecycle;
mod memory;
mod pairs;
mod raw;

pub(crate) use events::Watch;
pub(crate) use memory::{alloc, free};

use rustix::thread::sched_getcpu;
use unvme_guide::session::{QueueChoice, QueueKind};

use crate::handle::Open;
use crate::result::{Code, Failure, Result};

/// The queue that a `qid` means: that of a CPU, or of the CPU the caller is on.
///
/// A caller on a CPU without a queue gets any: masks name CPUs that this machine may not have.
fn queue(open: &Open, qid: i32, kind: QueueKind) -> Result<QueueChoice> {
    open.require_queue(kind)?;
    let cpu = match qid {
        -1 => sched_getcpu() as u32,
        qid => u32::try_from(qid).map_err(|_| {
            Failure::new(Code::DD_INVALID_PARAM, format!("qid: expected a CPU or -1, not {qid}"))
        })?,
    };
    if open.member().has_queue(cpu, kind) {
        return Ok(QueueChoice::Cpu(cpu));
    }
    match open.member().queue_kind(cpu) {
        Some(other) => {
            let text = format!("the queue of CPU {cpu} is {other}, which this is not for");
            Err(Failure::new(Code::DD_INVALID_QUEUE_TYPE, text))
        }
        None if qid == -1 => Ok(QueueChoice::Auto),
        None => Err(Failure::new(Code::DD_NO_AVAILABLE_QUEUE, format!("CPU {cpu} has no queue"))),
    }
}
