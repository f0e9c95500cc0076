//! Get Log Page (Base 5.1.12), and the counters of the SMART / Health Information log.
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use unvme_bus::{Clock, lock};
use unvme_spec::admin::GetLogPage;
use unvme_spec::log_page::{ErrorInformation, SmartHealth, lid};
use unvme_spec::{Nsid, Sqe, Status};
use zerocopy::{Immutable, IntoBytes};

use super::effects::{CommandKinds, LogPageKinds};
use super::{effects, placement_logs, vendor_logs};
use crate::Ssd;
use crate::error_log::ERROR_LOG_ENTRIES;
use crate::queue::SubmissionQueue;
use crate::reply::Reply;

const INVALID_FIELD: Status = Status::INVALID_FIELD.with_do_not_retry();
impl Ssd {
    pub(super) fn get_log_page(
        &self,
        sq: &mut SubmissionQueue,
        sqe: &Sqe,
        get: GetLogPage,
        clock: &Clock,
    ) -> Result<Reply, Status> {
        if !effects::log_page_ids(self.log_page_kinds()).any(|lid| lid == get.lid) {
            return Err(Status::INVALID_LOG_PAGE.with_do_not_retry());
        }
        // No standard log page is about one namespace (LPA.SMARTS is clear), and none has an index.
        let any_namespace = matches!(get.nsid, Nsid::NONE | Nsid::ALL) || vendor_logs::PAGES.contains(&get.lid)
                // NSID is reserved (Base 5.1.12.1.29).
                || placement_logs::PAGES.contains(&get.lid);
        if !any_namespace || get.offset_is_index || !get.offset.is_multiple_of(4) {
            return Err(INVALID_FIELD);
        }
        let bytes = usize::try_from(get.bytes()).map_err(|_| INVALID_FIELD)?;
        self.check_admin_transfer(bytes)?;
        let page = self.log_page(get, clock)?;
        let offset = usize::try_from(get.offset).unwrap_or(usize::MAX);
        let rest = page.get(offset..).ok_or(INVALID_FIELD)?;
        let reply = self.send(sq, sqe, rest, bytes)?;
        self.acknowledge(&get);
        Ok(reply)
    }

    /// The whole log page.
    fn log_page(&self, get: GetLogPage, clock: &Clock) -> Result<Vec<u8>, Status> {
        Ok(match get.lid {
            lid::SUPPORTED_LOG_PAGES => bytes_of(&effects::log_pages(self.log_page_kinds())),
            lid::ERROR_INFORMATION => {
                let mut page = [ErrorInformation::default(); ERROR_LOG_ENTRIES];
                for (slot, entry) in page.iter_mut().zip(lock(&self.subsystem.errors).entries()) {
                    *slot = *entry;
                }
                bytes_of(&page)
            }
            lid::SMART_HEALTH => bytes_of(&self.smart_log()),
            lid::FIRMWARE_SLOT => bytes_of(&lock(&self.subsystem.firmware).slot_log()),
            lid::ANA => self.ana_log(get)?,
            lid::CHANGED_NAMESPACES => bytes_of(&self.events.changed_namespaces()),
            lid::COMMANDS_SUPPORTED if self.has_command_set(get.csi) => {
                let kinds = CommandKinds {
                    vendor: self.config.vendor_kv,
                    faults: self.config.fault_commands,
                    flash: self.fdp.has_flash(),
                    remote: self.association.is_some(),
                };
                bytes_of(&effects::commands(get.csi, kinds))
            }
            lid::FEATURES_SUPPORTED => bytes_of(&effects::features(self.fdp.has_flash())),
            // There is no management interface: no command of it is supported.
            lid::NVME_MI_COMMANDS_SUPPORTED => vec![0; NVME_MI_PAGE_BYTES],
            group if placement_logs::PAGES.contains(&group) => self.placement_log(get, clock)?,
            vendor if vendor_logs::PAGES.contains(&vendor) => self.vendor_log(vendor, get.nsid)?,
            _ => return Err(INVALID_FIELD),
        })
    }

    /// Which log pages this device has.
    fn log_page_kinds(&self) -> LogPageKinds {
        LogPageKinds {
            vendor: self.has_vendor_logs(),
            flash: self.fdp.has_flash(),
            remote: self.association.is_some(),
        }
    }

    fn smart_log(&self) -> SmartHealth {
        let io = self.subsystem.counted().io;
        let warnings = lock(&self.features).critical_warnings() | self.fault_warnings();
        let wear = self.wear_warnings();
        let errors = lock(&self.subsystem.errors).count();
        let mut log = lock(&self.subsystem.smart).log(&io, warnings | wear, errors, &self.wear());
        log.endurance_group_warning = wear;
        log
    }

    /// The host has the log page: its event is cleared, unless it asked to retain it.
    fn acknowledge(&self, get: &GetLogPage) {
        if !get.retain_async_event {
            self.events.clear(get.lid);
        }
    }
}

/// Bytes of the NVMe-MI Commands Supported and Effects log.
const NVME_MI_PAGE_BYTES: usize = 4096;

pub(super) fn bytes_of<T: IntoBytes + Immutable>(page: &T) -> Vec<u8> {
    page.as_bytes().to_vec()
}
