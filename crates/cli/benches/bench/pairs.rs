//! Measuring two things against each other on a machine that is never quite still.

use std::time::{Duration, Instant};

use anyhow::Result;

/// How much work the rows are worth.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Duration of one side of a pair.
    pub(crate) side: Duration,
    /// Pairs; one more comes first and is not counted.
    pub(crate) pairs: usize,
    /// Capacity of the device.
    pub(crate) media_bytes: u64,
    /// The figures will mean nothing.
    pub(crate) smoke: bool,
}

impl Effort {
    pub(crate) fn full() -> Self {
        Self { side: Duration::from_millis(200), pairs: 9, media_bytes: 1 << 30, smoke: false }
    }

    pub(crate) fn smoke() -> Self {
        Self { side: Duration::from_millis(4), pairs: 5, media_bytes: 64 << 20, smoke: true }
    }
}

/// What came of interleaved measurements. Each figure is a median.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pairs {
    /// First side divided by the second.
    pub(crate) ratio: f64,
    /// Operations per second of the first side.
    pub(crate) first: f64,
    /// Operations per second of the second side.
    pub(crate) second: f64,
}

impl Pairs {
    /// Both sides' rates, for a note.
    pub(crate) fn rates(&self) -> String {
        format!("{:.3} / {:.3} M/s, median of pairs A B A B", self.first / 1e6, self.second / 1e6)
    }
}

/// Measures A B A B: each side returns its operations per second.
pub(crate) fn interleave(
    effort: &Effort,
    mut first: impl FnMut() -> Result<f64>,
    mut second: impl FnMut() -> Result<f64>,
) -> Result<Pairs> {
    // Caches, page tables and the processor's clock settle.
    first()?;
    second()?;
    let mut rates = Vec::new();
    for _ in 0..effort.pairs {
        rates.push((first()?, second()?));
    }
    Ok(Pairs {
        ratio: median(rates.iter().map(|(a, b)| a / b)),
        first: median(rates.iter().map(|(a, _)| *a)),
        second: median(rates.iter().map(|(_, b)| *b)),
    })
}

/// The middle value; of an even number, the upper of the two.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Operations per second of `some`, which returns how many it has done: enough that a look at the clock does
/// not show.
pub(crate) fn rate(side: Duration, mut some: impl FnMut() -> Result<u64>) -> Result<f64> {
    let start = Instant::now();
    let mut done = 0;
    loop {
        done += some()?;
        let elapsed = start.elapsed();
        if elapsed >= side {
            return Ok(done as f64 / elapsed.as_secs_f64());
        }
    }
}
