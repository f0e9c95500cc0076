//! Identify (Base 5.1.13; NVM 4.1.5).
//!
//! A namespace identifier beyond NN is Invalid Namespace or Format; one within it that names nothing yields
//! zeroes where the specification asks for that, and Invalid Field otherwise (Base 3.2.1.5).
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use std::sync::Arc;

use unvme_bus::lock;
use unvme_spec::identify::{
    ControllerList, IDENTIFY_BYTES, IdentifyController, IdentifyNamespace, IndependentNamespace,
    IoCommandSets, KV_VERSION_1_3, KvControllerIdentify, KvNamespaceIdentify, LbaFormat,
    NamespaceIdDescriptor, NamespaceList, NvmControllerIdentify, NvmNamespaceIdentify, cmic, cns, csi,
    ctratt, frmw, fuses, lpa, nstat, oacs, oaes, oncs, sgls, text, vwc, write_descriptors,
};
use unvme_spec::{Nsid, Sqe, Status, admin, claim, kv, regs};
use zerocopy::{Immutable, IntoBytes};

use super::namespaces;
use super::remote::ANA_GROUP;
use crate::Ssd;
use crate::controllers::ControllerSet;
use crate::error_log::ELPE_Z;
use crate::events::AERL_Z;
use crate::fdp::ENDURANCE_GROUP;
use crate::features::WCTEMP;
use crate::firmware::SLOTS;
use crate::identity;
use crate::kv::VALUE_BYTES_MAX;
use crate::limits::NAMESPACES_MAX;
use crate::namespace::{Blocks, Contents, Namespace, NamespaceTable, free_chunks};
use crate::queue::SubmissionQueue;
use crate::reply::Reply;
use crate::store::CHUNK_BYTES;

/// Abort commands that can be outstanding, zero-based. Each is answered at once: the number is the usual one.
const ACL_Z: u8 = 3;
/// Critical composite temperature in kelvins.
pub(super) const CCTEMP: u16 = 358;

const VENDOR_ID: u16 = 0x1b36;
const SUBSYSTEM_VENDOR_ID: u16 = 0x1b36;
/// Pages of CAP.MPSMIN, in which MDTS counts.
const PAGE_SHIFT: u32 = 12;
/// Time a host should leave for a shutdown, in microseconds: the media is flushed to a file system in it.
const RTD3E_US: u32 = 10_000_000;
const RTD3R_US: u32 = 500_000;
/// I/O controller.
const CNTRLTYPE_IO: u8 = 1;
/// Deallocated blocks read as zeroes.
const DLFEAT_ZEROES: u8 = 0b001;
/// The Format Progress Indicator is supported; no format is under way when a command is answered.
const FPI_IDLE: u8 = 0x80;

type Page = [u8; IDENTIFY_BYTES];

impl Ssd {
    pub(super) fn identify(
        &self,
        sq: &mut SubmissionQueue,
        sqe: &Sqe,
        identify: admin::Identify,
    ) -> Result<Reply, Status> {
        self.send(sq, sqe, &self.identify_page(identify)?, IDENTIFY_BYTES)
    }

