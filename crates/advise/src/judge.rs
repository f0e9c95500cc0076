//! What was measured, judged: what a choice is worth, what follows for the rules, and whether the machine was
//! quiet enough for either.

use serde::Serialize;

use crate::campaign::Figures;
use crate::cases::{Alternative, Choice, ChoiceKind, Plan};
use crate::measure::{Completing, Sample};
use crate::order::rank;
use crate::relation::Relation;
use crate::rules::{Goal, PerCore};
use crate::statistics::{Ratio, SIGNIFICANCE, Spread, enough, mann_whitney};

/// Differences below this are none, however often they are found.
const NEGLIGIBLE: f64 = 0.01;
/// Standard deviations of a median absolute deviation, of figures that are spread normally.
const SIGMAS: f64 = 1.4826;
/// Standard deviation of repeated rates, of their median, beyond which a machine is not quiet.
const SPREAD_MAX: f64 = 0.20;
/// Share of its CPU that a polling thread has on a quiet machine.
const ON_CPU_MIN: f64 = 0.85;
/// Share of the rate of a device alone that it keeps next to others on a core that serves them without loss.
const WITHOUT_LOSS: f64 = 0.95;
/// The lower end of the 95 % interval of that share.
const LOSS_MAX: f64 = 0.85;
/// Share of the highest rate that the fewest queues reach.
const ENOUGH: f64 = 0.97;
/// The tail next to other devices that counts as no longer than that of a device alone.
const TAIL_MAX: f64 = 1.25;

/// What an alternative is worth compared with the first one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Worth {
    /// It is the first one.
    Base,
    /// The rate is this many times that of the first one, between these in 95 of 100 cases.
    Times {
        /// The ratio of the medians.
        ratio: f64,
        /// The ends of its 95 % interval.
        interval: Option<(f64, f64)>,
    },
    /// No difference was shown, or one below 1 %.
    None,
    /// Too few measurements to show any difference.
    TooFew,
}

/// An alternative, judged.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Judged {
    /// Commands in a second; of each device, where the choice is about devices.
    pub iops: Spread,
    /// 99th percentile of the latency at the low depth, in microseconds.
    pub p99_us: Option<Spread>,
    /// 99.99th percentile at the low depth.
    pub p9999_us: Option<Spread>,
    /// What it is worth.
    pub worth: Worth,
    /// The 95 % interval of its rate by that of the first one; `None` for the first one.
    pub interval: Option<(f64, f64)>,
}

/// Why nothing follows from a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Noise {
    /// What is wrong, with its figure.
    pub reason: String,
}

/// Judges the alternatives of a choice; `None` when one of them has no figures.
pub fn judge(plan: &Plan, figures: &[Figures], choice: &Choice) -> Option<Vec<Judged>> {
    let rates = |case: usize| -> Vec<f64> {
        let devices = match choice.kind.is_per_device() {
            true => plan.cases[case].devices() as f64,
            false => 1.0,
        };
        figures[case].iops().into_iter().map(|iops| iops / devices).collect()
    };
    let base = rates(choice.alternatives.first()?.case);
    let judged = |(at, own): (usize, &Alternative)| {
        let rates = rates(own.case);
        let low = &figures[own.low];
        Some(Judged {
            iops: Spread::of(&rates)?,
            p99_us: low.spread(|sample| sample.p99_us),
            p9999_us: low.spread(|sample| sample.p9999_us),
            worth: if at == 0 { Worth::Base } else { worth(&base, &rates) },
            interval: if at == 0 { None } else { Ratio::of(&base, &rates).and_then(|ratio| ratio.interval) },
        })
    };
    choice.alternatives.iter().enumerate().map(judged).collect()
}

fn worth(base: &[f64], other: &[f64]) -> Worth {
    let (Some(test), Some(ratio)) = (mann_whitney(base, other), Ratio::of(base, other)) else {
        return Worth::TooFew;
    };
    if test.cannot_tell() {
        return Worth::TooFew;
    }
    if test.p >= SIGNIFICANCE || (ratio.ratio - 1.0).abs() < NEGLIGIBLE {
        return Worth::None;
    }
    Worth::Times { ratio: ratio.ratio, interval: ratio.interval }
}

