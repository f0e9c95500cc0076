//! Get Log Page (Base 5.1.12), and the counters of the SMART / Health Information log.
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use serde::{Deserialize, Serialize};
use unvme_bus::{Clock, lock};
use unvme_spec::admin::GetLogPage;
use unvme_spec::log_page::{ErrorInformation, SmartHealth, lid};
use unvme_spec::{Nsid, Sqe, Status};
use zerocopy::{Immutable, IntoBytes};

use super::effects::{CommandKinds, LogPageKinds};
use super::errors::ERROR_LOG_ENTRIES;
use super::wear::Wear;
use super::{effects, features, placement_logs, vendor_logs};
use crate::Ssd;
use crate::kv::command::counters::KvCounters;
use crate::queue::SubmissionQueue;
use crate::smart::IoCounters;

const INVALID_FIELD: Status = Status::INVALID_FIELD.with_do_not_retry();
/// Data units are thousands of 512 bytes (Base figure 208).
const DATA_UNIT_BYTES: u64 = 512 * 1000;
const NS_PER_HOUR: u64 = 3_600_000_000_000;
/// Available Spare Threshold: the usual one.
pub(super) const SPARE_THRESHOLD_PERCENT: u8 = 10;

/// What of the SMART log survives the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SmartState {
    pub(super) bytes_read: u64,
    pub(super) bytes_written: u64,
    pub(super) read_commands: u64,
    pub(super) write_commands: u64,
    pub(super) media_errors: u64,
    power_cycles: u64,
    power_on_ns: u64,
    unsafe_shutdowns: u64,
    /// The device was shut down, or has never been started.
    shut_down: bool,
}

/// Life of the device up to this start, and how long ago that was.
pub(crate) struct Smart {
    /// Values as of this start.
    before: SmartState,
    kv_before: KvCounters,
    /// Clock readings: the first and the latest since this start.
    on: Option<(u64, u64)>,
    shut_down: bool,
}

impl Smart {
    /// Starts a power cycle.
    pub(crate) fn new(mut state: SmartState, kv: KvCounters) -> Self {
        if state.power_cycles > 0 && !state.shut_down {
            state.unsafe_shutdowns = state.unsafe_shutdowns.saturating_add(1);
        }
        state.power_cycles = state.power_cycles.saturating_add(1);
        Self { before: state, kv_before: kv, on: None, shut_down: false }
    }

    /// Everything that was written is on the media: power may go. Or the device is at work again.
    pub(crate) fn set_shut_down(&mut self, shut_down: bool) {
        self.shut_down = shut_down;
    }

    /// What [`Smart::new`] needs to continue, with the I/O of all queues since this start.
    pub(crate) fn saved(&self, io: &IoCounters) -> SmartState {
        let (first, latest) = self.on.unwrap_or_default();
        SmartState {
            bytes_read: self.before.bytes_read.saturating_add(io.bytes_read),
            bytes_written: self.before.bytes_written.saturating_add(io.bytes_written),
            read_commands: self.before.read_commands.saturating_add(io.read_commands),
            write_commands: self.before.write_commands.saturating_add(io.write_commands),
            media_errors: self.before.media_errors.saturating_add(io.media_errors),
            power_on_ns: self.before.power_on_ns.saturating_add(latest.saturating_sub(first)),
            shut_down: self.shut_down,
            ..self.before
        }
    }

    /// Key Value commands over the life of the device, with those of all queues since this start.
    pub(crate) fn kv(&self, since: &KvCounters) -> KvCounters {
        let mut all = self.kv_before;
        all.add(since);
        all
    }

    /// The device is on and it is `now`; told with every admin command, since nobody else has a clock and the time.
    pub(super) fn tick(&mut self, now: u64) {
        let (first, latest) = self.on.unwrap_or((now, now));
        self.on = Some((first, latest.max(now)));
    }

