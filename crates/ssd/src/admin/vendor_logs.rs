//! Log pages of Samsung's KV SSDs: C0h, CAh and D0h.
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use unvme_bus::lock;
use unvme_spec::samsung_kv::{KEY_BYTES_MAX, KEY_BYTES_MIN, OFFSET_ALIGNMENT, VALUE_BYTES_MAX};
use unvme_spec::samsung_log::{ExtendedSmartLog, IteratorLog, Limits, WafLog, lid};
use unvme_spec::{Nsid, Status};

use super::logs::bytes_of;
use crate::Ssd;
use crate::kv::KvStats;

/// Their identifiers.
pub(super) const PAGES: [u8; 3] = [lid::EXTENDED_SMART, lid::WAF, lid::ITERATORS];

const VALUE_LIMITS: Limits = Limits { max: VALUE_BYTES_MAX, min: 0, alignment: 1 };

impl Ssd {
    /// True when the device has these pages: with pairs, and the vendor's commands for them.
    pub(super) fn has_vendor_logs(&self) -> bool {
        self.holds_pairs() && self.config.vendor_kv
    }

    /// The page of a device with pairs. Counters are those of all namespaces over the life of the device; the
    /// write amplification is since this start. Iterators are those of `nsid`, or of the first Key Value
    /// namespace.
    pub(super) fn vendor_log(&self, page: u8, nsid: Nsid) -> Result<Vec<u8>, Status> {
        match page {
            lid::EXTENDED_SMART => Ok(bytes_of(&self.extended_smart_log())),
            lid::WAF => Ok(bytes_of(&WafLog { waf_tenths: self.waf_tenths(), ..WafLog::default() })),
            _ => self.iterator_log(nsid).map(|log| bytes_of(&log)),
        }
    }

    fn extended_smart_log(&self) -> ExtendedSmartLog {
        let kv = lock(&self.subsystem.smart).kv(&self.subsystem.counted().kv);
        ExtendedSmartLog {
            retrieve: kv.retrieve.counts(),
            store: kv.store.counts(),
            append: kv.append.counts(),
            delete: kv.delete.counts(),
            retrieve_sizes: kv.retrieve.sizes(),
            store_sizes: kv.store.sizes(),
            append_sizes: kv.append.sizes(),
            key: Limits { max: KEY_BYTES_MAX as u32, min: KEY_BYTES_MIN as u32, alignment: 1 },
            value: VALUE_LIMITS,
            retrieve_limits: Limits { alignment: OFFSET_ALIGNMENT, ..VALUE_LIMITS },
            store_limits: VALUE_LIMITS,
            append_limits: VALUE_LIMITS,
            waf_tenths: self.waf_tenths(),
            ..ExtendedSmartLog::default()
        }
    }

    /// Bytes written to the media for each byte the hosts have stored, in tenths; 10 before there are any.
    fn waf_tenths(&self) -> u32 {
        let mut sum = KvStats::default();
        for pairs in self.namespaces.get().stores() {
            let stats = pairs.store.stats();
            sum.host_bytes_written = sum.host_bytes_written.saturating_add(stats.host_bytes_written);
            sum.media_bytes_written = sum.media_bytes_written.saturating_add(stats.media_bytes_written);
        }
        let tenths = (u128::from(sum.media_bytes_written) * 10).checked_div(sum.host_bytes_written.into());
        tenths.map_or(10, |tenths| u32::try_from(tenths).unwrap_or(u32::MAX))
    }

    fn iterator_log(&self, nsid: Nsid) -> Result<IteratorLog, Status> {
        let table = self.namespaces.get();
        let nsid = match nsid {
            Nsid::NONE | Nsid::ALL => table.first_key_value(),
            nsid => Some(nsid),
        };
        match nsid {
            Some(nsid) => Ok(table.pairs(nsid.0)?.iterators.log(self.cntlid)),
            None => Ok(IteratorLog::default()),
        }
    }
}