/// Why nothing follows from these figures: the machine was not quiet. `None` where it was. The cases that
/// decide are the first ones of all choices, at the depth for rates, and those of tables.
pub fn noise(plan: &Plan, figures: &[Figures]) -> Option<Noise> {
    let mut deciding: Vec<usize> =
        plan.choices.iter().flat_map(|choice| &choice.alternatives).map(|own| own.case).collect();
    deciding.extend(
        plan.tables
            .iter()
            .flat_map(|table| &table.rows)
            .flat_map(|(_, cells)| cells.iter().filter_map(|cell| cell.case)),
    );
    deciding.sort_unstable();
    deciding.dedup();
    let is_decided = !deciding.is_empty();
    let (enough, _) = enough();
    let measured = deciding.iter().map(|&case| figures[case].samples.len()).min().unwrap_or(0);
    if !plan.choices.is_empty() && measured < enough as usize {
        let reason =
            format!("{measured} measurements of a placement show no difference; expected {enough} or more");
        return Some(Noise { reason });
    }
    let mut spreads = Vec::new();
    for case in deciding {
        let own = &figures[case];
        // Threads that leave no CPU to the server of their device wait for it, and a quota stops others.
        if !plan.leaves_cpus(case) {
            continue;
        }
        let Some(on_cpu) = own.spread(|sample: &Sample| Some(sample.on_cpu)) else {
            return Some(Noise { reason: "a placement was not measured a single time".to_owned() });
        };
        if plan.cases[case].has_own_cpus() && on_cpu.median < ON_CPU_MIN {
            return Some(Noise {
                reason: format!(
                    "threads that poll had {:.0} % of their CPUs: other programs are busy on them",
                    on_cpu.median * 100.0
                ),
            });
        }
        let iops = own.spread(|sample| Some(sample.iops));
        spreads.extend(iops.map(|iops| SIGMAS * iops.mad / iops.median.max(1e-9)));
    }
    // Half of the cases: a single one that is spread, such as two threads on one CPU, is its own.
    let Some(middle) = Spread::of(&spreads).map(|spread| spread.median) else {
        let reason =
            "no placement leaves a CPU to the process that serves the device, or keeps within the quota"
                .to_owned();
        return is_decided.then_some(Noise { reason });
    };
    (middle > SPREAD_MAX).then(|| Noise {
        reason: format!(
            "measurements of one placement are spread by {:.0} % of their median (standard deviation), and {:.0} % \
             is the most that differences can be told from",
            middle * 100.0,
            SPREAD_MAX * 100.0
        ),
    })
}

/// What follows for the rules.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Findings {
    /// Devices on a core, with completion threads.
    pub per_core_apart: PerCore,
    /// Devices on a core, polled.
    pub per_core_polled: PerCore,
    /// The fewest queues of a device with 97 % of the highest rate, each polled.
    pub queues_polled: usize,
    /// The same with completion threads.
    pub queues_apart: usize,
    /// The relation of the completion thread with the highest rate; the first one by the rules where several
    /// do not differ from it.
    pub completing: Option<Relation>,
    /// The relation of completion threads where a device has several queues.
    pub completing_many: Option<Relation>,
    /// What a thread that polls is worth compared with one with the best completion thread.
    pub polling: Option<Worth>,
}

impl Findings {
    /// The guide's, where nothing was measured.
    pub fn of_guide(goal: Goal) -> Self {
        Self {
            per_core_apart: PerCore::of_guide(goal),
            per_core_polled: PerCore::of_guide(goal),
            queues_polled: 1,
            queues_apart: 1,
            completing: None,
            completing_many: None,
            polling: None,
        }
    }

