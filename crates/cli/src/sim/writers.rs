//! Several writers on a device at once, each with a law, a part of the pages, a share of the writes and a
//! reclaim unit handle.
//!
//! Writers do not overlap. Hot and cold data is two of them: a share of the pages that gets another share of
//! the writes, and the rest, each uniformly at random.

use std::str::FromStr;

use anyhow::Result;
use unvme::registry::HANDLES_MAX;

use super::chance::Mixture;
use super::op::Op;
use super::share::{Share, Theta, percent};
use super::simple::{Order, Pattern};
use crate::count::count;
use crate::exit::usage;
use crate::numbers;
use crate::perf::Random;

/// Most pages that a writer writes before it may be another's turn.
const BURST_MAX: u32 = 1 << 20;
const EXPECTED: &str = "expected uniform, zipf=THETA, sequential, random-map or hotcold=DATA/WRITES";

/// What is typed for `--workload`: a law, and what else is said about who writes by it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Typed {
    pub(super) law: Law,
    /// Share of the writes, and of the pages.
    share: Option<Share>,
    space: Option<Share>,
    handle: Option<u16>,
    burst: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Law {
    Pattern(Pattern),
    /// So much of the data gets so much of the writes.
    HotCold {
        data: Share,
        writes: Share,
    },
}

impl Typed {
    /// A single stream of which nothing else is said.
    pub(super) fn plain(self) -> Option<Pattern> {
        match self {
            Self { law: Law::Pattern(pattern), share: None, space: None, handle: None, burst: None } => {
                Some(pattern)
            }
            _ => None,
        }
    }
}

impl FromStr for Typed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let law = law(parts.next().unwrap_or_default())?;
        let mut typed = Self { law, share: None, space: None, handle: None, burst: None };
        for part in parts {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let is_again = match key {
                "share" => typed.share.replace(above_zero(value)?).is_some(),
                "space" => typed.space.replace(above_zero(value)?).is_some(),
                "handle" => {
                    let handle = numbers::u16(value).ok().filter(|&handle| handle < HANDLES_MAX);
                    let last = HANDLES_MAX - 1;
                    let handle =
                        handle.ok_or_else(|| format!("expected handle=0 to handle={last}, not `{part}`"))?;
                    typed.handle.replace(handle).is_some()
                }
                "burst" => {
                    let burst = numbers::u32(value).ok().filter(|burst| (1..=BURST_MAX).contains(burst));
                    let burst = burst
                        .ok_or_else(|| format!("expected burst=1 to burst={BURST_MAX}, not `{part}`"))?;
                    typed.burst.replace(burst).is_some()
                }
                _ => return Err(format!("`{part}` is unknown, expected share=, space=, handle= or burst=")),
            };
            if is_again {
                return Err(format!("{key}= is given twice"));
            }
        }
        Ok(typed)
    }
}

fn law(text: &str) -> Result<Law, String> {
    match text {
        "uniform" => return Ok(Law::Pattern(Pattern::Uniform)),
        "sequential" => return Ok(Law::Pattern(Pattern::Sequential)),
        "random-map" => return Ok(Law::Pattern(Pattern::RandomMap)),
        _ => {}
    }
    let value_of = |key: &str| text.strip_prefix(key)?.strip_prefix(['=', ':']);
    if let Some(theta) = value_of("zipf") {
        return Ok(Law::Pattern(Pattern::Zipf(theta.parse::<Theta>()?.0)));
    }
    let Some((data, writes)) = value_of("hotcold").and_then(|value| value.split_once('/')) else {
        return Err(EXPECTED.to_owned());
    };
    let (data, writes) = (above_zero(data)?, above_zero(writes)?);
    if data.0 >= 1.0 || writes.0 >= 1.0 {
        return Err("expected shares below 100 on both sides, such as hotcold=10/90".to_owned());
    }
    Ok(Law::HotCold { data, writes })
}

fn above_zero(text: &str) -> Result<Share, String> {
    let share: Share = text.parse()?;
    if share.0 > 0.0 { Ok(share) } else { Err(format!("`{text}` is nothing, expected more than 0")) }
}

/// A writer among others.
#[derive(Clone, Debug, PartialEq)]
struct Writer {
    name: String,
    pattern: Pattern,
    /// Shares of the pages and of the writes.
    space: f64,
    traffic: f64,
    handle: u16,
    /// Pages that it writes before it may be another's turn.
    burst: u32,
}

/// All writers of a workload; their shares make up a whole.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Writers {
    writers: Vec<Writer>,
    handles: u16,
}

