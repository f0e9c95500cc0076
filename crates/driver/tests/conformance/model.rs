//! Random numbers for tests, from a seed that is printed.

use unvme_bus::random;

/// SplitMix64 (Steele, Lea, Flood 2014): small, and the same everywhere.
pub(crate) struct Random(u64);

impl Random {
    /// Seeded by `UNVME_SEED`, or by the clock. The seed is printed and appears when a test fails.
    pub(crate) fn seeded() -> Self {
        let from_clock = || {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            now.map_or(1, |elapsed| elapsed.as_nanos() as u64)
        };
        let seed = match std::env::var("UNVME_SEED") {
            Ok(text) => text.parse().expect("UNVME_SEED is a number"),
            Err(_) => from_clock(),
        };
        #[allow(clippy::print_stderr)] // What repeats a failure belongs with it.
        {
            eprintln!("UNVME_SEED={seed}");
        }
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(random::STEP);
        random::mix(self.0)
    }

    /// 0 to `end - 1`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).take(count).collect()
    }
}