    /// Those of a plan that was measured; what it does not tell is the guide's.
    pub fn of(plan: &Plan, figures: &[Figures], goal: Goal) -> Self {
        let mut findings = Self::of_guide(goal);
        let judged = |kind: ChoiceKind| {
            let choice = plan.choice(kind)?;
            Some((choice, judge(plan, figures, choice)?))
        };
        for (kind, per_core) in [
            (ChoiceKind::DevicesApart, &mut findings.per_core_apart),
            (ChoiceKind::DevicesPolled, &mut findings.per_core_polled),
        ] {
            if let Some((choice, judged)) = judged(kind) {
                let count = devices_without_loss(plan, choice, &judged, goal);
                *per_core = PerCore { submitting: count, completing: count, is_measured: true };
            }
        }
        if let Some((choice, judged)) = judged(ChoiceKind::Queues) {
            findings.queues_polled = plan.cases[fewest(plan, choice, &judged).case].layout.len();
        }
        if let Some((choice, judged)) = judged(ChoiceKind::Completing) {
            findings.take_completing(plan, choice, &judged, figures);
        }
        if let Some((choice, judged)) = judged(ChoiceKind::QueuesApart) {
            let best = fewest(plan, choice, &judged);
            findings.queues_apart = plan.cases[best.case].layout.len();
            findings.completing_many = best.relation;
        }
        findings
    }

    fn take_completing(&mut self, plan: &Plan, choice: &Choice, judged: &[Judged], figures: &[Figures]) {
        let is_apart =
            |case: usize| plan.cases[case].layout.iter().all(|placed| placed.complete != Completing::Polled);
        let is_valid = |case: usize| is_apart(case) && plan.leaves_cpus(case);
        let apart = choice.alternatives.iter().zip(judged).filter(|(own, _)| is_valid(own.case));
        let apart: Vec<_> = apart.collect();
        let by_rate = |a: &&(&_, &Judged), b: &&(&_, &Judged)| a.1.iops.median.total_cmp(&b.1.iops.median);
        let Some((best, _)) = apart.iter().max_by(by_rate) else { return };
        // Of those that do not differ from the best, the one that the rules would choose.
        let is_as_good = |own: &Alternative| {
            let (one, other) = (figures[best.case].iops(), figures[own.case].iops());
            matches!(worth(&one, &other), Worth::None)
        };
        let as_good = apart.iter().filter(|(own, _)| own.case == best.case || is_as_good(own));
        self.completing = as_good.filter_map(|(own, _)| own.relation).min_by_key(|&class| rank(class));
        self.polling = choice
            .alternatives
            .first()
            .map(|own| worth(&figures[best.case].iops(), &figures[own.case].iops()));
    }
}

/// The first alternative with nearly the highest rate: those with fewer queues come first. More queues than
/// those of the first one are taken only where they are shown to raise the rate.
fn fewest<'a>(plan: &Plan, choice: &'a Choice, judged: &[Judged]) -> &'a Alternative {
    let is_better = |own: &Judged| match own.worth {
        Worth::Base => true,
        Worth::Times { ratio, .. } => ratio > 1.0,
        Worth::None | Worth::TooFew => false,
    };
    let all = choice.alternatives.iter().zip(judged);
    let valid: Vec<_> = all.filter(|(own, judged)| plan.leaves_cpus(own.case) && is_better(judged)).collect();
    let most = valid.iter().map(|(_, own)| own.iops.median).fold(0.0, f64::max);
    let enough = valid.iter().find(|(_, own)| own.iops.median >= most * ENOUGH);
    enough.map_or(&choice.alternatives[0], |(own, _)| own)
}

/// The most devices on a core of which none loses: in rate, or in the tail of its latency.
fn devices_without_loss(plan: &Plan, choice: &Choice, judged: &[Judged], goal: Goal) -> usize {
    let Some(alone) = judged.first() else { return 1 };
    // A rate whose interval is wide may be a loss as well.
    let is_certain = |own: &Judged| own.interval.is_none_or(|(low, _)| low >= LOSS_MAX);
    let keeps = |own: &Judged| match goal {
        Goal::Throughput => own.iops.median >= alone.iops.median * WITHOUT_LOSS && is_certain(own),
        Goal::Latency => match (own.p9999_us, alone.p9999_us) {
            (Some(own), Some(alone)) => own.median <= alone.median * TAIL_MAX,
            _ => false,
        },
    };
    let kept = judged.iter().take_while(|own| keeps(own)).count().max(1);
    plan.cases[choice.alternatives[kept - 1].case].devices()
}
