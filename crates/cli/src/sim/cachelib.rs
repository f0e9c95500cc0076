//! A cache for objects of all sizes, as a device sees it: CacheLib's two engines for flash.
//!
//! Small objects live in buckets of a page, found by hashing: each insertion rewrites one page somewhere.
//! Large objects are appended to regions that are written in order and reused in the order in which they were
//! written: a ring. The rest of the device is never written.
//!
//! Popular objects hash to any bucket, some buckets get several of them and some none at all. That is why the
//! traffic to buckets is milder than to objects, and why a part of them stays unwritten when there are few
//! objects per bucket.

use super::chance::{Alias, Mixture};
use super::op::Op;
use crate::perf::Random;

/// The stream of each engine.
const SMALL: u16 = 0;
const LARGE: u16 = 1;

/// What the cache is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CacheLib {
    /// Share of the cache's pages that are buckets of small objects.
    pub(super) small_space: f64,
    /// Share of the written pages that are such buckets.
    pub(super) small_traffic: f64,
    /// Exponent of the objects' popularity; with 0 all buckets are alike.
    pub(super) theta: f64,
    /// Objects that hash to a bucket on average.
    pub(super) objects: u32,
    /// Pages that the engine of large objects writes at a time.
    pub(super) burst: u32,
}

impl CacheLib {
    /// Pages of buckets in a cache of so many pages: at least one, as there is one of the ring.
    pub(super) fn buckets(&self, cache_pages: u32) -> u32 {
        ((f64::from(cache_pages) * self.small_space).round() as u32).clamp(1, cache_pages - 1)
    }
}

#[derive(Debug)]
pub(super) struct Traffic {
    buckets: Alias,
    small_pages: u32,
    cache_pages: u32,
    /// Next page of the ring.
    next: u32,
    burst: u32,
    mixture: Mixture,
    random: Random,
}

impl Traffic {
    /// A cache on the first `cache_pages` of the device, at least two.
    pub(super) fn new(recipe: CacheLib, cache_pages: u32, seed: u64) -> Self {
        let small_pages = recipe.buckets(cache_pages);
        let mut random = Random::new(seed, 0);
        let streams = [(recipe.small_traffic, 1), (1.0 - recipe.small_traffic, recipe.burst)];
        Self {
            buckets: match recipe.theta {
                0.0 => Alias::zipf(small_pages, 0.0, &mut random),
                theta => Alias::hashed_zipf(small_pages, recipe.objects, theta, &mut random),
            },
            small_pages,
            cache_pages,
            next: small_pages,
            burst: recipe.burst,
            mixture: Mixture::new(&streams),
            random,
        }
    }

    pub(super) fn stream_of(&self, lpn: u32) -> u16 {
        if lpn < self.small_pages { SMALL } else { LARGE }
    }

    pub(super) fn fill(&mut self, out: &mut Vec<Op>, ops: usize) {
        while out.len() < ops {
            if self.mixture.draw(&mut self.random) == usize::from(SMALL) {
                out.push(Op::write(self.buckets.draw(&mut self.random), SMALL));
                continue;
            }
            for _ in 0..self.burst {
                out.push(Op::write(self.next, LARGE));
                self.next = if self.next + 1 == self.cache_pages { self.small_pages } else { self.next + 1 };
            }
        }
    }
}