impl Writers {
    /// From what was typed. Errors: a usage error about `--workload`.
    pub(super) fn new(typed: &[Typed]) -> Result<Self> {
        let spaces = whole("space", typed.iter().map(|typed| typed.space).collect())?;
        let shares = whole("share", typed.iter().map(|typed| typed.share).collect())?;
        let named: Vec<u16> = typed.iter().filter_map(|typed| typed.handle).collect();
        // Those of which none is named take what is left, in their order.
        let mut free = (0..).filter(|handle| !named.contains(handle));
        let is_alone = typed.len() == 1;
        let mut writers = Vec::new();
        for ((number, typed), (space, share)) in (1..).zip(typed).zip(spaces.into_iter().zip(shares)) {
            let parts = match typed.law {
                Law::Pattern(pattern) => vec![(pattern.to_string(), pattern, space, share)],
                Law::HotCold { data, writes } => vec![
                    ("hot".to_owned(), Pattern::Uniform, space * data.0, share * writes.0),
                    ("cold".to_owned(), Pattern::Uniform, space * (1.0 - data.0), share * (1.0 - writes.0)),
                ],
            };
            for (name, pattern, space, traffic) in parts {
                let name = if is_alone { name } else { format!("{number} {name}") };
                let handle = typed.handle.or_else(|| free.next()).unwrap_or(u16::MAX);
                writers.push(Writer {
                    name,
                    pattern,
                    space,
                    traffic,
                    handle,
                    burst: typed.burst.unwrap_or(1),
                });
            }
        }
        let handles = writers.iter().map(|writer| writer.handle).max().unwrap_or(0).saturating_add(1);
        if let Some(gap) = (0..handles).find(|handle| writers.iter().all(|writer| writer.handle != *handle)) {
            let last = handles - 1;
            return Err(usage(format!("--workload: nobody writes through handle {gap} of 0 to {last}")));
        }
        if handles > HANDLES_MAX {
            return Err(usage(format!("--workload: {handles} handles, expected at most {HANDLES_MAX}")));
        }
        Ok(Self { writers, handles })
    }

    /// The word for them, as it was typed where one was.
    pub(super) fn name(&self) -> &'static str {
        if self.is_hot_and_cold() { "hotcold" } else { "writers" }
    }

    fn is_hot_and_cold(&self) -> bool {
        self.writers.len() == 2 && self.writers[0].name == "hot"
    }

    pub(super) fn title(&self) -> String {
        match self.writers.as_slice() {
            [hot, _] if self.is_hot_and_cold() => format!(
                "Hot and cold data: {} % of it get {} % of the writes",
                percent(hot.space),
                percent(hot.traffic)
            ),
            writers => count(writers.len(), "writer"),
        }
    }

    /// What each of them does.
    pub(super) fn descriptions(&self) -> impl Iterator<Item = String> {
        self.writers.iter().map(|writer| {
            let bursts = match writer.burst {
                1 => String::new(),
                burst => format!(", {} at a time", count(burst, "page")),
            };
            let pattern = writer.pattern.to_string();
            let law = if writer.name.ends_with(&pattern) { String::new() } else { format!(" ({pattern})") };
            format!(
                "{}{law}: {} % of the pages, {} % of the writes{bursts}, handle {}",
                writer.name,
                percent(writer.space),
                percent(writer.traffic),
                writer.handle
            )
        })
    }

    /// Names of who writes through each handle.
    pub(super) fn streams(&self) -> Vec<String> {
        let of = |handle| self.writers.iter().filter(move |writer| writer.handle == handle);
        let names = |handle| of(handle).map(|writer| writer.name.as_str()).collect::<Vec<_>>().join(" + ");
        (0..self.handles).map(names).collect()
    }

    /// Pages and share of the writes of each, where all of them write uniformly at random.
    pub(super) fn uniform(&self, pages: u32) -> Option<Vec<(f64, f64)>> {
        let of = |writer: &Writer| {
            (writer.pattern == Pattern::Uniform).then(|| (writer.space * f64::from(pages), writer.traffic))
        };
        self.writers.iter().map(of).collect()
    }

    /// Each has a handle of its own.
    pub(super) fn are_apart(&self) -> bool {
        self.writers.len() == usize::from(self.handles)
    }

    /// Their traffic on the first `pages` of the device. Errors: a usage error when one has no page.
    pub(super) fn traffic(&self, pages: u32, seed: u64) -> Result<Traffic> {
        let mut random = Random::new(seed, 0);
        let (mut first, mut space) = (0, 0.0);
        let mut areas = Vec::with_capacity(self.writers.len());
        for writer in &self.writers {
            space += writer.space;
            let end = ((f64::from(pages) * space).round() as u32).min(pages);
            if end <= first {
                let message = format!("--workload: {} has no page of the {pages} in use", writer.name);
                return Err(usage(message));
            }
            let order = Order::new(writer.pattern, end - first, &mut random);
            areas.push(Area { first, end, order, handle: writer.handle, burst: writer.burst });
            first = end;
        }
        let turns: Vec<(f64, u32)> =
            self.writers.iter().map(|writer| (writer.traffic, writer.burst)).collect();
        Ok(Traffic { areas, mixture: Mixture::new(&turns), random })
    }
}

/// Shares of a whole, where those that were not given have the rest among them, in equal parts.
fn whole(key: &str, given: Vec<Option<Share>>) -> Result<Vec<f64>> {
    let sum: f64 = given.iter().flatten().map(|share| share.0).sum();
    let others = given.iter().filter(|share| share.is_none()).count();
    let left = 1.0 - sum;
    let is_whole = if others == 0 { left.abs() < 1e-6 } else { left > 1e-6 };
    if !is_whole {
        let expected = if others == 0 { "100 %" } else { "less than 100 %, as others have the rest" };
        let message = format!("--workload: {key}= adds up to {} %, expected {expected}", percent(sum));
        return Err(usage(message));
    }
    let each = left / others.max(1) as f64;
    Ok(given.into_iter().map(|share| share.map_or(each, |share| share.0)).collect())
}

