//! How large and how full a device is.

use serde::Serialize;
use unvme_guide::config::SsdType;
use unvme_guide::session::Member;

/// What a device says about its space; what it does not say is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Use {
    /// Bytes there are.
    pub(crate) total_bytes: Option<u64>,
    /// Bytes in use, of a block device.
    pub(crate) used_bytes: Option<u64>,
    /// Share in use, in percent.
    pub(crate) used_percent: Option<f64>,
    /// Write amplification: bytes written to the media for each byte that was asked for.
    pub(crate) waf: Option<f64>,
}

impl Use {
    /// Asks a device. What it has no answer for is left out: not every device has the vendor's log pages.
    pub(crate) fn of(member: &Member) -> Self {
        let total_bytes = Some(member.total_bytes());
        let used = member.used().ok();
        let (used_bytes, used_percent) = match member.ssd_type() {
            SsdType::Kv => (None, used.map(|hundredths| hundredths as f64 / 100.0)),
            SsdType::Lba => {
                let share = |bytes: u64| Some(bytes as f64 * 100.0 / total_bytes.filter(|&b| b > 0)? as f64);
                (used, used.and_then(share))
            }
        };
        let waf = member.waf_tenths().ok().map(|tenths| f64::from(tenths) / 10.0);
        Self { total_bytes, used_bytes, used_percent, waf }
    }
}
