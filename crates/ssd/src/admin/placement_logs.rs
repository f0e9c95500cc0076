//! Log pages of the endurance group: 09h, and those of Flexible Data Placement (Base 5.1.12.1.10, 5.1.12.1.28
//! to 5.1.12.1.31).
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use unvme_bus::{Clock, lock};
use unvme_spec::Status;
use unvme_spec::admin::GetLogPage;
use unvme_spec::log_page::{EnduranceGroup, lid};

use super::logs::bytes_of;
use crate::Ssd;
use crate::fdp::{ENDURANCE_GROUP, configurations_page};
use crate::namespace::{assign, free_chunks};
use crate::store::CHUNK_BYTES;

/// Log pages of a device with flash. Each is about the endurance group in the Log Specific Identifier.
pub(super) const PAGES: [u8; 5] = [
    lid::ENDURANCE_GROUP,
    lid::FDP_CONFIGURATIONS,
    lid::FDP_HANDLE_USAGE,
    lid::FDP_STATISTICS,
    lid::FDP_EVENTS,
];

/// Endurance Group Information counts in billions of bytes.
const BILLION: u64 = 1_000_000_000;

impl Ssd {
    pub(super) fn placement_log(&self, get: GetLogPage, clock: &Clock) -> Result<Vec<u8>, Status> {
        let invalid_field = Status::INVALID_FIELD.with_do_not_retry();
        let fdp = &self.fdp;
        let Some(flash) = self.media.flash().filter(|_| get.lsi == ENDURANCE_GROUP) else {
            return Err(invalid_field);
        };
        match get.lid {
            lid::ENDURANCE_GROUP => return Ok(bytes_of(&self.endurance_group_log())),
            lid::FDP_CONFIGURATIONS => {
                return configurations_page(fdp.configurations()).ok_or(Status::INTERNAL_ERROR);
            }
            _ => {}
        }
        let configuration = fdp.configuration().ok_or(Status::FDP_DISABLED.with_do_not_retry())?;
        match get.lid {
            lid::FDP_HANDLE_USAGE => Ok(assign::usage_page(&self.namespaces.get(), configuration)),
            lid::FDP_STATISTICS => Ok(bytes_of(&fdp.counted_since(&flash.stats()).statistics())),
            lid::FDP_EVENTS => {
                self.attend_now(clock);
                // Bit 0 of the Log Specific Parameter: host events rather than the controller's.
                Ok(fdp.events_page(get.lsp & 1 != 0))
            }
            _ => Err(invalid_field),
        }
    }

    fn endurance_group_log(&self) -> EnduranceGroup {
        let wear = self.wear();
        let table = self.namespaces.get();
        let io = lock(&self.subsystem.smart).saved(&self.subsystem.counted().io);
        let mut log = EnduranceGroup::default();
        log.critical_warning = self.wear_warnings();
        log.available_spare = wear.spare_percent;
        log.available_spare_threshold = crate::smart::SPARE_THRESHOLD_PERCENT;
        log.percentage_used = wear.used_percent;
        log.endurance_estimate = billions(wear.endurance_bytes);
        log.data_units_read = billions(io.bytes_read.into());
        log.data_units_written = billions(io.bytes_written.into());
        log.media_units_written = billions(wear.media_bytes.into());
        log.host_reads = u128::from(io.read_commands).into();
        log.host_writes = u128::from(io.write_commands).into();
        log.media_errors = u128::from(io.media_errors).into();
        log.error_log_entries = u128::from(lock(&self.subsystem.errors).count()).into();
        log.total_capacity = u128::from(self.config.bytes).into();
        let free = free_chunks(&table, self.media.chunks()) * CHUNK_BYTES;
        log.unallocated_capacity = u128::from(free).into();
        log
    }
}

fn billions(bytes: u128) -> zerocopy::little_endian::U128 {
    bytes.div_ceil(BILLION.into()).into()
}