    fn identify_page(&self, identify: admin::Identify) -> Result<Page, Status> {
        let table = self.namespaces.get();
        let admin::Identify { nsid, cntid, .. } = identify;
        match identify.cns {
            cns::NAMESPACE => self.describe_namespace(&table, nsid, true),
            cns::CONTROLLER => page(&self.identify_controller(&table)),
            cns::ACTIVE_NAMESPACES => list(&table, nsid, |n| table.is_active(n)),
            cns::NAMESPACE_DESCRIPTORS => descriptors(&table, nsid),
            cns::COMMAND_SET_NAMESPACE => self.describe_in_command_set(&table, identify, true),
            cns::COMMAND_SET_CONTROLLER => self.describe_controller(identify.csi),
            cns::COMMAND_SET_ACTIVE_NAMESPACES => {
                self.check_command_set(identify.csi, Status::INVALID_FIELD)?;
                list(&table, nsid, |n| n.csi() == identify.csi && table.is_active(n))
            }
            cns::INDEPENDENT_NAMESPACE => self.independent(&table, nsid),
            cns::COMMAND_SET_NAMESPACE_FOR_FORMAT => describe_kv_format(identify),
            cns::ALLOCATED_NAMESPACES => list(&table, nsid, |_| true),
            cns::ALLOCATED_NAMESPACE => self.describe_namespace(&table, nsid, false),
            cns::ATTACHED_CONTROLLERS => self.attached_controllers(&table, nsid, cntid),
            cns::CONTROLLERS => controllers(self.subsystem.present(), cntid),
            cns::COMMAND_SET_ALLOCATED_NAMESPACES => {
                self.check_command_set(identify.csi, Status::INVALID_FIELD)?;
                list(&table, nsid, |n| n.csi() == identify.csi)
            }
            cns::COMMAND_SET_ALLOCATED_NAMESPACE => self.describe_in_command_set(&table, identify, false),
            cns::ENDURANCE_GROUPS if self.fdp.has_flash() => Ok(endurance_groups(identify.cns_specific)),
            cns::IO_COMMAND_SETS => self.command_sets(cntid),
            _ => Err(Status::INVALID_FIELD.with_do_not_retry()),
        }
    }

    fn check_command_set(&self, given: u8, otherwise: Status) -> Result<(), Status> {
        if self.has_command_set(given) { Ok(()) } else { Err(otherwise.with_do_not_retry()) }
    }

    /// What a command set adds to Identify Controller.
    fn describe_controller(&self, command_set: u8) -> Result<Page, Status> {
        self.check_command_set(command_set, Status::INVALID_IO_COMMAND_SET)?;
        match command_set {
            csi::KEY_VALUE => {
                page(&KvControllerIdentify { ver: KV_VERSION_1_3, ..KvControllerIdentify::default() })
            }
            // Zero is "no limit" throughout.
            _ => page(&NvmControllerIdentify::default()),
        }
    }

    /// What a command set has to say of a namespace of its own.
    fn describe_in_command_set(
        &self,
        table: &NamespaceTable,
        identify: admin::Identify,
        active: bool,
    ) -> Result<Page, Status> {
        self.check_command_set(identify.csi, Status::INVALID_IO_COMMAND_SET)?;
        let namespace = match identify.nsid {
            Nsid::ALL if active => None,
            nsid => find(table, nsid)?.filter(|n| table.is_active(n) || !active),
        };
        if namespace.is_some_and(|n| n.csi() != identify.csi) {
            return Err(Status::INVALID_IO_COMMAND_SET.with_do_not_retry());
        }
        match (identify.csi, namespace) {
            // No protection information and no preferences: zeroes in every field, for an inactive namespace
            // as well.
            (csi::NVM, _) => page(&NvmNamespaceIdentify::default()),
            (_, Some(namespace)) => self.describe_pairs(namespace),
            (_, None) if identify.nsid == Nsid::ALL => page(&kv_formats()),
            (_, None) => Ok(ZEROES),
        }
    }

    /// Combinations of command sets.
    fn command_sets(&self, cntid: u16) -> Result<Page, Status> {
        // FFFFh is whichever controller processes the command.
        if cntid != u16::MAX && !self.subsystem.present().contains(cntid) {
            return Err(Status::INVALID_FIELD.with_do_not_retry());
        }
        let mut sets = IoCommandSets::default();
        for (target, combination) in sets.combinations.iter_mut().zip(self.command_set_combinations()) {
            *target = combination;
        }
        page(&sets)
    }

