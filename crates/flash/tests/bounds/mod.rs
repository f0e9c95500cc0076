//! What write amplification can be at best when requests deallocate, and when placement keeps data apart.

use unvme_flash::ftl::theory::{in_use_with_trims, write_amplification_used};

/// Write amplification of uniform random overwrites when a fraction `trims` of all requests deallocate a page
/// instead.
pub(crate) fn write_amplification_with_trims(overprovisioning: f64, trims: f64) -> f64 {
    write_amplification_used(in_use_with_trims(trims) / (1.0 + overprovisioning))
}

/// A part of the data that is overwritten more often than the rest, each uniformly at random.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Hot {
    /// Fraction of the logical pages, above 0 and below 1.
    pub(crate) share: f64,
    /// Fraction of the writes.
    pub(crate) traffic: f64,
}

/// Least write amplification of hot and cold data kept apart: the overprovisioning is split between them as
/// well as it can be. That is what placement can reach when the choice of victims knows age.
pub(crate) fn optimum_split(overprovisioning: f64, hot: Hot) -> f64 {
    let part = |share: f64, spare: f64| write_amplification_used(share / (share + spare));
    let amplification = |spare: f64| {
        hot.traffic * part(hot.share, spare)
            + (1.0 - hot.traffic) * part(1.0 - hot.share, overprovisioning - spare)
    };
    // Convex in the split: thirds are cut off until what is left is small.
    let (mut low, mut high) = (overprovisioning * 1e-3, overprovisioning * (1.0 - 1e-3));
    while high - low > overprovisioning * 1e-5 {
        let third = (high - low) / 3.0;
        if amplification(low + third) < amplification(high - third) {
            high -= third;
        } else {
            low += third;
        }
    }
    amplification((low + high) / 2.0)
}

/// A cache of small objects in buckets that are overwritten at random, beside a ring of large ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cache {
    /// Fraction of the logical pages that are buckets of small objects.
    pub(crate) small_share: f64,
    /// Fraction of the writes that go to them.
    pub(crate) small_traffic: f64,
}

/// Least write amplification of such a cache when small and large objects are kept apart: units of the ring
/// die as a whole, so that buckets have all of the overprovisioning for themselves. A lower bound, because a
/// unit of the ring is sometimes reclaimed a little before it has died.
pub(crate) fn cache_bound(overprovisioning: f64, cache: Cache) -> f64 {
    let used = cache.small_share / (cache.small_share + overprovisioning);
    1.0 + cache.small_traffic * (write_amplification_used(used) - 1.0)
}

#[test]
fn extensions_give_the_published_values() {
    let close =
        |found: f64, expected: f64| assert!((found - expected).abs() < 0.006, "{found}, not {expected}");
    close(write_amplification_with_trims(0.15, 0.0), 4.02);
    close(write_amplification_with_trims(0.15, 0.1), 2.40);
    close(write_amplification_with_trims(0.15, 0.2), 1.66);
    close(write_amplification_with_trims(0.15, 0.3), 1.25);
    let hot = Hot { share: 0.1, traffic: 0.9 };
    close(optimum_split(0.15, hot), 1.93);
    close(optimum_split(0.28, hot), 1.412);
    let cache = |small_share| Cache { small_share, small_traffic: 0.8 };
    close(cache_bound(0.07, cache(0.04)), 1.069);
    close(cache_bound(0.18, cache(0.04)), 1.003);
    close(cache_bound(0.18, cache(0.20)), 1.243);
    close(cache_bound(0.18, cache(0.40)), 1.658);
}
