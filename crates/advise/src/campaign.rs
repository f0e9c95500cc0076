//! All cases of a plan, measured in turns: what drifts with time drifts for all of them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use unvme::Result;

use crate::cases::{Case, Plan};
use crate::measure::{Options, Sample, Subject, measure};
use crate::statistics::Spread;

/// How a plan is measured.
#[derive(Clone, Copy, Debug)]
pub struct Campaign<'a> {
    /// Measurements of each case.
    pub repeat: u32,
    /// Time of each.
    pub time: Duration,
    /// Time before each that is not measured.
    pub warmup: Duration,
    /// Ends the campaign when it becomes true.
    pub stop: Option<&'a AtomicBool>,
}

/// What the measurements of a case found.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Figures {
    /// A sample of each measurement, in the order measured.
    pub samples: Vec<Sample>,
}

impl Figures {
    /// Rates of all devices together.
    pub fn iops(&self) -> Vec<f64> {
        self.samples.iter().map(|sample| sample.iops).collect()
    }

    /// The spread of a figure over the samples that have it; `None` where none has.
    pub fn spread(&self, of: impl Fn(&Sample) -> Option<f64>) -> Option<Spread> {
        Spread::of(&self.samples.iter().filter_map(of).collect::<Vec<_>>())
    }
}

impl Campaign<'_> {
    /// Measures every case `repeat` times, all once and then all again, every second time backwards. Calls
    /// `tick` before each measurement with the number of those that are over, and of all. A campaign that was
    /// stopped has fewer samples, of the last cases one less than of the first.
    ///
    /// # Errors
    /// Those of [`measure`]; the first one ends it.
    pub fn run(
        &self,
        plan: &Plan,
        subjects: &[Subject],
        tick: &mut dyn FnMut(usize, usize, &Case),
    ) -> Result<Vec<Figures>> {
        let mut figures = vec![Figures::default(); plan.cases.len()];
        let all = plan.cases.len() * self.repeat as usize;
        let mut over = 0;
        for round in 0..self.repeat {
            let mut order: Vec<usize> = (0..plan.cases.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for at in order {
                let case = &plan.cases[at];
                tick(over, all, case);
                let options = Options {
                    depth: case.depth,
                    warmup: self.warmup,
                    time: self.time,
                    seed: u64::from(round) << 40,
                    stop: self.stop,
                };
                let sample = measure(subjects, &case.layout, options)?;
                if self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                    return Ok(figures);
                }
                figures[at].samples.push(sample);
                over += 1;
            }
        }
        Ok(figures)
    }
}