    fn identify_controller(&self, table: &NamespaceTable) -> IdentifyController {
        let [oui_high, oui_middle, oui_low] = identity::IEEE_OUI;
        let free = free_chunks(table, self.media.chunks());
        let mut id = IdentifyController::default();
        id.vid = VENDOR_ID;
        id.vs.iter_mut().zip(claim::SIGNATURE).for_each(|(to, from)| *to = *from);
        id.ssvid = SUBSYSTEM_VENDOR_ID;
        id.rab = 6;
        id.ieee = [oui_low, oui_middle, oui_high];
        id.mdts = mdts(self.config.transfer_bytes_max);
        id.cmic = if self.subsystem.is_shared() { cmic::SEVERAL_CONTROLLERS } else { 0 };
        id.cntlid = self.cntlid;
        id.ver = regs::VERSION_2_0;
        id.rtd3r = RTD3R_US;
        id.rtd3e = RTD3E_US;
        id.oaes = oaes::NAMESPACE_ATTRIBUTES | oaes::FIRMWARE_ACTIVATION;
        id.cntrltype = CNTRLTYPE_IO;
        id.oacs = oacs::FORMAT_NVM | oacs::FIRMWARE | oacs::NAMESPACE_MANAGEMENT;
        id.acl_z = ACL_Z;
        id.aerl_z = AERL_Z;
        id.frmw = (SLOTS as u8) << frmw::SLOTS_SHIFT | frmw::ACTIVATE_WITHOUT_RESET;
        id.lpa = lpa::COMMANDS_SUPPORTED | lpa::EXTENDED_DATA | lpa::SUPPORTED_LOG_PAGES;
        id.elpe_z = ELPE_Z;
        id.wctemp = WCTEMP;
        id.cctemp = CCTEMP;
        // Activation takes no time, which the field cannot say: the smallest value it can.
        id.mtfa = 1;
        id.tnvmcap = u128::from(self.config.bytes).into();
        id.unvmcap = u128::from(free * CHUNK_BYTES).into();
        id.fwug = 1;
        id.sqes = 0x66;
        id.cqes = 0x44;
        id.nn = NAMESPACES_MAX;
        id.oncs = oncs::COMPARE
            | oncs::WRITE_UNCORRECTABLE
            | oncs::DATASET_MANAGEMENT
            | oncs::WRITE_ZEROES
            | oncs::SAVE_SELECT
            | oncs::TIMESTAMP
            | oncs::VERIFY;
        id.fuses = fuses::COMPARE_AND_WRITE;
        id.vwc = vwc::PRESENT | vwc::FLUSH_ALL_SUPPORTED;
        id.sgls = sgls::SUPPORTED | sgls::LONGER_THAN_DATA;
        id.mnan = NAMESPACES_MAX;
        if self.fdp.has_flash() {
            id.ctratt |= ctratt::ENDURANCE_GROUPS | ctratt::FLEXIBLE_DATA_PLACEMENT;
            id.oacs |= oacs::DIRECTIVES;
            id.endgidmax = ENDURANCE_GROUP;
        }
        text::write(&mut id.sn, &self.config.serial);
        text::write(&mut id.mn, &self.config.model);
        text::write(&mut id.fr, &lock(&self.subsystem.firmware).active_revision());
        let fits = text::write_nqn(&mut id.subnqn, &identity::subsystem_nqn(&self.config.serial));
        debug_assert!(fits, "the qualified name has 68 characters");
        if let Some(association) = &self.association {
            self.describe_remote(association, &mut id);
        }
        id
    }

