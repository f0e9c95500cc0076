//! What write amplification has to be, where that is known in closed form.
//!
//! For single pages overwritten uniformly at random, with units of many pages and FIFO or greedy reclaim, the valid fraction
//! d of the victim follows from the fraction r of the physical pages that are in use: `d = exp(-(1 - d) / r)` (Desnoyers, and
//! Luojie and Kurkoski; Bux and Iliadis for small units, which do better under greedy). Write amplification is `1 / (1 - d)`.
//! All of it is in ratios; overprovisioning is physical / logical - 1.

/// Iterations of the fixed point. It contracts by `d / r` each time, which is near 1 for very little overprovisioning.
const ITERATIONS_MAX: u32 = 1_000_000;

/// Valid fraction of a victim when a fraction `used` of the physical pages, above 0 and below 1, is in use.
pub fn victim_valid(used: f64) -> f64 {
    let mut valid = 0.5;
    for _ in 0..ITERATIONS_MAX {
        let next = (-(1.0 - valid) / used).exp();
        if (next - valid).abs() < 1e-15 {
            return next;
        }
        valid = next;
    }
    valid
}

/// Write amplification of uniform random overwrites when a fraction `used` of the physical pages is in use.
pub fn write_amplification_used(used: f64) -> f64 {
    1.0 / (1.0 - victim_valid(used))
}

/// Write amplification of uniform random overwrites of all logical pages with this overprovisioning, above 0.
pub fn write_amplification(overprovisioning: f64) -> f64 {
    write_amplification_used(1.0 / (1.0 + overprovisioning))
}

/// The same by way of Lambert's W, the solution of `w * exp(w) = x`: `d = -r * W0(-exp(-1 / r) / r)`.
pub fn write_amplification_lambert(overprovisioning: f64) -> f64 {
    let inverse = 1.0 + overprovisioning;
    1.0 / (1.0 + lambert_w0(-inverse * (-inverse).exp()) / inverse)
}

/// Principal branch of Lambert's W from -1/e on, by Halley's method.
fn lambert_w0(x: f64) -> f64 {
    // Near the branch point, where the method alone would be slow: the series in p = sqrt(2 (e x + 1)).
    let p = (2.0 * (std::f64::consts::E * x + 1.0)).max(0.0).sqrt();
    let mut w = if x < 1.0 { -1.0 + p - p * p / 3.0 } else { x.ln() };
    for _ in 0..100 {
        let e = w.exp();
        let f = w * e - x;
        let step = f / (e * (w + 1.0) - (w + 2.0) * f / (2.0 * w + 2.0));
        if !step.is_finite() || step.abs() < 1e-16 {
            break;
        }
        w -= step;
    }
    w
}

/// Fraction of the logical pages that are in use when a fraction `trims`, below 1/2, of all requests deallocate a page
/// instead of writing it, uniformly at random.
pub fn in_use_with_trims(trims: f64) -> f64 {
    (1.0 - 2.0 * trims) / (1.0 - trims)
}

/// Write amplification of uniform random overwrites when a fraction `trims` of all requests deallocate a page instead.
pub fn write_amplification_with_trims(overprovisioning: f64, trims: f64) -> f64 {
    write_amplification_used(in_use_with_trims(trims) / (1.0 + overprovisioning))
}

/// A part of the data that is overwritten more often than the rest, each uniformly at random.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hot {
    /// Fraction of the logical pages, above 0 and below 1.
    pub share: f64,
    /// Fraction of the writes.
    pub traffic: f64,
}

/// Least write amplification of hot and cold data kept apart: the overprovisioning is split between them as well as it can
/// be. That is what placement can reach when the choice of victims knows age.
pub fn optimum_split(overprovisioning: f64, hot: Hot) -> f64 {
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
pub struct Cache {
    /// Fraction of the logical pages that are buckets of small objects.
    pub small_share: f64,
    /// Fraction of the writes that go to them.
    pub small_traffic: f64,
}

/// Least write amplification of such a cache when small and large objects are kept apart: units of the ring die as a whole,
/// so that buckets have all of the overprovisioning for themselves. A lower bound, because a unit of the ring is sometimes
/// reclaimed a little before it has died.
pub fn cache_bound(overprovisioning: f64, cache: Cache) -> f64 {
    let used = cache.small_share / (cache.small_share + overprovisioning);
    1.0 + cache.small_traffic * (write_amplification_used(used) - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_formula_gives_the_published_values() {
        let table = [
            (0.05, 10.67),
            (0.07, 7.82),
            (0.10, 5.68),
            (0.14, 4.25),
            (0.15, 4.02),
            (0.18, 3.46),
            (0.20, 3.19),
            (0.25, 2.69),
            (0.28, 2.48),
            (0.30, 2.36),
            (0.40, 1.96),
            (0.50, 1.72),
            (0.75, 1.40),
            (1.00, 1.26),
        ];
        for (overprovisioning, expected) in table {
            let found = write_amplification(overprovisioning);
            assert!((found - expected).abs() < 0.006, "{overprovisioning}: {found}, not {expected}");
        }
    }

    #[test]
    fn the_fixed_point_and_lamberts_function_agree() {
        for percent in [1, 2, 5, 7, 10, 18, 28, 50, 100, 300, 1000] {
            let overprovisioning = f64::from(percent) / 100.0;
            let (a, b) =
                (write_amplification(overprovisioning), write_amplification_lambert(overprovisioning));
            assert!((a / b - 1.0).abs() < 1e-6, "{percent} %: {a} and {b}");
        }
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
}
