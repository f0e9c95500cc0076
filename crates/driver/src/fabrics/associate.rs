//! A new association: from Connect to where queues can be connected (Base 3.5.2).

use std::time::Duration;

use unvme_bus::mem::PAGE_BYTES;
use unvme_bus::{Clock, DmaPool};
use unvme_fabric::Stream;
use unvme_spec::Status;
use unvme_spec::admin::{self, Identify};
use unvme_spec::feature::fid;
use unvme_spec::identify::{IDENTIFY_BYTES, IdentifyController, IoCommandSets, cns};
use unvme_spec::regs::{self, Cap, Cc, Csts};
use zerocopy::FromBytes;

use super::admin::ADMIN_DEPTH;
use super::connect::{Connection, Role};
use crate::base::Limits;
use crate::bring_up::{
    CAP_CSS_NVM, CAP_CSS_PROFILE, IO_QUEUES_MAX, IOCQES, IOSQES, best_profile, events_request,
    queues_granted, queues_request, set_feature,
};
use crate::claim::Claimed;
use crate::options::{ControllerOptions, DEPTH_MAX};
use crate::tcp::{Agreement, TcpTarget};
use crate::{Error, limits};

/// Time between two looks at CSTS.
const READY_INTERVAL: Duration = Duration::from_millis(5);
/// CAP.TO counts units of this.
const READY_UNIT: Duration = Duration::from_millis(500);
/// IOCCSZ counts units of this, and the entry is one of them.
const CAPSULE_UNIT_BYTES: u32 = 16;
const SQE_BYTES: u32 = 64;

/// What the driver needs to know of an association, besides the limits of its controller.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) identity: Identity,
    pub(super) cntlid: u16,
    /// CC as it enables the controller.
    pub(super) cc: Cc,
    /// Most bytes of data that travel with an I/O command.
    pub(super) in_capsule_bytes: u32,
    /// I/O queues that were granted.
    pub(super) queues: u16,
    /// Asynchronous Event Requests the controller takes.
    pub(super) events: u32,
}

/// A new association, and the connection of its admin queue.
pub(super) struct Association {
    pub(super) facts: Facts,
    pub(super) limits: Limits,
    pub(super) stream: Stream,
    pub(super) agreed: Agreement,
}

/// What a device is known by after a reconnection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    serial: [u8; 20],
    subnqn: [u8; 256],
}

/// Makes an association, brings its controller up and renews the claims of an earlier one. Errors: those of
/// [`Connection::open`]; [`Error::Unsupported`] for a controller the driver cannot use, [`Error::Gone`] for
/// one with a fatal status, [`Error::Status`] with Reservation Conflict when another association has claimed
/// what this host had.
pub(super) fn associate(
    target: &TcpTarget,
    options: &ControllerOptions,
    pool: &DmaPool,
    wanted: u16,
    claimed: &Claimed,
) -> Result<Association, Error> {
    let mut connection = Connection::open(target, pool, Role::admin(ADMIN_DEPTH + 1))?;
    let (cap, cc) = enable(&mut connection, &options.clock)?;
    let version = connection.property(regs::offset::VS, false)? as u32;
    let identify = identify(&mut connection)?;
    if cap.css() & CAP_CSS_PROFILE != 0 {
        choose_profile(&mut connection);
    }
    let wanted = wanted.clamp(1, IO_QUEUES_MAX);
    let granted = connection.succeed("Set Features (Number of Queues)", queues_request(wanted), None)?;
    if let Err(e) = connection.succeed("Set Features", events_request(&identify), None) {
        tracing::warn!(error = %e, "asynchronous event configuration");
    }
    for (sqe, words) in claimed.commands() {
        match connection.succeed("Claim Send", sqe, Some(words.as_slice())) {
            Ok(_) => {}
            // The claim may still be this host's own, of an association whose end the target has not seen.
            Err(e) if is_conflict(&e) => return Err(e),
            Err(e) => tracing::error!(error = %e, nsid = sqe.nsid, "a namespace could not be claimed again"),
        }
    }
    let in_capsule_bytes = match identify.icdoff {
        0 => identify.ioccsz.saturating_mul(CAPSULE_UNIT_BYTES).saturating_sub(SQE_BYTES),
        // The data would not start where the capsule's does.
        _ => 0,
    };
    let facts = Facts {
        identity: Identity { serial: identify.sn, subnqn: identify.subnqn },
        cntlid: connection.cntlid,
        cc,
        in_capsule_bytes,
        queues: queues_granted(wanted, granted),
        events: u32::from(identify.aerl_z) + 1,
    };
    let mdts = limits::transfer_bytes_max(&identify, PAGE_BYTES << cap.mpsmin());
    let entries_z = match identify.maxcmd {
        0 => cap.mqes_z(),
        most => cap.mqes_z().min(most),
    };
    let limits = Limits {
        cap,
        version,
        depth_max: entries_z.min(DEPTH_MAX),
        transfer_bytes_max: mdts.min(options.transfer_bytes_max),
        firmware_piece_bytes: limits::firmware_piece_bytes(&identify),
    };
    let lost = || Error::Unreachable(format!("{}: the connection was lost", target.shown()));
    let (stream, agreed) = connection.into_parts().ok_or_else(lost)?;
    Ok(Association { facts, limits, stream, agreed })
}

