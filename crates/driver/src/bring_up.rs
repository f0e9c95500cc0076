//! What a host asks of any controller that it brings up.

use unvme_spec::feature::{AsyncEventConfiguration, NumberOfQueues, fid};
use unvme_spec::identify::{IdentifyController, IoCommandSets, oaes};
use unvme_spec::log_page::critical_warning;
use unvme_spec::{Sqe, admin};

/// CAP.CSS: the NVM Command Set.
pub(crate) const CAP_CSS_NVM: u8 = 1 << 0;
/// CAP.CSS: several I/O command sets, chosen by a profile.
pub(crate) const CAP_CSS_PROFILE: u8 = 1 << 6;
/// CC.IOSQES and CC.IOCQES: 64 and 16 bytes as powers of two.
pub(crate) const IOSQES: u8 = 6;
pub(crate) const IOCQES: u8 = 4;
/// Critical warnings to report: spare, temperature, reliability, read only, backup (Base figure 206).
const SMART_WARNINGS: u8 = critical_warning::SPARE
    | critical_warning::TEMPERATURE
    | critical_warning::RELIABILITY
    | critical_warning::READ_ONLY
    | critical_warning::BACKUP_FAILED;

/// I/O queue pairs asked for at most: identifiers are 16 bits wide and 0 is the admin queue's.
pub(crate) const IO_QUEUES_MAX: u16 = u16::MAX - 1;

/// Set Features that asks for `wanted` queue pairs.
pub(crate) fn queues_request(wanted: u16) -> Sqe {
    let asked = NumberOfQueues::new().with_submission_z(wanted - 1).with_completion_z(wanted - 1);
    set_feature(fid::NUMBER_OF_QUEUES, asked.into_bits())
}

/// The queue pairs that the result of [`queues_request`] grants.
pub(crate) fn queues_granted(wanted: u16, result: u64) -> u16 {
    let granted = NumberOfQueues::from_bits(result as u32);
    let pairs = u32::from(granted.submission_z().min(granted.completion_z())) + 1;
    pairs.min(u32::from(wanted)) as u16
}

/// Set Features that asks for the events the driver wants, of those that are offered.
pub(crate) fn events_request(identify: &IdentifyController) -> Sqe {
    let wanted = AsyncEventConfiguration::new()
        .with_smart_critical_warnings(SMART_WARNINGS)
        .with_namespace_attributes(identify.oaes & oaes::NAMESPACE_ATTRIBUTES != 0)
        .with_firmware_activation(identify.oaes & oaes::FIRMWARE_ACTIVATION != 0);
    set_feature(fid::ASYNC_EVENT_CONFIGURATION, wanted.into_bits())
}

/// Set Features of a feature without data.
pub(crate) fn set_feature(fid: u8, value: u32) -> Sqe {
    let command = admin::SetFeatures { fid, cdw11: value, ..admin::SetFeatures::default() };
    admin::Command::SetFeatures(command).encode()
}

/// The I/O command set combination with the most command sets, the first of them; its index is the profile
/// (Base 5.1.13.3.16, feature 19h).
pub(crate) fn best_profile(sets: &IoCommandSets) -> Option<u32> {
    let used = sets.combinations.iter().take_while(|sets| **sets != 0);
    let best = used.enumerate().max_by_key(|(index, sets)| (sets.count_ones(), usize::MAX - index));
    best.map(|(index, _)| index as u32)
}
