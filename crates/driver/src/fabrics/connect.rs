//! A queue's connection, from the socket to the end of authentication: what is done before any other command
//! (NVMe/TCP Transport 3.3, Base 6.3, 8.3.4).

use std::time::Duration;

use unvme_bus::DmaPool;
use unvme_fabric::Stream;
use unvme_spec::fabrics::{
    CNTLID_DYNAMIC, Command, Connect, ConnectData, Connected, InvalidParameter, Property, nqn_bytes, status,
};
use unvme_spec::tcp::ADMIN_IN_CAPSULE_BYTES;
use unvme_spec::{Qid, Sqe, Status};
use zerocopy::{FromZeros, IntoBytes};

use super::authenticate;
use crate::Error;
use crate::command::{Completion, Payload};
use crate::tcp::{Agreement, Link, LinkConfig, TcpTarget, dial, initialize};

/// Time for each command until the queue can be used.
const COMMAND_LIMIT: Duration = Duration::from_secs(10);
/// Commands of a connection that is being set up: one at a time.
const DEPTH: u16 = 2;
/// Byte offset of CATTR in Connect: the parameter that a target may not take.
const CATTR_OFFSET: u16 = 46;
/// Byte offset of CNTLID in the data of Connect.
const CNTLID_OFFSET: u16 = 16;
/// Byte offset of QID in Connect.
const QID_OFFSET: u16 = 42;

/// What kind of queue a connection is to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Role {
    pub(super) qid: Qid,
    /// Entries of the queue, zero-based.
    pub(super) sqsize_z: u16,
    /// Controller of the association; [`CNTLID_DYNAMIC`] for the connection that makes one.
    pub(super) cntlid: u16,
}

impl Role {
    /// The admin queue of a new association.
    pub(super) fn admin(entries: u16) -> Self {
        Self { qid: Qid::ADMIN, sqsize_z: entries - 1, cntlid: CNTLID_DYNAMIC }
    }
}

/// A connection whose queue takes commands.
pub(super) struct Connection {
    link: Link,
    agreed: Agreement,
    pool: DmaPool,
    pub(super) cntlid: u16,
}

impl Connection {
    /// Connects, and authenticates where one of the two wants that. Errors: [`Error::Unreachable`],
    /// [`Error::Denied`], [`Error::Timeout`], [`Error::Protocol`], [`Error::Status`].
    pub(super) fn open(target: &TcpTarget, pool: &DmaPool, role: Role) -> Result<Self, Refusal> {
        match Self::attempt(target, pool, role, Connect::DISABLE_SQ_FLOW_CONTROL) {
            // A target that cannot do without flow control says which parameter it does not take.
            Err(Refusal::Parameter(InvalidParameter { in_data: false, offset }))
                if offset & !1 == CATTR_OFFSET =>
            {
                Self::attempt(target, pool, role, 0)
            }
            outcome => outcome,
        }
    }

    fn attempt(target: &TcpTarget, pool: &DmaPool, role: Role, attributes: u8) -> Result<Self, Refusal> {
        let mut stream = dial(target)?;
        let agreed = initialize(&mut stream, target)?;
        let is_secure = stream.is_secure();
        let mut link = Link::new(&LinkConfig {
            depth: DEPTH,
            is_admin: true,
            long_keys: false,
            pool: pool.id(),
            transfer_bytes_max: ADMIN_IN_CAPSULE_BYTES as usize,
        });
        link.attach(stream, agreed, ADMIN_IN_CAPSULE_BYTES);
        let mut this = Self { link, agreed, pool: pool.clone(), cntlid: 0 };
        let connected = this.connect(target, role, attributes)?;
        this.cntlid = connected.cntlid;
        if connected.must_authenticate_securely && !is_secure {
            return Err(Error::Denied(format!(
                "{} wants hosts to authenticate on a secure channel: a TLS key is needed",
                target.shown()
            ))
            .into());
        }
        let must = connected.must_authenticate || connected.must_authenticate_securely;
        if must || target.controller_secret.is_some() {
            authenticate::run(&mut this, target)?;
        }
        Ok(this)
    }

    fn connect(&mut self, target: &TcpTarget, role: Role, attributes: u8) -> Result<Connected, Refusal> {
        let mut data = ConnectData::new_zeroed();
        data.hostid = target.host_identity.id;
        data.cntlid = role.cntlid.into();
        data.subnqn = nqn_bytes(&target.nqn).unwrap_or(data.subnqn);
        data.hostnqn = nqn_bytes(&target.host_identity.nqn).unwrap_or(data.hostnqn);
        let is_admin = role.qid == Qid::ADMIN;
        let keep_alive_ms = if is_admin { target.keep_alive.as_millis() as u32 } else { 0 };
        let sqe = Command::Connect(Connect {
            record_format: 0,
            qid: role.qid,
            sqsize_z: role.sqsize_z,
            attributes,
            keep_alive_ms,
        })
        .encode();
        let completion = self.call("Connect", sqe, Some(data.as_bytes()))?;
        if completion.status.is_success() {
            let connected = Connected::from_dword(completion.result as u32);
            if !is_admin && connected.cntlid != role.cntlid {
                return Err(Error::Protocol(format!(
                    "queue {} was connected to controller {}, which is not {}",
                    role.qid, connected.cntlid, role.cntlid
                ))
                .into());
            }
            return Ok(connected);
        }
        let kind = completion.status.kind();
        if kind == status::CONNECT_INVALID_PARAMETERS {
            return Err(Refusal::Parameter(InvalidParameter::from_dword(completion.result as u32)));
        }
        let name = status::name(kind).unwrap_or("unknown status");
        let (shown, nqn, host) = (target.shown(), &target.nqn, &target.host_identity.nqn);
        Err(Refusal::Error(match kind {
            status::CONNECT_INVALID_HOST => {
                Error::Denied(format!("{shown}: {nqn} does not let {host} in ({name})"))
            }
            status::CONTROLLER_BUSY => Error::Unreachable(format!("{shown}: {nqn} is busy ({name})")),
            _ => Error::Status { what: format!("Connect to {nqn} at {shown}"), status: completion.status },
        }))
    }

