//! The nodes of the kernel's NVMe driver: a controller with its namespaces, or one namespace.

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use unvme_bus::mem::PAGE_BYTES;
use unvme_bus::{AddressSpace, lock};
use unvme_spec::admin::opcode;
use unvme_spec::command::CommandSet;
use unvme_spec::identify::{
    IdentifyController, NamespaceIdDescriptor, NamespaceList, cns, csi, write_descriptors,
};
use unvme_spec::{Nsid, Sqe, Status, admin};
use zerocopy::{FromBytes, IntoBytes};

use super::nodes::{self, Roots};
use super::uring::{Operation, Uring, UringOptions};
use super::wire::CommandKind;
use super::{errno, ioctl};
use crate::command::{Completion, Payload, command_name};
use crate::{DmaBuf, Error};

/// Rings for admin commands that are kept: more wait at the same time only for a moment.
const RINGS_KEPT: usize = 4;
/// A sleep for an admin command; the limit is looked at in between.
const SLEEP_MAX: Duration = Duration::from_millis(50);
/// How long the kernel may take to reset a controller that did not answer.
const RESET_GRACE: Duration = Duration::from_secs(30);

/// Which node was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// `/dev/nvmeX`: everything.
    Controller,
    /// `/dev/ngXnY`: this namespace.
    Namespace(Nsid),
}

/// Open nodes.
pub(super) struct NvmeNodes {
    roots: Roots,
    scope: Scope,
    /// Kernel name of the controller, `nvme0`.
    controller: String,
    /// The node by the kernel's name for it.
    path: PathBuf,
    /// What was opened, and what errors call it.
    node: Arc<File>,
    pub(super) shown: String,
    /// Nodes of namespaces, opened when a queue first needs them.
    namespaces: Mutex<Vec<(Nsid, Arc<File>)>>,
    rings: Mutex<Vec<Uring>>,
    memory: Arc<AddressSpace>,
}

/// How an admin command ended, when the kernel did not refuse it.
struct Answer {
    status: Status,
    result: u64,
    buf: Option<DmaBuf>,
}

impl NvmeNodes {
    pub(super) fn open(
        roots: &Roots,
        path: &Path,
        node: &nodes::Node,
        memory: &Arc<AddressSpace>,
    ) -> Result<Self, Error> {
        let shown = path.display().to_string();
        let file = Arc::new(open(path)?);
        let (scope, controller, name) = match node {
            nodes::Node::Controller(name) => (Scope::Controller, Some(name.clone()), name),
            nodes::Node::Namespace(name) => {
                let nsid = ioctl::namespace_id(file.as_fd())
                    .map_err(|e| errno::explain("inspect", &shown, e.raw_os_error().unwrap_or(libc::EIO)))?;
                (Scope::Namespace(Nsid(nsid)), nodes::controller_of(roots, name), name)
            }
            nodes::Node::Block(_) | nodes::Node::File => {
                return Err(Error::InvalidArgument(format!("{shown} is not a node of the NVMe driver")));
            }
        };
        let namespaces = match scope {
            Scope::Controller => Vec::new(),
            Scope::Namespace(nsid) => vec![(nsid, Arc::clone(&file))],
        };
        Ok(Self {
            roots: roots.clone(),
            scope,
            controller: controller.unwrap_or_default(),
            path: roots.dev.join(name),
            node: file,
            shown,
            namespaces: Mutex::new(namespaces),
            rings: Mutex::default(),
            memory: Arc::clone(memory),
        })
    }