    /// Controller Busy Time stays zero: no clock is read while commands are executed, which is short.
    fn log(&self, io: &IoCounters, critical_warning: u8, errors: u64, wear: &Wear) -> SmartHealth {
        let state = self.saved(io);
        let units = |bytes: u64| u128::from(bytes.div_ceil(DATA_UNIT_BYTES)).into();
        let mut log = SmartHealth::default();
        log.critical_warning = critical_warning;
        log.temperature = features::TEMPERATURE.into();
        log.available_spare = wear.spare_percent;
        log.available_spare_threshold = SPARE_THRESHOLD_PERCENT;
        log.percentage_used = wear.used_percent;
        log.data_units_read = units(state.bytes_read);
        log.data_units_written = units(state.bytes_written);
        log.host_reads = u128::from(state.read_commands).into();
        log.host_writes = u128::from(state.write_commands).into();
        log.power_cycles = u128::from(state.power_cycles).into();
        log.power_on_hours = u128::from(state.power_on_ns / NS_PER_HOUR).into();
        log.unsafe_shutdowns = u128::from(state.unsafe_shutdowns).into();
        log.media_errors = u128::from(state.media_errors).into();
        log.error_log_entries = u128::from(errors).into();
        log
    }
}

impl Ssd {
    pub(super) fn get_log_page(
        &self,
        sq: &mut SubmissionQueue,
        sqe: &Sqe,
        get: GetLogPage,
        clock: &Clock,
    ) -> Result<u64, Status> {
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
        // Host memory behind the end of the page is left alone.
        self.send(sq, sqe, rest.get(..bytes).unwrap_or(rest))?;
        self.acknowledge(&get);
        Ok(0)
    }

    /// The whole log page.
    fn log_page(&self, get: GetLogPage, clock: &Clock) -> Result<Vec<u8>, Status> {
        Ok(match get.lid {
            lid::SUPPORTED_LOG_PAGES => bytes_of(&effects::log_pages(self.log_page_kinds())),
            lid::ERROR_INFORMATION => {
                let mut page = [ErrorInformation::default(); ERROR_LOG_ENTRIES];
                for (slot, entry) in page.iter_mut().zip(lock(&self.subsystem.admin.errors).entries()) {
                    *slot = *entry;
                }
                bytes_of(&page)
            }
            lid::SMART_HEALTH => bytes_of(&self.smart_log()),
            lid::FIRMWARE_SLOT => bytes_of(&lock(&self.subsystem.admin.firmware).slot_log()),
            lid::ANA => self.ana_log(get)?,
            lid::CHANGED_NAMESPACES => bytes_of(&self.admin.events.changed_namespaces()),
            lid::COMMANDS_SUPPORTED if self.has_command_set(get.csi) => {
                let kinds = CommandKinds {
                    vendor: self.config.vendor_kv,
                    faults: self.config.fault_commands,
                    flash: self.admin.fdp.has_flash(),
                    remote: self.association.is_some(),
                };
                bytes_of(&effects::commands(get.csi, kinds))
            }
            lid::FEATURES_SUPPORTED => bytes_of(&effects::features(self.admin.fdp.has_flash())),
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
            flash: self.admin.fdp.has_flash(),
            remote: self.association.is_some(),
        }
    }

    fn smart_log(&self) -> SmartHealth {
        let io = self.counted().io;
        let warnings = lock(&self.admin.features).critical_warnings() | self.fault_warnings();
        let wear = self.wear_warnings();
        let errors = lock(&self.subsystem.admin.errors).count();
        let mut log = lock(&self.subsystem.admin.smart).log(&io, warnings | wear, errors, &self.wear());
        log.endurance_group_warning = wear;
        log
    }

    /// The host has the log page: its event is cleared, unless it asked to retain it.
    fn acknowledge(&self, get: &GetLogPage) {
        if !get.retain_async_event {
            self.admin.events.clear(get.lid);
        }
    }
}

/// Bytes of the NVMe-MI Commands Supported and Effects log.
const NVME_MI_PAGE_BYTES: usize = 4096;

pub(super) fn bytes_of<T: IntoBytes + Immutable>(page: &T) -> Vec<u8> {
    page.as_bytes().to_vec()
}
