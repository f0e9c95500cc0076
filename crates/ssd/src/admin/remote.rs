//! What a controller has and says whose host is reached over a network: capsules, keep alive, Asymmetric
//! Namespace Access.
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use unvme_spec::Status;
use unvme_spec::admin::GetLogPage;
use unvme_spec::feature::Select;
use unvme_spec::identify::{IdentifyController, anacap, cmic, ctratt, oaes, sgls, text};
use unvme_spec::log_page::{AnaGroup, AnaHeader};
use zerocopy::IntoBytes;

use crate::Ssd;
use crate::association::{Association, IN_CAPSULE_BYTES, KEEP_ALIVE_UNIT_MS};
use crate::queue::{CQE_BYTES, SQE_BYTES};

/// Capsule sizes are in units of this many bytes.
const CAPSULE_UNIT_BYTES: u32 = 16;
/// All namespaces are in one ANA group: what differs between ports is where the device is, for all of them.
pub(super) const ANA_GROUP: u32 = 1;
/// Seconds within which a state of change is over.
const ANA_TRANSITION_SECONDS: u8 = 10;
/// RGO, bit 0 of the Log Specific Parameter: groups without their namespaces.
const GROUPS_ONLY: u8 = 1 << 0;

impl Ssd {
    /// What Identify Controller says to a host that is reached over a network.
    pub(super) fn describe_remote(&self, association: &Association, id: &mut IdentifyController) {
        id.cmic = cmic::SEVERAL_PORTS | cmic::SEVERAL_CONTROLLERS | cmic::ANA_REPORTING;
        id.oaes |= oaes::ANA_CHANGE;
        id.ctratt |= ctratt::HOST_IDENTIFIER_128 | ctratt::TRAFFIC_BASED_KEEP_ALIVE;
        id.kas = (KEEP_ALIVE_UNIT_MS / 100) as u16;
        id.anatt = ANA_TRANSITION_SECONDS;
        id.anacap = anacap::OPTIMIZED
            | anacap::NON_OPTIMIZED
            | anacap::INACCESSIBLE
            | anacap::PERSISTENT_LOSS
            | anacap::CHANGE
            | anacap::GROUP_IS_FIXED;
        id.anagrpmax = ANA_GROUP;
        id.nanagrpid = ANA_GROUP;
        id.maxcmd = u16::try_from(self.config.queue_entries).unwrap_or(u16::MAX);
        id.sgls = sgls::SUPPORTED | sgls::LONGER_THAN_DATA | sgls::OFFSET | sgls::TRANSPORT;
        id.ioccsz = (SQE_BYTES as u32 + IN_CAPSULE_BYTES) / CAPSULE_UNIT_BYTES;
        id.iorcsz = CQE_BYTES as u32 / CAPSULE_UNIT_BYTES;
        id.icdoff = 0;
        id.msdbd = 1;
        // OFCS: Disconnect.
        id.ofcs = 1;
        let fits = text::write_nqn(&mut id.subnqn, association.subnqn());
        debug_assert!(fits, "the name was checked when the subsystem was offered");
    }

    /// Asymmetric Namespace Access (0Ch).
    pub(super) fn ana_log(&self, get: GetLogPage) -> Result<Vec<u8>, Status> {
        let association = self.association.as_ref().ok_or(Status::INVALID_LOG_PAGE.with_do_not_retry())?;
        let (state, changes) = association.ana();
        let table = self.namespaces.get();
        let attached = table.iter().filter(|namespace| table.is_attached(namespace));
        let namespaces: Vec<u32> = match get.lsp & GROUPS_ONLY {
            0 => attached.map(|namespace| namespace.nsid.0).collect(),
            _ => Vec::new(),
        };
        let mut header = AnaHeader::default();
        header.change_count = changes.into();
        header.groups = 1.into();
        let mut group = AnaGroup::default();
        group.group = ANA_GROUP.into();
        group.namespaces = (namespaces.len() as u32).into();
        group.change_count = changes.into();
        group.state = state.code();
        let mut page = header.as_bytes().to_vec();
        page.extend_from_slice(group.as_bytes());
        namespaces.iter().for_each(|nsid| page.extend_from_slice(&nsid.to_le_bytes()));
        Ok(page)
    }

    /// The Keep Alive Timer feature (0Fh) in milliseconds.
    pub(super) fn keep_alive(&self, select: Select) -> u64 {
        match (&self.association, select) {
            (Some(association), Select::Current) => association.keep_alive_ms().into(),
            _ => 0,
        }
    }

    /// Sets it; a bus has no keep alive timer.
    pub(super) fn set_keep_alive(&self, milliseconds: u32) -> Result<u64, Status> {
        let association =
            self.association.as_ref().ok_or(Status::FEATURE_NOT_CHANGEABLE.with_do_not_retry())?;
        association.set_keep_alive_ms(milliseconds);
        Ok(0)
    }
}