    /// Sends a command, with data or without, and waits for its completion. Errors: those of [`Link::call`].
    pub(super) fn call(&mut self, what: &str, sqe: Sqe, data: Option<&[u8]>) -> Result<Completion, Error> {
        let payload = match data {
            None => None,
            Some(data) => {
                let mut buf = self.pool.alloc(data.len())?;
                buf.write(0, data);
                Some(Payload::whole(buf))
            }
        };
        self.link.call(what, sqe, payload, COMMAND_LIMIT)
    }

    /// As [`Connection::call`] for a command whose success is the only good status. Errors: [`Error::Status`]
    /// as well.
    pub(super) fn succeed(&mut self, what: &str, sqe: Sqe, data: Option<&[u8]>) -> Result<u64, Error> {
        let completion = self.call(what, sqe, data)?;
        Error::check(|| what.to_owned(), completion.status)?;
        Ok(completion.result)
    }

    /// Sends a command that returns up to `bytes` of data. Errors: as [`Connection::succeed`].
    pub(super) fn read(&mut self, what: &str, sqe: Sqe, bytes: usize) -> Result<Vec<u8>, Error> {
        let payload = Payload::whole(self.pool.alloc(bytes)?);
        let completion = self.link.call(what, sqe, Some(payload), COMMAND_LIMIT)?;
        Error::check(|| what.to_owned(), completion.status)?;
        Ok(completion.buf.map(|buf| buf.to_vec()).unwrap_or_default())
    }

    /// Reads a property: a register of the controller. Errors: as [`Connection::succeed`].
    pub(super) fn property(&mut self, offset: u64, is_wide: bool) -> Result<u64, Error> {
        let property = Property { offset: offset as u32, is_wide: Some(is_wide), value: 0 };
        self.succeed("Property Get", Command::PropertyGet(property).encode(), None)
    }

    /// Sets a property of 4 bytes. Errors: as [`Connection::succeed`].
    pub(super) fn set_property(&mut self, offset: u64, value: u32) -> Result<(), Error> {
        let property = Property { offset: offset as u32, is_wide: Some(false), value: value.into() };
        self.succeed("Property Set", Command::PropertySet(property).encode(), None).map(|_| ())
    }

    /// Lets go of the connection, for a link of its own.
    pub(super) fn into_parts(mut self) -> Option<(Stream, Agreement)> {
        Some((self.link.take_stream()?, self.agreed))
    }
}

/// Why a connection did not come about.
pub(super) enum Refusal {
    Error(Error),
    /// A parameter of Connect.
    Parameter(InvalidParameter),
}

impl Refusal {
    /// Whether the target says that the queue identifier is in use.
    pub(super) fn is_queue_taken(&self) -> bool {
        match self {
            Self::Error(Error::Status { status, .. }) => {
                [Status::COMMAND_SEQUENCE_ERROR, Status::INVALID_QUEUE_IDENTIFIER].contains(&status.kind())
            }
            Self::Error(_) => false,
            Self::Parameter(at) => !at.in_data && at.offset == QID_OFFSET,
        }
    }

    /// Whether the target says that there is no such controller: the association has ended, and nobody has
    /// noticed yet.
    pub(super) fn is_stale(&self) -> bool {
        matches!(self, Self::Parameter(InvalidParameter { in_data: true, offset: CNTLID_OFFSET }))
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Error(e) => e,
            Refusal::Parameter(at) => Self::Denied(parameter_text(at)),
        }
    }
}

impl From<Error> for Refusal {
    fn from(e: Error) -> Self {
        Self::Error(e)
    }
}

/// What a target means that does not take a parameter (Base figures 545 and 546).
fn parameter_text(at: InvalidParameter) -> String {
    let what = match (at.in_data, at.offset) {
        (true, 0..16) => "host identifier: it is in use with another name, or is not taken",
        (true, CNTLID_OFFSET) => "controller identifier",
        (true, 256..512) => "subsystem NQN: the target has no such subsystem",
        (true, 512..768) => "host NQN: the target does not know this host",
        (false, QID_OFFSET) => "queue identifier: it is taken, or there are not so many",
        (false, 44) => "queue size",
        (false, 48) => "keep alive time",
        _ => "a parameter",
    };
    let place = if at.in_data { "its data" } else { "its entry" };
    format!("{}: {what} (byte {} of {place})", name_of(status::CONNECT_INVALID_PARAMETERS), at.offset)
}

fn name_of(status: Status) -> &'static str {
    status::name(status).unwrap_or("refused")
}
