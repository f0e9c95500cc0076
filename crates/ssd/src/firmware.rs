//! Firmware slots and images (Base 3.11).
//!
//! There is no processor to run an image: its payload is checked and dropped, and what a slot keeps is the
//! revision. An image is, in this order:
//!
//! | bytes | |
//! |---|---|
//! | 8 | magic, `UNVMEFW` and a NUL |
//! | 8 | revision, printable ASCII padded with spaces, not empty |
//! | any | payload |
//! | 4 | CRC-32 (ISO HDLC) of everything before it, little-endian |
//!
//! in whole dwords, which is the unit of the download command. [`firmware_image`] makes whole pieces of it:
//! some hosts (nvme-cli 2.3) fill up the last piece with whatever follows in their memory.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use serde::{Deserialize, Serialize};
use unvme_spec::Status;
use unvme_spec::admin::{CommitAction, FirmwareCommit};
use unvme_spec::identify::text::{self, Text};
use unvme_spec::log_page::FirmwareSlot;

/// Firmware slots, all of which can be written.
pub(crate) const SLOTS: usize = 3;
/// Largest firmware image the device takes, in bytes.
pub const FIRMWARE_IMAGE_BYTES_MAX: usize = 4 << 20;

/// Pieces of an image start at multiples of this many bytes (FWUG 1); only the last may be shorter.
pub(crate) const GRANULARITY: usize = 4096;
const MAGIC: [u8; 8] = *b"UNVMEFW\0";
const REVISION_BYTES: usize = 8;
const CHECKSUM_BYTES: usize = 4;
/// Revision of a device on its first day.
const FACTORY_REVISION: &str = "1.0";

/// An image that the device accepts. `revision` is up to eight printable ASCII characters (what is longer is
/// cut off); the payload is filled up with zeroes until the image is a multiple of 4 KiB (FWUG), and may have
/// [`FIRMWARE_IMAGE_BYTES_MAX`] bytes less twenty.
pub fn firmware_image(revision: &str, payload: &[u8]) -> Vec<u8> {
    let mut name = [0; REVISION_BYTES];
    text::write(&mut name, revision);
    let mut image = [&MAGIC[..], &name, payload].concat();
    let bytes = image.len().saturating_add(CHECKSUM_BYTES).next_multiple_of(GRANULARITY);
    image.resize(bytes.saturating_sub(CHECKSUM_BYTES), 0);
    let checksum = crc32fast::hash(&image);
    image.extend(checksum.to_le_bytes());
    image
}

/// Revision of an image; `None` when it is not one.
fn revision_of(image: &[u8]) -> Option<String> {
    let (content, checksum) = image.split_last_chunk::<CHECKSUM_BYTES>()?;
    let rest = content.strip_prefix(&MAGIC)?;
    let name = rest.first_chunk::<REVISION_BYTES>()?;
    if crc32fast::hash(content) != u32::from_le_bytes(*checksum)
        || !name.iter().all(|b| matches!(b, b' '..=b'~'))
    {
        return None;
    }
    let revision = Text::new(name).to_string();
    is_revision(&revision).then_some(revision)
}

fn is_revision(text: &str) -> bool {
    !text.trim_start().is_empty()
        && text.len() <= REVISION_BYTES
        && !text.ends_with(' ')
        && text.bytes().all(|b| matches!(b, b' '..=b'~'))
}

/// What survives the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FirmwareState {
    /// Revision that runs; its slot may have been overwritten since it was started.
    running: String,
    /// Slot it came from, 1 to [`SLOTS`].
    active: u8,
    /// Slot to run after the next controller level reset.
    next: Option<u8>,
    /// Revision in each slot.
    slots: [Option<String>; SLOTS],
}

impl Default for FirmwareState {
    fn default() -> Self {
        let mut slots = [const { None }; SLOTS];
        let [first, ..] = &mut slots;
        *first = Some(FACTORY_REVISION.to_owned());
        Self { running: FACTORY_REVISION.to_owned(), active: 1, next: None, slots }
    }
}

impl FirmwareState {
    fn slot(&self, number: u8) -> Option<&str> {
        self.slots.get(usize::from(number).checked_sub(1)?)?.as_deref()
    }

    /// Checks what was read from outside.
    pub(crate) fn check(&self) -> Result<(), String> {
        let revisions = self.slots.iter().flatten().chain([&self.running]);
        for revision in revisions {
            if !is_revision(revision) {
                return Err(format!(
                    "firmware revision {revision:?} is not 1 to 8 printable ASCII characters"
                ));
            }
        }
        for number in [Some(self.active), self.next].into_iter().flatten() {
            if self.slot(number).is_none() {
                return Err(format!("firmware slot {number} is empty or not there, and to be run"));
            }
        }
        Ok(())
    }
}

/// Pieces of an image that have arrived.
#[derive(Default)]
pub(crate) struct Download {
    image: Vec<u8>,
    /// Disjoint ranges of `image` in ascending order: first byte and the one behind the last.
    pieces: Vec<(usize, usize)>,
}

