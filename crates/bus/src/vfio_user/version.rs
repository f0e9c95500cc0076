//! The JSON text that goes with VERSION: what each side can take.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::wire::{DATA_BYTES_MAX, DMA_RANGES_MAX, FDS_ANNOUNCED};
use crate::mem::PAGE_BYTES;

/// Longest text we read.
const TEXT_BYTES_MAX: usize = 16 << 10;

/// What the sender of a VERSION message can take. Absent numbers mean the defaults the protocol names;
/// capabilities that are not listed here are ignored.
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
    /// What only this project's peers understand; all others ignore it.
    #[serde(skip_serializing_if = "Option::is_none")]
    unvme: Option<Own>,
}

/// Which I/O virtual addresses the client shall choose from, for a function that several processes drive in
/// one address space. A client proposes the object without members, to say that it understands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Own {
    #[serde(skip_serializing_if = "Option::is_none")]
    iova_first: Option<u64>,
    /// One past the last address.
    #[serde(skip_serializing_if = "Option::is_none")]
    iova_end: Option<u64>,
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
            unvme: Some(Own::default()),
        }
    }

    /// What we answer as a server: our limits, and of the optional capabilities those the client proposed.
    /// QEMU gives the reply no more room than its own text takes. `addresses` are those the client shall
    /// choose from when not all will do.
    pub(crate) fn answer(&self, addresses: Option<Range<u64>>) -> Self {
        let ours = Self::ours();
        let own = addresses.map(|range| Own { iova_first: Some(range.start), iova_end: Some(range.end) });
        Self {
            pgsizes: self.pgsizes.and(ours.pgsizes),
            max_dma_maps: self.max_dma_maps.and(ours.max_dma_maps),
            write_multiple: self.write_multiple.filter(|&wanted| wanted),
            unvme: self.unvme.and(own),
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

    /// The addresses a server wants its client to choose from; `None` when it does not mind. Errors: what is
    /// wrong with them.
    pub(crate) fn addresses(&self) -> Result<Option<Range<u64>>, &'static str> {
        let Some(Own { iova_first: Some(first), iova_end: Some(end) }) = self.unvme else { return Ok(None) };
        let page = PAGE_BYTES as u64;
        if first >= end || !first.is_multiple_of(page) || !end.is_multiple_of(page) {
            return Err("the addresses it offers are no range of pages");
        }
        Ok(Some(first..end))
    }

    /// Descriptors the sender takes in one message.
    pub(crate) fn fds_max(&self) -> u64 {
        self.max_msg_fds.unwrap_or(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<Capabilities> {
        Capabilities::parse(&[text.as_bytes(), &[0]].concat())
    }

    #[test]
    fn a_client_that_does_not_know_us_is_told_nothing_of_ours() {
        let theirs = parse(r#"{"capabilities":{"max_msg_fds":8,"pgsizes":4096}}"#).expect("capabilities");
        let text = theirs.answer(Some(0x1000..0x2000)).text();
        let text = std::str::from_utf8(&text).expect("text");
        assert_eq!(
            text,
            "{\"capabilities\":{\"max_msg_fds\":16,\"max_data_xfer_size\":1048576,\"pgsizes\":4096}}\0"
        );
    }

    #[test]
    fn a_client_that_knows_us_is_told_its_addresses() {
        let ours = Capabilities::parse(&Capabilities::ours().text()).expect("our own");
        assert_eq!(ours.addresses(), Ok(None));
        let answer = Capabilities::parse(&ours.answer(Some(0x1000..0x9000)).text()).expect("an answer");
        assert_eq!(answer.addresses(), Ok(Some(0x1000..0x9000)));
        assert_eq!(ours.answer(None).addresses(), Ok(None));
    }

    #[test]
    fn addresses_that_are_no_range_of_pages_are_refused() {
        for own in [
            r#"{"iova_first":8192,"iova_end":8192}"#,
            r#"{"iova_first":8192,"iova_end":4096}"#,
            r#"{"iova_first":1,"iova_end":4096}"#,
            r#"{"iova_first":4096,"iova_end":18446744073709551615}"#,
        ] {
            let text = format!(r#"{{"capabilities":{{"unvme":{own}}}}}"#);
            assert!(parse(&text).expect("capabilities").addresses().is_err(), "{own}");
        }
        assert_eq!(
            parse(r#"{"capabilities":{"unvme":{"iova_first":4096}}}"#).expect("half").addresses(),
            Ok(None)
        );
        assert!(parse(r#"{"capabilities":{"unvme":{"iova_first":-1}}}"#).is_none());
    }
}
