//! Limits of a controller, as Identify Controller has them.

use unvme_bus::mem::PAGE_BYTES;
use unvme_spec::identify::IdentifyController;

/// Longest transfer in bytes. MDTS counts pages of CAP.MPSMIN, of `page_bytes`; 0 is no limit, and what does
/// not fit in a usize is none either.
pub(crate) fn transfer_bytes_max(identify: &IdentifyController, page_bytes: usize) -> usize {
    match identify.mdts {
        0 => usize::MAX,
        power => page_bytes.checked_shl(power.into()).filter(|bytes| *bytes > 0).unwrap_or(usize::MAX),
    }
}

/// Firmware Update Granularity in bytes. FWUG: 0 no information, FFh no restriction; otherwise units of 4 KiB
/// (Base figure 313).
pub(crate) fn firmware_piece_bytes(identify: &IdentifyController) -> usize {
    match identify.fwug {
        0 | 0xff => PAGE_BYTES,
        units => usize::from(units) * PAGE_BYTES,
    }
}