    fn namespaces(&self) -> MutexGuard<'_, Vec<(Nsid, Arc<File>)>> {
        // A list that is whole after every statement, as that of rings.
        lock(&self.namespaces)
    }

    /// The node of a namespace; `None` when the controller has no such namespace.
    pub(super) fn namespace(&self, nsid: Nsid) -> Result<Option<Arc<File>>, Error> {
        let mut open_ones = self.namespaces();
        if let Some((_, file)) = open_ones.iter().find(|(open, _)| *open == nsid) {
            return Ok(Some(Arc::clone(file)));
        }
        if self.scope != Scope::Controller {
            return Ok(None);
        }
        let nodes = nodes::namespaces(&self.roots, &self.controller);
        let Some(node) = nodes.iter().find(|node| node.nsid == nsid.0) else { return Ok(None) };
        let file = Arc::new(open(&node.path)?);
        // The kernel gives names away again: this is the namespace that was meant, or none.
        if ioctl::namespace_id(file.as_fd()).ok() != Some(nsid.0) {
            return Ok(None);
        }
        open_ones.push((nsid, Arc::clone(&file)));
        Ok(Some(file))
    }

    /// What the kernel calls the block device of a namespace, whether this is its controller or a node of it.
    pub(super) fn kernel_name(&self, nsid: Nsid) -> Option<String> {
        let own = (self.scope == Scope::Namespace(nsid)).then(|| self.path.clone());
        let path = own.or_else(|| {
            let mut nodes = nodes::namespaces(&self.roots, &self.controller).into_iter();
            nodes.find(|node| node.nsid == nsid.0).map(|node| node.path)
        });
        let path = path?;
        Some(format!("nvme{}", path.file_name()?.to_str()?.strip_prefix("ng")?))
    }

    /// Namespaces of the controller, which its admin commands can change.
    pub(super) fn of_controller(&self) -> Vec<Nsid> {
        let own = match self.scope {
            Scope::Namespace(nsid) => Some(nsid),
            Scope::Controller => None,
        };
        let all = nodes::namespaces(&self.roots, &self.controller).into_iter().map(|node| Nsid(node.nsid));
        let others: Vec<Nsid> = all.filter(|nsid| Some(*nsid) != own).collect();
        own.into_iter().chain(others).collect()
    }

    /// Passthrough nodes of the namespaces that can be reached.
    fn paths(&self) -> Vec<PathBuf> {
        match self.scope {
            Scope::Namespace(_) => vec![self.path.clone()],
            Scope::Controller => {
                nodes::namespaces(&self.roots, &self.controller).into_iter().map(|node| node.path).collect()
            }
        }
    }

    /// Longest transfer in bytes that the kernel passes on to every namespace, as far as sysfs says.
    pub(super) fn transfer_bytes_max(&self) -> usize {
        let most = |folder: PathBuf| {
            let value = |name: &str| nodes::number(&folder.join("queue").join(name));
            let bytes =
                value("max_hw_sectors_kb").map_or(usize::MAX, |kib| (kib as usize).saturating_mul(1024));
            // Pages of a buffer lie anywhere in memory: each can be a segment of its own.
            let pages =
                value("max_segments").map_or(usize::MAX, |count| (count as usize).saturating_mul(PAGE_BYTES));
            bytes.min(pages)
        };
        let folders = self.paths().into_iter().filter_map(|path| nodes::block_of(&self.roots, &path));
        folders.map(most).min().unwrap_or(usize::MAX).max(PAGE_BYTES)
    }

    /// True when the kernel has queues for this device that are polled, on all namespaces.
    pub(super) fn has_poll_queues(&self) -> bool {
        let paths = self.paths();
        let is_polled = |path: &PathBuf| {
            let folder = nodes::block_of(&self.roots, path);
            folder.and_then(|folder| nodes::number(&folder.join("queue/io_poll"))) == Some(1)
        };
        !paths.is_empty() && paths.iter().all(is_polled)
    }

    /// MQES as the kernel uses it: entries of a queue, zero-based; 0 when sysfs does not say.
    pub(super) fn queue_entries_z(&self) -> u16 {
        let path = self.roots.sys.join("class/nvme").join(&self.controller).join("sqsize");
        nodes::number(&path).and_then(|entries| u16::try_from(entries).ok()).unwrap_or(0)
    }

    /// Identify Controller, for those who open it.
    pub(super) fn identify(&self, buf: DmaBuf, timeout: Duration) -> Result<IdentifyController, Error> {
        let command = admin::Identify { cns: cns::CONTROLLER, ..admin::Identify::default() };
        let sqe = admin::Command::Identify(command).encode();
        let completion = self.admin(sqe, Some(Payload::whole(buf)), timeout)?;
        Error::check(|| command_name(&sqe), completion.status)?;
        let data = completion.buf.map(|buf| buf.to_vec()).unwrap_or_default();
        IdentifyController::read_from_bytes(&data)
            .map_err(|_| Error::Protocol(format!("Identify Controller of {} bytes", data.len())))
    }

    /// Sends an admin command and waits for its completion.
    pub(super) fn admin(
        &self,
        sqe: Sqe,
        payload: Option<Payload>,
        timeout: Duration,
    ) -> Result<Completion, Error> {
        self.check(&sqe)?;
        let is_identify = sqe.opcode == opcode::IDENTIFY;
        let listed =
            is_identify && matches!(sqe.cdw10 as u8, cns::ACTIVE_NAMESPACES | cns::ALLOCATED_NAMESPACES);
        if let (Scope::Namespace(nsid), true) = (self.scope, listed) {
            let list = NamespaceList::from_ascending(Some(nsid).filter(|nsid| nsid.0 > sqe.nsid));
            return Ok(answered(payload, list.as_bytes()));
        }
        let answer = self
            .send(&sqe, payload, timeout)
            .or_else(|(code, payload)| self.refused(&sqe, code, payload, timeout))?;
        let mut completion =
            Completion { token: 0, status: answer.status, result: answer.result, buf: answer.buf };
        if is_identify && sqe.cdw10 as u8 == cns::COMMAND_SET_ACTIVE_NAMESPACES {
            self.hide_others(&mut completion);
        }
        Ok(completion)
    }

    /// What the kernel keeps to itself, and what would reach beyond the one namespace that was opened.
    fn check(&self, sqe: &Sqe) -> Result<(), Error> {
        let kept = match sqe.opcode {
            opcode::ASYNC_EVENT_REQUEST => "events go to itself, and to the system's log",
            opcode::ABORT => "command identifiers are its own; a command ends by its time-out",
            opcode::DOORBELL_BUFFER_CONFIG | opcode::KEEP_ALIVE => "it does that itself",
            other if CommandSet::Admin.facts(other).is_some_and(|facts| facts.makes_queue) => {
                "queues are its own"
            }
            _ => "",
        };
        if !kept.is_empty() {
            return Err(Error::Unsupported(format!(
                "{} through the kernel's driver of {}: {kept}",
                command_name(sqe),
                self.shown
            )));
        }
        let Scope::Namespace(nsid) = self.scope else { return Ok(()) };
        let is_own = [nsid.0, 0].contains(&sqe.nsid);
        let is_wide = matches!(
            sqe.opcode,
            opcode::NAMESPACE_MANAGEMENT | opcode::NAMESPACE_ATTACHMENT | opcode::SANITIZE
        );
        // Log pages and features of the controller are asked for with the identifier of all namespaces.
        let is_broadcast = sqe.nsid == Nsid::ALL.0 && sqe.opcode != opcode::FORMAT_NVM;
        let is_list = sqe.opcode == opcode::IDENTIFY && sqe.cdw10 as u8 == cns::COMMAND_SET_ACTIVE_NAMESPACES;
        if is_wide || !(is_own || is_broadcast || is_list) {
            return Err(Error::Unsupported(format!(
                "{} for namespace {:#x} through {}, which is namespace {nsid} alone; open kernel:/dev/{}",
                command_name(sqe),
                sqe.nsid,
                self.shown,
                self.controller
            )));
        }
        Ok(())
    }

    /// Leaves the one namespace that was opened of a list, if it is there.
    fn hide_others(&self, completion: &mut Completion) {
        let (Scope::Namespace(own), Some(buf)) = (self.scope, completion.buf.as_mut()) else { return };
        if !completion.status.is_success() {
            return;
        }
        if let Ok(list) = NamespaceList::read_from_bytes(&buf.to_vec()) {
            let rest = NamespaceList::from_ascending(list.iter().filter(|nsid| *nsid == own));
            buf.write(0, rest.as_bytes());
        }
    }

    /// A command that the kernel refused.
    fn refused(
        &self,
        sqe: &Sqe,
        code: i32,
        payload: Option<Payload>,
        timeout: Duration,
    ) -> Result<Answer, Error> {
        // Nobody but root may ask for these; sysfs has what matters.
        if matches!(code, libc::EPERM | libc::EACCES)
            && let admin::Command::Identify(command) = admin::Command::parse(sqe)
            && let Some(data) = self.identify_by_sysfs(&command)
        {
            let Completion { status, result, buf, .. } = answered(payload, &data);
            return Ok(Answer { status, result, buf });
        }
        let buf = payload.map(|payload| payload.buf);
        match code {
            libc::EINVAL => Ok(Answer { status: errno::passthrough_status(code), result: 0, buf }),
            libc::EINTR | libc::ECANCELED => Ok(Answer { status: Status::ABORTED_BY_HOST, result: 0, buf }),
            libc::ETIMEDOUT => {
                let milliseconds = patience(timeout).as_millis() as u64;
                Err(Error::Timeout { what: command_name(sqe), milliseconds })
            }
            code => Err(errno::explain(&format!("{} to", command_name(sqe)), &self.shown, code)),
        }
    }

    /// Lists of namespaces, and the command set of one, as sysfs has them.
    fn identify_by_sysfs(&self, command: &admin::Identify) -> Option<Vec<u8>> {
        let known: Vec<Nsid> = match self.scope {
            Scope::Namespace(own) => vec![own],
            Scope::Controller => {
                nodes::namespaces(&self.roots, &self.controller).iter().map(|node| Nsid(node.nsid)).collect()
            }
        };
        let above = known.into_iter().filter(|nsid| *nsid > command.nsid);
        match command.cns {
            cns::NAMESPACE_DESCRIPTORS => {
                let set = self.command_set(command.nsid)?;
                write_descriptors(&[NamespaceIdDescriptor::Csi(set)]).map(|list| list.to_vec())
            }
            cns::ACTIVE_NAMESPACES => Some(NamespaceList::from_ascending(above).as_bytes().to_vec()),
            cns::COMMAND_SET_ACTIVE_NAMESPACES => {
                let of_the_set = above.filter(|nsid| self.command_set(*nsid) == Some(command.csi));
                Some(NamespaceList::from_ascending(of_the_set).as_bytes().to_vec())
            }
            _ => None,
        }
    }

    /// Command set of a namespace as sysfs has it, from Linux 6.8 on.
    fn command_set(&self, nsid: Nsid) -> Option<u8> {
        let node = match self.scope {
            Scope::Namespace(own) => (own == nsid).then(|| self.path.clone())?,
            Scope::Controller => {
                let all = nodes::namespaces(&self.roots, &self.controller);
                all.into_iter().find(|node| node.nsid == nsid.0)?.path
            }
        };
        let set = nodes::number(&nodes::block_of(&self.roots, &node)?.join("csi"))?;
        u8::try_from(set).ok().filter(|set| *set <= csi::COMPUTATIONAL_PROGRAMS)
    }

    /// By io_uring to the controller's node; a namespace's node takes admin commands by ioctl alone, and so
    /// does the controller's where there is no io_uring for it.
    fn send(
        &self,
        sqe: &Sqe,
        payload: Option<Payload>,
        timeout: Duration,
    ) -> Result<Answer, (i32, Option<Payload>)> {
        let ring = if self.scope == Scope::Controller { self.take_ring() } else { None };
        let Some(ring) = ring else { return self.send_by_ioctl(sqe, payload, timeout) };
        match self.send_by_ring(ring, sqe, payload, timeout) {
            Err((libc::EOPNOTSUPP | libc::ENOTTY, payload)) => self.send_by_ioctl(sqe, payload, timeout),
            other => other,
        }
    }

    fn take_ring(&self) -> Option<Uring> {
        if let Some(ring) = lock(&self.rings).pop() {
            return Some(ring);
        }
        let options = UringOptions { depth: 1, polls_device: false, cooperative: false };
        let made = Uring::new(&self.memory, &options)
            .and_then(|ring| ring.register_file(0, self.node.as_fd()).map(|()| ring));
        made.inspect_err(|e| tracing::debug!(error = %e, "admin commands go by ioctl")).ok()
    }

    fn send_by_ring(
        &self,
        mut ring: Uring,
        sqe: &Sqe,
        payload: Option<Payload>,
        timeout: Duration,
    ) -> Result<Answer, (i32, Option<Payload>)> {
        let bytes = payload.as_ref().map_or(0, |payload| payload.bytes);
        let index = match ring.take(payload.map(|payload| payload.buf), 0) {
            Ok(index) => index,
            Err(buf) => return Err((libc::EBUSY, buf.map(|buf| Payload { buf, bytes }))),
        };
        let command =
            Operation::Command { file: 0, kind: CommandKind::Admin, sqe, bytes: bytes as u32, timeout };
        if ring.start(index, &command).is_err() {
            return Err((libc::EOPNOTSUPP, ring.finish(index).1.map(|buf| Payload { buf, bytes })));
        }
        let limit = patience(timeout);
        let started = Instant::now();
        let reaped = loop {
            if let Some(reaped) = ring.reap() {
                break reaped;
            }
            if started.elapsed() >= limit {
                // The ring goes, and leaks the buffer.
                return Err((libc::ETIMEDOUT, None));
            }
            if let Err(e) = ring.sleep(SLEEP_MAX) {
                tracing::warn!(error = %e, "wait for an admin command");
                std::thread::sleep(SLEEP_MAX);
            }
        };
        let buf = ring.finish(index).1;
        let mut kept = lock(&self.rings);
        if kept.len() < RINGS_KEPT {
            kept.push(ring);
        }
        match u16::try_from(reaped.res) {
            Ok(raw) => Ok(Answer { status: Status::from_raw(raw), result: reaped.result, buf }),
            Err(_) => Err((-reaped.res, buf.map(|buf| Payload { buf, bytes }))),
        }
    }

    fn send_by_ioctl(
        &self,
        sqe: &Sqe,
        mut payload: Option<Payload>,
        timeout: Duration,
    ) -> Result<Answer, (i32, Option<Payload>)> {
        let data = payload.as_mut().map(|payload| (&mut payload.buf, payload.bytes));
        match ioctl::admin(self.node.as_fd(), sqe, data, timeout) {
            Ok((raw, result)) => {
                let buf = payload.map(|payload| payload.buf);
                Ok(Answer { status: Status::from_raw(raw), result, buf })
            }
            Err(e) => Err((e.raw_os_error().unwrap_or(libc::EIO), payload)),
        }
    }

    /// Has the kernel reset the controller.
    pub(super) fn reset(&self, is_subsystem: bool) -> Result<(), Error> {
        let path = self.roots.dev.join(&self.controller);
        let shown = path.display().to_string();
        let file = match self.scope {
            Scope::Controller => Arc::clone(&self.node),
            Scope::Namespace(_) if self.controller.is_empty() => {
                return Err(Error::Unsupported(format!(
                    "sysfs does not say which controller {} is of",
                    self.shown
                )));
            }
            Scope::Namespace(_) => Arc::new(open(&path)?),
        };
        let done =
            if is_subsystem { ioctl::subsystem_reset(file.as_fd()) } else { ioctl::reset(file.as_fd()) };
        done.map_err(|e| match e.raw_os_error() {
            Some(libc::ENOTTY) => {
                Error::Unsupported("the controller has no NVM Subsystem Reset (CAP.NSSRS)".to_owned())
            }
            code => errno::explain("reset", &shown, code.unwrap_or(libc::EIO)),
        })
    }
}