    /// Identify Namespace: of one namespace, or with FFFFFFFFh what all have in common.
    fn describe_namespace(&self, table: &NamespaceTable, nsid: Nsid, active: bool) -> Result<Page, Status> {
        let mut id = IdentifyNamespace::default();
        id.nlbaf_z = (namespaces::FORMATS.len() - 1) as u8;
        id.nmic = if nsid == Nsid::ALL { self.sharing_capability() } else { 0 };
        id.fpi = FPI_IDLE;
        id.dlfeat = DLFEAT_ZEROES;
        id.lbaf = lba_formats();
        if active && nsid == Nsid::ALL {
            return page(&id);
        }
        // Of a namespace of another command set there is nothing to say here.
        let Some(namespace) = find(table, nsid)?.filter(|n| table.is_active(n) || !active) else {
            return Ok(ZEROES);
        };
        let blocks = match &namespace.contents {
            Contents::Blocks(blocks) => blocks,
            Contents::KeyValue(pairs) if self.association.as_ref().is_some_and(|it| it.pairs_in_blocks) => {
                let stats = pairs.store.stats();
                (id.nsze, id.nuse) = (stats.capacity_bytes >> 9, stats.used_bytes >> 9);
                id.ncap = id.nsze;
                id.flbas = namespaces::format_of(9);
                id.nmic = self.sharing_of(namespace);
                id.anagrpid = self.ana_group();
                id.nguid = namespace.nguid;
                id.eui64 = namespace.eui64;
                return page(&id);
            }
            Contents::KeyValue(_) => return Ok(ZEROES),
        };
        id.nsze = blocks.count;
        id.ncap = blocks.count;
        id.nuse = self.blocks_used(blocks);
        id.nmic = self.sharing_of(namespace);
        id.flbas = namespaces::format_of(blocks.block_shift);
        id.nvmcap = u128::from(blocks.chunks.len() as u64 * CHUNK_BYTES).into();
        id.endgid = self.endurance_group();
        id.anagrpid = self.ana_group();
        id.nguid = namespace.nguid;
        id.eui64 = namespace.eui64;
        page(&id)
    }

    /// ANA group of every namespace; 0 where none is reported.
    fn ana_group(&self) -> u32 {
        if self.association.is_some() { ANA_GROUP } else { 0 }
    }

    /// Endurance group of every namespace; 0 when the device has none.
    fn endurance_group(&self) -> u16 {
        if self.fdp.has_flash() { ENDURANCE_GROUP } else { 0 }
    }

    /// NMIC of a namespace: whether several controllers may have it attached.
    fn sharing_of(&self, namespace: &Namespace) -> u8 {
        if namespace.is_private { 0 } else { self.sharing_capability() }
    }

    /// NMIC that namespaces can have.
    fn sharing_capability(&self) -> u8 {
        if self.subsystem.is_shared() { namespaces::NMIC_SHARED } else { 0 }
    }

    fn attached_controllers(&self, table: &NamespaceTable, nsid: Nsid, first: u16) -> Result<Page, Status> {
        if nsid == Nsid::ALL {
            return Err(Status::INVALID_FIELD.with_do_not_retry());
        }
        let namespace = find(table, nsid)?.ok_or(Status::INVALID_FIELD.with_do_not_retry())?;
        controllers(namespace.attached.and(self.subsystem.present()), first)
    }

    fn describe_pairs(&self, namespace: &Namespace) -> Result<Page, Status> {
        let Contents::KeyValue(pairs) = &namespace.contents else { return Err(Status::INTERNAL_ERROR) };
        let stats = pairs.store.stats();
        let mut id = kv_formats();
        id.nsze = stats.capacity_bytes;
        id.nuse = stats.used_bytes;
        id.nmic = self.sharing_of(namespace);
        id.fpi = FPI_IDLE;
        id.endgid = self.endurance_group();
        id.anagrpid = self.ana_group();
        id.nguid = namespace.nguid;
        id.eui64 = namespace.eui64;
        page(&id)
    }

    fn independent(&self, table: &NamespaceTable, nsid: Nsid) -> Result<Page, Status> {
        let Some(namespace) = find(table, nsid)?.filter(|n| table.is_active(n)) else { return Ok(ZEROES) };
        let mut id = IndependentNamespace::default();
        id.nmic = self.sharing_of(namespace);
        id.fpi = FPI_IDLE;
        id.endgid = self.endurance_group();
        id.anagrpid = self.ana_group();
        id.nstat = nstat::READY;
        page(&id)
    }

    /// Blocks of units that hold something, as far as is known: of a chunk that has had space since before
    /// the device was started, all that have not been deallocated since.
    fn blocks_used(&self, blocks: &Blocks) -> u64 {
        let mut left = blocks.bytes(blocks.count);
        let mut used = 0;
        for &chunk in &*blocks.chunks {
            let here = left.min(CHUNK_BYTES);
            left -= here;
            used += self.media.bytes_used(chunk.into(), here);
        }
        used >> blocks.block_shift
    }
}

const ZEROES: Page = [0; IDENTIFY_BYTES];

