//! Features that the I/O path looks at, without a lock.
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use unvme_spec::feature::{
    Arbitration, InterruptCoalescing, InterruptVectorConfiguration, VolatileWriteCache, fid,
};

use super::{BURST_UNLIMITED, Features};

/// Unit of the coalescing time.
const COALESCING_UNIT_NS: u64 = 100_000;

/// The features the I/O path needs, unpacked.
pub(crate) struct HotFeatures {
    write_through: AtomicBool,
    arbitration_burst: AtomicU32,
    /// Arbitration as it was set: its weights.
    arbitration: AtomicU32,
    /// Completions to collect in bits 15:0 and how long, in units of 100 us, in bits 31:16; 0 when interrupts
    /// are not coalesced.
    coalescing: AtomicU32,
    /// A bit per interrupt vector that is not coalesced.
    immediate: [AtomicU64; 2],
}

impl HotFeatures {
    pub(crate) fn new(features: &Features) -> Self {
        let cache = VolatileWriteCache::from_bits(features.value(fid::VOLATILE_WRITE_CACHE, 0));
        let arbitration = Arbitration::from_bits(features.value(fid::ARBITRATION, 0));
        let burst = match arbitration.burst() {
            BURST_UNLIMITED => u32::MAX,
            burst => 1 << burst,
        };
        let coalescing = InterruptCoalescing::from_bits(features.value(fid::INTERRUPT_COALESCING, 0));
        let (threshold, time) = (u32::from(coalescing.threshold_z()) + 1, u32::from(coalescing.time()));
        // A threshold of one entry, and a time of zero, both mean: at once.
        let coalescing = if threshold > 1 && time > 0 { threshold | time << 16 } else { 0 };
        let mut immediate = [0u64; 2];
        for (&(_, vector), &value) in features
            .current
            .range((fid::INTERRUPT_VECTOR_CONFIGURATION, 0)..=(fid::INTERRUPT_VECTOR_CONFIGURATION, u32::MAX))
        {
            let disabled = InterruptVectorConfiguration::from_bits(value).coalescing_disable();
            if let Some(word) = immediate.get_mut(vector as usize / 64) {
                *word |= u64::from(disabled) << (vector % 64);
            }
        }
        Self {
            write_through: AtomicBool::new(!cache.enabled()),
            arbitration_burst: AtomicU32::new(burst),
            arbitration: AtomicU32::new(arbitration.into_bits()),
            coalescing: AtomicU32::new(coalescing),
            immediate: immediate.map(AtomicU64::new),
        }
    }

    /// Takes over the values of `new`. An I/O queue may see some of them a moment before the others.
    pub(crate) fn replace(&self, new: &Self) {
        self.write_through.store(new.write_through.load(Ordering::Relaxed), Ordering::Relaxed);
        self.arbitration_burst.store(new.arbitration_burst.load(Ordering::Relaxed), Ordering::Relaxed);
        self.arbitration.store(new.arbitration.load(Ordering::Relaxed), Ordering::Relaxed);
        self.coalescing.store(new.coalescing.load(Ordering::Relaxed), Ordering::Relaxed);
        for (word, new) in self.immediate.iter().zip(&new.immediate) {
            word.store(new.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// True when the volatile write cache is disabled: a write is on the media before it completes.
    #[inline]
    pub(crate) fn is_write_through(&self) -> bool {
        self.write_through.load(Ordering::Relaxed)
    }

    /// Most commands taken from one submission queue in a turn; a fused pair is taken whole.
    #[inline]
    pub(crate) fn arbitration_burst(&self) -> u32 {
        self.arbitration_burst.load(Ordering::Relaxed)
    }

    /// Most commands taken from queues of high, medium and low priority in a round of weighted round robin.
    pub(crate) fn weights(&self) -> [u32; 3] {
        let set = Arbitration::from_bits(self.arbitration.load(Ordering::Relaxed));
        [set.high_weight_z(), set.medium_weight_z(), set.low_weight_z()]
            .map(|weight_z| u32::from(weight_z) + 1)
    }

    /// True when interrupts are coalesced on any vector.
    #[inline]
    pub(crate) fn is_coalescing(&self) -> bool {
        self.coalescing.load(Ordering::Relaxed) != 0
    }

    /// Completions to collect before an interrupt on `vector`, and for how many nanoseconds at most; `None`
    /// when interrupts on it are not coalesced.
    pub(crate) fn coalescing_of(&self, vector: u16) -> Option<(u32, u64)> {
        let packed = self.coalescing.load(Ordering::Relaxed);
        let word = self.immediate.get(usize::from(vector) / 64)?;
        let immediate = word.load(Ordering::Relaxed) & 1 << (vector % 64) != 0;
        let (threshold, time) = (packed & 0xffff, packed >> 16);
        (packed != 0 && !immediate).then(|| (threshold, u64::from(time) * COALESCING_UNIT_NS))
    }
}