/// How long an admin command can take: the kernel resets the controller at the limit, or aborts the command,
/// waits as long again and resets it then.
fn patience(timeout: Duration) -> Duration {
    timeout.saturating_mul(2).saturating_add(RESET_GRACE)
}

/// Opens a node; for reading alone where no more is allowed: the kernel then refuses commands that write.
fn open(path: &Path) -> Result<File, Error> {
    let attempt = |write: bool| OpenOptions::new().read(true).write(write).open(path);
    let opened = attempt(true).or_else(|e| match e.raw_os_error() {
        Some(libc::EACCES | libc::EPERM | libc::EROFS) => attempt(false),
        _ => Err(e),
    });
    opened.map_err(|e| {
        errno::explain("open", &path.display().to_string(), e.raw_os_error().unwrap_or(libc::EIO))
    })
}

/// The completion of a command that was answered here.
pub(super) fn answered(payload: Option<Payload>, data: &[u8]) -> Completion {
    let (status, buf) = match payload {
        Some(Payload { mut buf, bytes }) => {
            let bytes = bytes.min(buf.len()).min(data.len());
            buf.write(0, &data[..bytes]);
            (Status::SUCCESS, Some(buf))
        }
        None => (Status::DATA_TRANSFER_ERROR, None),
    };
    Completion { token: 0, status, result: 0, buf }
}