/// The pages of a writer.
#[derive(Debug)]
struct Area {
    first: u32,
    end: u32,
    order: Order,
    handle: u16,
    burst: u32,
}

/// Writers at work.
#[derive(Debug)]
pub(super) struct Traffic {
    areas: Vec<Area>,
    mixture: Mixture,
    random: Random,
}

impl Traffic {
    pub(super) fn stream_of(&self, lpn: u32) -> u16 {
        self.areas.iter().find(|area| lpn < area.end).map_or(0, |area| area.handle)
    }

    pub(super) fn fill(&mut self, out: &mut Vec<Op>, ops: usize) {
        while out.len() < ops {
            let area = &mut self.areas[self.mixture.draw(&mut self.random)];
            for _ in 0..area.burst {
                let page = area.order.draw(area.end - area.first, &mut self.random);
                out.push(Op::write(area.first + page, area.handle));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writers(texts: &[&str]) -> Result<Writers> {
        let typed: Vec<Typed> = texts.iter().map(|text| text.parse().expect(text)).collect();
        Writers::new(&typed)
    }

    #[test]
    fn what_is_typed_is_understood_or_named() {
        let plain = |text: &str| text.parse::<Typed>().map(Typed::plain);
        assert_eq!(plain("zipf=0.9"), Ok(Some(Pattern::Zipf(0.9))));
        assert_eq!(plain("zipf:1.2"), Ok(Some(Pattern::Zipf(1.2))));
        assert_eq!((plain("uniform,handle=0"), plain("hotcold=10/90")), (Ok(None), Ok(None)));
        for (text, expected) in [
            ("zipf=x", "`x` is no exponent"),
            ("pareto", "expected uniform, zipf=THETA"),
            ("hotcold=10", "hotcold=DATA/WRITES"),
            ("hotcold=0/90", "`0` is nothing"),
            ("hotcold=10/100", "below 100"),
            ("uniform,shares=3", "`shares=3` is unknown"),
            ("uniform,share=0", "`0` is nothing"),
            ("uniform,share=10,share=20", "share= is given twice"),
            ("uniform,handle=128", "handle=0 to handle=127, not `handle=128`"),
            ("uniform,burst=0", "burst=1 to burst=1048576"),
        ] {
            assert!(text.parse::<Typed>().is_err_and(|error| error.contains(expected)), "{text}");
        }
    }

    #[test]
    fn shares_that_are_not_given_are_equal_parts_of_the_rest_and_handles_those_that_are_left() {
        let found =
            writers(&["sequential,share=20,space=60,burst=8", "hotcold=10/90", "uniform,handle=0"]).unwrap();
        let shown: Vec<String> = found.descriptions().collect();
        assert_eq!(
            shown,
            [
                "1 sequential: 60 % of the pages, 20 % of the writes, 8 pages at a time, handle 1",
                "2 hot (uniform): 2 % of the pages, 36 % of the writes, handle 2",
                "2 cold (uniform): 18 % of the pages, 4 % of the writes, handle 3",
                "3 uniform: 20 % of the pages, 40 % of the writes, handle 0",
            ]
        );
        assert_eq!(found.streams(), ["3 uniform", "1 sequential", "2 hot", "2 cold"]);
        assert_eq!(writers(&["hotcold=20/80,handle=0"]).unwrap().streams(), ["hot + cold"]);
        for (texts, expected) in [
            (&["uniform,share=50", "uniform,share=40"][..], "share= adds up to 90 %, expected 100 %"),
            (&["uniform,space=100", "uniform"], "space= adds up to 100 %, expected less than 100 %"),
            (&["uniform,handle=2", "uniform"], "nobody writes through handle 1 of 0 to 2"),
        ] {
            assert!(writers(texts).unwrap_err().to_string().contains(expected), "{texts:?}");
        }
        assert!(writers(&["hotcold=1/50"]).unwrap().traffic(20, 1).is_err());
    }

    #[test]
    fn each_writes_its_own_pages_as_often_as_its_share_says() {
        let found = writers(&["sequential,share=20,space=50,burst=8", "hotcold=10/90"]).unwrap();
        let mut traffic = found.traffic(1000, 3).unwrap();
        let mut ops = Vec::new();
        traffic.fill(&mut ops, 100_000);
        for (handle, pages, expected) in [(0, 0..500, 20_000), (1, 500..550, 72_000), (2, 550..1000, 8_000)] {
            let written: Vec<u32> = ops.iter().filter(|op| op.stream == handle).map(|op| op.lpn).collect();
            assert!(written.len().abs_diff(expected) < 1_000, "{handle}: {}", written.len());
            assert!(written.iter().all(|page| pages.contains(page)), "{handle}");
            assert!(pages.clone().all(|page| traffic.stream_of(page) == handle), "{handle}");
        }
    }
}
