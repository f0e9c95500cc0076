//! Firmware Image Download and Commit (Base 5.1.8, 5.1.9).
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use unvme_bus::lock;
use unvme_spec::admin::{FirmwareCommit, FirmwareDownload};
use unvme_spec::{Sqe, Status};

use crate::Ssd;
use crate::firmware::{FIRMWARE_IMAGE_BYTES_MAX, GRANULARITY};
use crate::queue::SubmissionQueue;

impl Ssd {
    pub(super) fn firmware_download(
        &self,
        sq: &mut SubmissionQueue,
        sqe: &Sqe,
        download: FirmwareDownload,
    ) -> Result<u64, Status> {
        let refused = Status::INVALID_FIELD.with_do_not_retry();
        let start = u64::from(download.offset_dwords).saturating_mul(4);
        let bytes = download.dwords.saturating_mul(4);
        if !start.is_multiple_of(GRANULARITY as u64)
            || start.saturating_add(bytes) > FIRMWARE_IMAGE_BYTES_MAX as u64
        {
            return Err(refused);
        }
        let data = self.receive(sq, sqe, bytes as usize)?;
        lock(&self.download).add(start as usize, &data)?;
        Ok(0)
    }

    pub(super) fn firmware_commit(&self, commit: FirmwareCommit) -> Result<u64, Status> {
        let shared = &self.subsystem;
        let mut download = std::mem::take(&mut *lock(&self.download));
        let (before, activated, after) = {
            let mut firmware = lock(&shared.firmware);
            let before = firmware.saved();
            let activated = firmware.commit(commit, &mut download);
            (before, activated, firmware.saved())
        };
        *lock(&self.download) = download;
        let activated = activated?;
        shared.saving.changed();
        // What cannot be saved did not happen: the host is told so and finds the slots as they were, unless
        // another controller's reset has activated an image meanwhile.
        self.subsystem.save_state().inspect_err(|_| {
            lock(&shared.firmware).take_back(&after, before);
        })?;
        if activated {
            self.subsystem.firmware_activation_starting();
        }
        Ok(0)
    }
}
