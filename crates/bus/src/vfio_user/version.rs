//! The JSON text that goes with VERSION: what each side can take.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use serde::{Deserialize, Serialize};

use super::wire::{DATA_BYTES_MAX, DMA_RANGES_MAX, FDS_ANNOUNCED};
use crate::mem::PAGE_BYTES;

/// Longest text we read.
const TEXT_BYTES_MAX: usize = 16 << 10;

/// What the sender of a VERSION message can take. Absent numbers mean the defaults the protocol names; capabilities
/// that are not listed here are ignored.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Capabilities {
    /// Descriptors in one message.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_msg_fds: Option<u64>,
    /// Data bytes in one message.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_data_xfer_size: Option<u64>,
    /// Bit mask of page sizes for DMA ranges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pgsizes: Option<u64>,
    /// DMA ranges at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_dma_maps: Option<u64>,
    /// REGION_WRITE_MULTI is understood.
    #[serde(skip_serializing_if = "Option::is_none")]
    write_multiple: Option<bool>,
}

#[derive(Default, Serialize, Deserialize)]
struct Text {
    #[serde(default)]
    capabilities: Capabilities,
}

impl Capabilities {
    /// Reads the text after the version numbers; none at all is legal (SPDK's initiator sends none).
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.is_empty() {
            return Some(Self::default());
        }
        if bytes.len() > TEXT_BYTES_MAX {
            return None;
        }
        let json = bytes.strip_suffix(&[0])?;
        serde_json::from_slice::<Text>(json).ok().map(|text| text.capabilities)
    }

    /// What we propose as a client.
    pub(crate) fn ours() -> Self {
        Self {
            max_msg_fds: Some(FDS_ANNOUNCED),
            max_data_xfer_size: Some(DATA_BYTES_MAX as u64),
            pgsizes: Some(PAGE_BYTES as u64),
            max_dma_maps: Some(DMA_RANGES_MAX as u64),
            write_multiple: None,
        }
    }

    /// What we answer as a server: our limits, and of the optional capabilities those the client proposed. QEMU gives
    /// the reply no more room than its own text takes.
    pub(crate) fn answer(&self) -> Self {
        let ours = Self::ours();
        Self {
            pgsizes: self.pgsizes.and(ours.pgsizes),
            max_dma_maps: self.max_dma_maps.and(ours.max_dma_maps),
            write_multiple: self.write_multiple.filter(|&wanted| wanted),
            ..ours
        }
    }

    /// The text, with the NUL that ends it.
    pub(crate) fn text(self) -> Vec<u8> {
        // Numbers and booleans in a struct always have a JSON form.
        let mut text = serde_json::to_vec(&Text { capabilities: self }).unwrap_or_default();
        text.push(0);
        text
    }

    /// Data bytes that may go into one message, both sides considered.
    pub(crate) fn data_bytes_max(&self) -> usize {
        let theirs = self.max_data_xfer_size.unwrap_or(DATA_BYTES_MAX as u64);
        usize::try_from(theirs).unwrap_or(usize::MAX).min(DATA_BYTES_MAX)
    }

    /// Descriptors the sender takes in one message.
    pub(crate) fn fds_max(&self) -> u64 {
        self.max_msg_fds.unwrap_or(1)
    }
}
