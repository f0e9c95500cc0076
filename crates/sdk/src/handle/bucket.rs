//! A bucket of tokens: what a handle with a limit takes its requests from.

use super::policy::Limit;

const SECOND: u128 = 1_000_000_000;

/// A bucket. What is in it is counted in billionths, so that a rate in a second and a time in nanoseconds
/// make a whole number, and nothing is lost however often it is looked at.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    rate: i128,
    capacity: i128,
    level: i128,
}

impl Bucket {
    fn new(rate: u64, burst_ns: u64, least: u64) -> Self {
        let capacity = (u128::from(rate) * u128::from(burst_ns)).max(u128::from(least) * SECOND) as i128;
        Self { rate: rate.into(), capacity, level: capacity }
    }

    fn fill(&mut self, ns: u64) {
        self.level = (self.level + self.rate * i128::from(ns)).min(self.capacity);
    }

    /// How long until `tokens` can be taken. More than it holds are taken from a full one, and missing
    /// afterwards.
    fn wait(&self, tokens: u64) -> u64 {
        let missing = (i128::from(tokens) * SECOND as i128).min(self.capacity) - self.level;
        if missing <= 0 { 0 } else { ((missing + self.rate - 1) / self.rate) as u64 }
    }

    fn take(&mut self, tokens: u64) {
        self.level -= i128::from(tokens) * SECOND as i128;
    }
}

/// The buckets of a limit, at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buckets {
    iops: Option<Bucket>,
    bytes: Option<Bucket>,
    at_ns: u64,
}

impl Buckets {
    fn new(limit: &Limit, now_ns: u64) -> Self {
        let burst = limit.burst.as_nanos() as u64;
        let bucket = |rate: Option<u64>, least| rate.map(|rate| Bucket::new(rate, burst, least));
        Self { iops: bucket(limit.iops, 1), bytes: bucket(limit.bytes, 512), at_ns: now_ns }
    }

    /// The buckets of a limit that takes the place of another one: what was in them, or was missing, is so
    /// still. A limit would be none if it were enough to set it again.
    pub(super) fn after(before: Option<Self>, limit: &Limit, now_ns: u64) -> Self {
        let mut new = Self::new(limit, now_ns);
        if let Some(mut before) = before {
            before.wait(0, now_ns);
            for (new, before) in [(&mut new.iops, before.iops), (&mut new.bytes, before.bytes)] {
                if let (Some(new), Some(before)) = (new, before) {
                    new.level = before.level.min(new.capacity);
                }
            }
        }
        new
    }

    /// Nanoseconds until a request of so many bytes may go; 0 for now.
    pub(super) fn wait(&mut self, bytes: u64, now_ns: u64) -> u64 {
        let passed = now_ns.saturating_sub(self.at_ns);
        self.at_ns = self.at_ns.max(now_ns);
        self.iops.iter_mut().chain(&mut self.bytes).for_each(|bucket| bucket.fill(passed));
        let iops = self.iops.map_or(0, |bucket| bucket.wait(1));
        iops.max(self.bytes.map_or(0, |bucket| bucket.wait(bytes)))
    }

    pub(super) fn take(&mut self, bytes: u64) {
        self.iops.iter_mut().for_each(|bucket| bucket.take(1));
        self.bytes.iter_mut().for_each(|bucket| bucket.take(bytes));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Takes whatever may be taken, looking every `step` nanoseconds; returns how many in `ns`.
    fn taken(limit: &Limit, bytes: u64, ns: u64, step: u64) -> u64 {
        let mut buckets = Buckets::new(limit, 0);
        let mut count = 0;
        for now in (0..=ns).step_by(step as usize) {
            while buckets.wait(bytes, now) == 0 {
                buckets.take(bytes);
                count += 1;
            }
        }
        count
    }

    #[test]
    fn what_is_taken_is_the_burst_and_the_rate_to_the_request_however_often_it_is_looked_at() {
        let limit = Limit { iops: Some(333), bytes: None, burst: Duration::from_millis(30) };
        // 9.99 at once, so 9, and 333 in each second.
        for step in [1_000, 7_777, 1_000_000] {
            let count = taken(&limit, 4096, 1_000_000_000, step);
            assert!((341..=342).contains(&count), "{count} with {step}");
        }
        let limit = Limit { iops: None, bytes: Some(1 << 20), burst: Duration::from_millis(1) };
        // A request is more than the bucket holds: it is taken from a full one, and paid for afterwards.
        let count = taken(&limit, 128 << 10, 10_000_000_000, 10_000);
        assert!((80..=81).contains(&count), "{count}");
    }

    #[test]
    fn the_time_that_is_told_is_the_first_at_which_it_may_go() {
        let limit = Limit { iops: Some(7), bytes: Some(10_000), burst: Duration::from_nanos(1) };
        let mut buckets = Buckets::new(&limit, 0);
        let mut now = 0;
        for _ in 0..1000 {
            let wait = buckets.wait(900, now);
            if wait > 1 {
                assert_ne!(buckets.wait(900, now + wait - 1), 0);
            }
            now += wait;
            assert_eq!(buckets.wait(900, now), 0);
            buckets.take(900);
        }
        // 7 a second, whatever the bytes allow.
        assert!((142_700_000_000..142_800_000_000).contains(&now), "{now}");
    }
}