/// True when another association has claimed a namespace that this host had claimed before.
pub(super) fn is_conflict(error: &Error) -> bool {
    error.status().is_some_and(|status| status.kind() == Status::RESERVATION_CONFLICT)
}

/// Sets CC.EN and waits for CSTS.RDY. Errors: as [`associate`].
fn enable(connection: &mut Connection, clock: &Clock) -> Result<(Cap, Cc), Error> {
    let cap = Cap::from_bits(connection.property(regs::offset::CAP, true)?);
    if cap.css() & (CAP_CSS_NVM | CAP_CSS_PROFILE) == 0 {
        return Err(Error::Unsupported(format!(
            "the controller has no I/O command set (CAP.CSS {:#04x})",
            cap.css()
        )));
    }
    let several = cap.css() & CAP_CSS_PROFILE != 0;
    let cc = Cc::new()
        .with_css(if several { regs::CSS_ALL } else { regs::CSS_NVM })
        .with_iosqes(IOSQES)
        .with_iocqes(IOCQES)
        .with_en(true);
    start(connection, clock, cap, cc)?;
    Ok((cap, cc))
}

/// Enables a discovery controller, which has no I/O command set. Errors: as [`associate`].
pub(super) fn enable_discovery(connection: &mut Connection, clock: &Clock) -> Result<(), Error> {
    let cap = Cap::from_bits(connection.property(regs::offset::CAP, true)?);
    let cc = Cc::new().with_iosqes(IOSQES).with_iocqes(IOCQES).with_en(true);
    start(connection, clock, cap, cc)
}

fn start(connection: &mut Connection, clock: &Clock, cap: Cap, cc: Cc) -> Result<(), Error> {
    connection.set_property(regs::offset::CC, cc.into_bits())?;
    let limit = READY_UNIT * u32::from(cap.to()).max(2);
    let started = clock.now();
    loop {
        let csts = Csts::from_bits(connection.property(regs::offset::CSTS, false)? as u32);
        if csts.cfs() {
            return Err(Error::Gone { reason: "it reports Controller Fatal Status".to_owned() });
        }
        if csts.rdy() {
            return Ok(());
        }
        if Duration::from_nanos(clock.now().saturating_sub(started)) >= limit {
            let milliseconds = limit.as_millis() as u64;
            return Err(Error::Timeout { what: "enable the controller".to_owned(), milliseconds });
        }
        std::thread::sleep(READY_INTERVAL);
        clock.advance(READY_INTERVAL);
    }
}

fn identify(connection: &mut Connection) -> Result<IdentifyController, Error> {
    let command = Identify { cns: cns::CONTROLLER, ..Identify::default() };
    let sqe = admin::Command::Identify(command).encode();
    let bytes = connection.read("Identify", sqe, IDENTIFY_BYTES)?;
    IdentifyController::read_from_bytes(&bytes)
        .map_err(|_| Error::Protocol("Identify Controller is not 4096 bytes".to_owned()))
}

/// Selects the I/O command set combination with the most command sets. A controller that refuses keeps the
/// one it has.
fn choose_profile(connection: &mut Connection) {
    let command = Identify { cns: cns::IO_COMMAND_SETS, cntid: u16::MAX, ..Identify::default() };
    let sqe = admin::Command::Identify(command).encode();
    let sets = match connection.read("Identify", sqe, IDENTIFY_BYTES) {
        Ok(bytes) => IoCommandSets::read_from_bytes(&bytes).unwrap_or_default(),
        // Linux 6.12's target has the NVM Command Set, and no list.
        Err(Error::Status { status, .. }) if status.kind() == Status::INVALID_FIELD => return,
        Err(e) => return tracing::warn!(error = %e, "I/O command set combinations"),
    };
    let Some(index) = best_profile(&sets).filter(|index| *index > 0) else { return };
    if let Err(e) = connection.succeed("Set Features", set_feature(fid::IO_COMMAND_SET_PROFILE, index), None)
    {
        tracing::warn!(error = %e, index, "I/O command set profile");
    }
}
