//! What write amplification has to be, where that is known in closed form.
//!
//! For single pages overwritten uniformly at random, with units of many pages and FIFO or greedy reclaim, the
//! valid fraction d of the victim follows from the fraction r of the physical pages that are in use:
//! `d = exp(-(1 - d) / r)` (Desnoyers, and Luojie and Kurkoski; Bux and Iliadis for small units, which do
//! better under greedy). Write amplification is `1 / (1 - d)`. All of it is in ratios; overprovisioning is
//! physical / logical - 1.

/// Iterations of the fixed point. It contracts by `d / r` each time, which is near 1 for very little
/// overprovisioning.
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

/// Write amplification of uniform random overwrites of several parts of the data, all mixed, when the unit
/// that was filled first is always reclaimed first. Each part is its pages and its fraction of the writes,
/// both above 0; all of them together are less than the `physical` pages.
///
/// While the flash is gone through once, hosts write W pages. A page of a part of n pages that gets a
/// fraction f of them is still valid at the end with probability `exp(-f W / n)`, and is written anew then.
/// So the part takes `f W / (1 - exp(-f W / n))` of the physical pages; W is where all of these together are
/// as many as there are (Desnoyers, for one part the formula above).
pub fn write_amplification_fifo(parts: &[(f64, f64)], physical: f64) -> f64 {
    let taken = |written: f64| -> f64 {
        let of = |&(pages, share): &(f64, f64)| -share * written / (-share * written / pages).exp_m1();
        parts.iter().map(of).sum()
    };
    // It grows with what is written, from the pages in use on, and what is written is a part of it.
    let (mut low, mut high) = (physical * 1e-12, physical);
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if taken(middle) < physical {
            low = middle;
        } else {
            high = middle;
        }
    }
    physical / high
}

/// Fraction of the logical pages that are in use when a fraction `trims`, below 1/2, of all requests
/// deallocate a page instead of writing it, uniformly at random.
pub fn in_use_with_trims(trims: f64) -> f64 {
    (1.0 - 2.0 * trims) / (1.0 - trims)
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
    fn mixed_parts_of_one_temperature_are_one_and_a_cold_part_costs_more() {
        for overprovisioning in [0.07, 0.28, 1.0] {
            let physical = 1000.0 * (1.0 + overprovisioning);
            let one = write_amplification(overprovisioning);
            for parts in [&[(1000.0, 1.0)][..], &[(200.0, 0.2), (800.0, 0.8)]] {
                let found = write_amplification_fifo(parts, physical);
                assert!((found / one - 1.0).abs() < 1e-6, "{overprovisioning}: {found}, not {one}");
            }
            let mixed = write_amplification_fifo(&[(100.0, 0.9), (900.0, 0.1)], physical);
            assert!(mixed > 1.1 * one, "{overprovisioning}: {mixed} and {one}");
        }
    }

    /// The same by way of Lambert's W, the solution of `w * exp(w) = x`: `d = -r * W0(-exp(-1 / r) / r)`.
    fn write_amplification_lambert(overprovisioning: f64) -> f64 {
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

    #[test]
    fn the_fixed_point_and_lamberts_function_agree() {
        for percent in [1, 2, 5, 7, 10, 18, 28, 50, 100, 300, 1000] {
            let overprovisioning = f64::from(percent) / 100.0;
            let (a, b) =
                (write_amplification(overprovisioning), write_amplification_lambert(overprovisioning));
            assert!((a / b - 1.0).abs() < 1e-6, "{percent} %: {a} and {b}");
        }
    }
}