fn page<T: IntoBytes + Immutable>(structure: &T) -> Result<Page, Status> {
    // Every Identify structure has this size; the layouts assert it when they are compiled.
    structure.as_bytes().try_into().map_err(|_| Status::INTERNAL_ERROR)
}

/// MDTS counts in powers of two of pages; 0 is "no limit".
fn mdts(transfer_bytes_max: Option<u32>) -> u8 {
    transfer_bytes_max.map_or(0, |bytes| (bytes >> PAGE_SHIFT).max(1).ilog2() as u8)
}

fn lba_formats() -> [LbaFormat; 64] {
    let mut formats = [LbaFormat::default(); 64];
    for (target, format) in formats.iter_mut().zip(namespaces::FORMATS) {
        *target = LbaFormat { ms: 0, lbads: format.block_shift, rp: format.relative_performance };
    }
    formats
}

/// A namespace within NN, if it exists.
fn find(table: &NamespaceTable, nsid: Nsid) -> Result<Option<&Arc<Namespace>>, Status> {
    match nsid.0 {
        1..=NAMESPACES_MAX => Ok(table.get(nsid)),
        _ => Err(Status::INVALID_NAMESPACE_OR_FORMAT.with_do_not_retry()),
    }
}

/// Identifiers greater than `after` of the namespaces that are wanted.
fn list(table: &NamespaceTable, after: Nsid, wanted: impl Fn(&Namespace) -> bool) -> Result<Page, Status> {
    if after.0 >= Nsid::ALL.0 - 1 {
        return Err(Status::INVALID_NAMESPACE_OR_FORMAT.with_do_not_retry());
    }
    let wanted = table.iter().filter(|n| n.nsid > after && wanted(n)).map(|n| n.nsid);
    page(&NamespaceList::from_ascending(wanted))
}

fn descriptors(table: &NamespaceTable, nsid: Nsid) -> Result<Page, Status> {
    let namespace =
        find(table, nsid)?.filter(|n| table.is_active(n)).ok_or(Status::INVALID_FIELD.with_do_not_retry())?;
    write_descriptors(&[
        NamespaceIdDescriptor::Eui64(namespace.eui64),
        NamespaceIdDescriptor::Nguid(namespace.nguid),
        NamespaceIdDescriptor::Csi(namespace.csi()),
    ])
    .ok_or(Status::INTERNAL_ERROR)
}

/// Formats of Key Value namespaces: one.
fn kv_formats() -> KvNamespaceIdentify {
    let mut id = KvNamespaceIdentify { nkvf_z: namespaces::KV_FORMATS - 1, ..KvNamespaceIdentify::default() };
    let [first, ..] = &mut id.kvf;
    first.kvkml = kv::KEY_BYTES_MAX as u16;
    first.kvvml = VALUE_BYTES_MAX;
    // MNKS is zero: the number of keys is limited by the space for them alone.
    id
}

/// What a Key Value namespace of a format can do.
fn describe_kv_format(identify: admin::Identify) -> Result<Page, Status> {
    if identify.csi != csi::KEY_VALUE {
        return Err(Status::INVALID_FIELD.with_do_not_retry());
    }
    if identify.cns_specific >= namespaces::KV_FORMATS.into() {
        return Err(Status::INVALID_FIELD.with_do_not_retry());
    }
    page(&kv_formats())
}

/// Endurance Group List: how many, and which, not below `first` (Base 5.1.13.2.16).
fn endurance_groups(first: u16) -> Page {
    let mut list = ZEROES;
    if first <= ENDURANCE_GROUP {
        let entries = [1, ENDURANCE_GROUP].map(u16::to_le_bytes);
        for (target, entry) in list.chunks_exact_mut(2).zip(entries) {
            target.copy_from_slice(&entry);
        }
    }
    list
}

/// A list of the controllers whose identifiers are not below `first`.
fn controllers(listed: ControllerSet, first: u16) -> Result<Page, Status> {
    page(&ControllerList::from_ascending(listed.iter().filter(|&id| id >= first)))
}