impl Download {
    pub(crate) fn add(&mut self, start: usize, data: &[u8]) -> Result<(), Status> {
        let end = start.saturating_add(data.len());
        let at = self.pieces.partition_point(|&(first, _)| first < start);
        let before = at.checked_sub(1).and_then(|i| self.pieces.get(i));
        let after = self.pieces.get(at);
        if before.is_some_and(|&(_, e)| e > start) || after.is_some_and(|&(s, _)| s < end) {
            return Err(Status::OVERLAPPING_RANGE.with_do_not_retry());
        }
        if self.image.len() < end {
            self.image.resize(end, 0);
        }
        self.image.get_mut(start..end).ok_or(Status::INTERNAL_ERROR)?.copy_from_slice(data);
        self.pieces.insert(at, (start, end));
        Ok(())
    }

    /// The image, when nothing is missing in it.
    fn whole(&self) -> Option<&[u8]> {
        let mut end = 0;
        for &(first, last) in &self.pieces {
            if first != end {
                return None;
            }
            end = last;
        }
        Some(&self.image)
    }
}

/// Slots, and what runs: the subsystem's. What is being downloaded is a controller's.
pub(crate) struct Firmware {
    state: FirmwareState,
}

impl Firmware {
    /// A power cycle is a controller level reset: what waits for one is activated.
    pub(crate) fn new(state: FirmwareState) -> Self {
        let mut firmware = Self { state };
        firmware.reset();
        firmware
    }

    /// A controller level reset activates what waits for it. True when that changed anything.
    pub(crate) fn reset(&mut self) -> bool {
        match self.state.next.take() {
            Some(slot) => self.activate(slot),
            None => false,
        }
    }

    /// Revision that runs.
    pub(crate) fn active_revision(&self) -> String {
        self.state.running.clone()
    }

    /// What survives the process.
    pub(crate) fn saved(&self) -> FirmwareState {
        self.state.clone()
    }

    /// What was done could not be saved: `after` becomes `before` again, unless something else has been done
    /// since.
    pub(crate) fn take_back(&mut self, after: &FirmwareState, before: FirmwareState) {
        if self.state == *after {
            self.state = before;
        }
    }

    /// The Firmware Slot Information log page.
    pub(crate) fn slot_log(&self) -> FirmwareSlot {
        let mut log = FirmwareSlot::default();
        log.afi = self.state.active | self.state.next.unwrap_or(0) << 4;
        for (field, revision) in log.frs.iter_mut().zip(&self.state.slots) {
            if let Some(revision) = revision {
                text::write(field, revision);
            }
        }
        log
    }

    fn activate(&mut self, slot: u8) -> bool {
        let Some(revision) = self.state.slot(slot).map(str::to_owned) else { return false };
        self.state.running = revision;
        self.state.active = slot;
        self.state.next = None;
        true
    }

    /// Executes a commit, for which a controller has downloaded an image or not. True when an image was
    /// activated.
    pub(crate) fn commit(&mut self, commit: FirmwareCommit, download: &mut Download) -> Result<bool, Status> {
        if usize::from(commit.slot) > SLOTS {
            return Err(Status::INVALID_FIRMWARE_SLOT.with_do_not_retry());
        }
        let downloaded = !download.pieces.is_empty();
        match commit.action {
            CommitAction::Replace => self.replace(commit.slot, download).map(|_| false),
            CommitAction::ReplaceAndActivateAtReset => {
                self.state.next = Some(self.replace(commit.slot, download)?);
                Ok(false)
            }
            CommitAction::ActivateAtReset => {
                self.state.next = Some(self.loaded(commit.slot)?);
                Ok(false)
            }
            CommitAction::ActivateImmediately => {
                let slot = match downloaded {
                    true => self.replace(commit.slot, download)?,
                    false => self.loaded(commit.slot)?,
                };
                Ok(self.activate(slot))
            }
            // There are no boot partitions.
            CommitAction::ReplaceBootPartition
            | CommitAction::ActivateBootPartition
            | CommitAction::Reserved(_) => Err(Status::INVALID_FIELD.with_do_not_retry()),
        }
    }

    /// Puts the downloaded image into a slot; returns which. The download is used up, whatever it was.
    fn replace(&mut self, slot: u8, download: &mut Download) -> Result<u8, Status> {
        let download = std::mem::take(download);
        let revision = download.whole().and_then(revision_of).ok_or(Status::INVALID_FIRMWARE_IMAGE)?;
        let slot = if slot == 0 { self.slot_to_write() } else { slot };
        let place = usize::from(slot).checked_sub(1).and_then(|i| self.state.slots.get_mut(i));
        *place.ok_or(Status::INTERNAL_ERROR)? = Some(revision);
        Ok(slot)
    }

    /// The controller's choice of a slot for an image: an empty one, else the next after the one that runs.
    fn slot_to_write(&self) -> u8 {
        let mut others = self.slots_after_active();
        others.clone().find(|&slot| self.state.slot(slot).is_none()).or_else(|| others.next()).unwrap_or(1)
    }

    /// A slot that holds an image; 0 is the next that does after the one that runs.
    fn loaded(&self, slot: u8) -> Result<u8, Status> {
        let slot = match slot {
            0 => {
                self.slots_after_active().find(|&s| self.state.slot(s).is_some()).unwrap_or(self.state.active)
            }
            given => given,
        };
        match self.state.slot(slot) {
            Some(_) => Ok(slot),
            None => Err(Status::INVALID_FIRMWARE_IMAGE.with_do_not_retry()),
        }
    }

    /// All slots but the active one, in a circle.
    fn slots_after_active(&self) -> impl Iterator<Item = u8> + Clone + use<> {
        let active = self.state.active;
        (active.saturating_add(1)..=SLOTS as u8).chain(1..active)
    }
}
