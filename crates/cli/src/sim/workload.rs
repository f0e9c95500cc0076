//! The traffic: its parameters, its words, its streams, and what theory and others say about it.

use anyhow::Result;
use unvme_flash::PAGE_BYTES;
use unvme_flash::ftl::{FtlConfig, Isolation, VictimPolicy, theory};

use super::adversarial::{self, Adversarial};
use super::args::{Recipe, Sim};
use super::cachelib::{self, CacheLib};
use super::op::Op;
use super::rocksdb::{self, RocksDb, Victim};
use super::share::{Share, percent};
use super::simple::{Pattern, Simple};
use super::trace::{Replay, Trace};
use super::writers::{self, Writers};
use crate::count::count;
use crate::exit::usage;
use crate::report::sim::{Parameter, Published, Theory};

/// Share of the flash in use above which there is no room to move.
const USED_MAX: f64 = 0.9999;

/// What hosts do.
#[derive(Debug)]
pub(super) enum Workload {
    Simple { pattern: Pattern, trim: f64 },
    Writers(Writers),
    CacheLib(CacheLib),
    RocksDb(RocksDb),
    Adversarial(Adversarial),
    Trace { name: String, trace: Trace },
}

/// A workload under way.
#[derive(Debug)]
pub(super) enum Source<'a> {
    Simple(Simple),
    Writers(writers::Traffic),
    CacheLib(cachelib::Traffic),
    RocksDb(rocksdb::Traffic),
    Adversarial(adversarial::Traffic),
    Trace(Replay<'a>),
}

impl Source<'_> {
    /// The stream that a page is filled by before the first request.
    pub(super) fn stream_of(&self, lpn: u32) -> u16 {
        match self {
            Self::Writers(traffic) => traffic.stream_of(lpn),
            Self::CacheLib(traffic) => traffic.stream_of(lpn),
            Self::Adversarial(traffic) => traffic.stream_of(lpn),
            Self::Simple(_) | Self::RocksDb(_) | Self::Trace(_) => 0,
        }
    }

    /// Adds operations until there are `ops` of them or a few more.
    pub(super) fn fill(&mut self, out: &mut Vec<Op>, ops: usize) {
        match self {
            Self::Simple(traffic) => traffic.fill(out, ops),
            Self::Writers(traffic) => traffic.fill(out, ops),
            Self::CacheLib(traffic) => traffic.fill(out, ops),
            Self::RocksDb(traffic) => traffic.fill(out, ops),
            Self::Adversarial(traffic) => traffic.fill(out, ops),
            Self::Trace(replay) => replay.fill(out, ops),
        }
    }
}

impl Workload {
    /// What was typed. Errors: a usage error about an option, or about the trace.
    pub(super) fn new(args: &Sim) -> Result<Self> {
        check_options(args)?;
        let options = &args.recipes;
        if let Some(path) = &args.trace {
            let trace = Trace::read(path, args.trace_format, &args.trace_device)?;
            let shown = |letter: char| if letter.is_control() { char::REPLACEMENT_CHARACTER } else { letter };
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let name = if path.as_os_str() == "-" { "standard input".into() } else { name };
            let name = name.chars().map(shown).collect();
            return Ok(Self::Trace { name, trace });
        }
        Ok(match args.recipe {
            Some(Recipe::CacheLib) => Self::CacheLib(CacheLib {
                small_space: options.soc.map_or(0.04, |share| share.0),
                small_traffic: options.soc_traffic.map_or(0.8, |share| share.0),
                theta: options.theta.map_or(0.9, |theta| theta.0),
                objects: options.soc_objects.unwrap_or(1),
                burst: options.burst.unwrap_or(8),
            }),
            Some(Recipe::RocksDb) => Self::RocksDb(tree(args)?),
            Some(Recipe::Adversarial) => Self::Adversarial(Adversarial {
                random_space: options.random_space.unwrap_or(Share(0.1)),
                traffic: match options.stream_traffic.as_slice() {
                    [] => [0.4, 0.3, 0.3],
                    &[first, second, third] => whole("--stream-traffic", [first.0, second.0, third.0])?,
                    other => {
                        let message = format!("--stream-traffic: expected three shares, not {}", other.len());
                        return Err(usage(message));
                    }
                },
                overwrites: options.overwrites.unwrap_or(adversarial::Overwrites::Zoned),
            }),
            None => {
                let plain = match args.workload.as_slice() {
                    [] => Some(Pattern::Uniform),
                    [one] => one.plain(),
                    _ => None,
                };
                let Some(pattern) = plain else {
                    if args.trim.is_some() {
                        return Err(usage("--trim: only a single --workload of one stream has this option"));
                    }
                    return Ok(Self::Writers(Writers::new(&args.workload)?));
                };
                let trim = args.trim.map_or(0.0, |share| share.0);
                if trim >= 0.5 {
                    return Err(usage("--trim: pages have to be written more often than trimmed, below 50%"));
                }
                if pattern == Pattern::Sequential && trim > 0.0 {
                    return Err(usage(
                        "--trim: a sequential workload overwrites every page in its turn; use random-map",
                    ));
                }
                Self::Simple { pattern, trim }
            }
        })
    }

    /// The word that was typed.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Simple { pattern: Pattern::Uniform, .. } => "uniform",
            Self::Simple { pattern: Pattern::Zipf(_), .. } => "zipf",
            Self::Simple { pattern: Pattern::Sequential, .. } => "sequential",
            Self::Simple { pattern: Pattern::RandomMap, .. } => "random-map",
            Self::Writers(writers) => writers.name(),
            Self::CacheLib(_) => "cachelib",
            Self::RocksDb(_) => "rocksdb",
            Self::Adversarial(_) => "adversarial",
            Self::Trace { .. } => "trace",
        }
    }

    pub(super) fn title(&self) -> String {
        match self {
            Self::Simple { pattern: Pattern::Uniform, .. } => "Uniform random writes".to_owned(),
            Self::Simple { pattern: Pattern::Zipf(theta), .. } => format!("Random writes, zipf {theta}"),
            Self::Simple { pattern: Pattern::Sequential, .. } => "Sequential writes".to_owned(),
            Self::Simple { pattern: Pattern::RandomMap, .. } => {
                "Random writes, each page once per pass".to_owned()
            }
            Self::Writers(writers) => writers.title(),
            Self::CacheLib(_) => "CacheLib: a cache of small and large objects".to_owned(),
            Self::RocksDb(recipe) => format!("RocksDB: files in {} levels", recipe.levels.len()),
            Self::Adversarial(_) => "Adversarial: streams that overwrite each other".to_owned(),
            Self::Trace { name, .. } => format!("Trace {name}"),
        }
    }

    pub(super) fn parameters(&self) -> Vec<Parameter> {
        let parameter = |name, value: String| Parameter { name, value };
        let list = |shares: &mut dyn Iterator<Item = f64>| {
            shares.map(|share| percent(share).to_string()).collect::<Vec<_>>().join("/") + " %"
        };
        let pages = |pages: u32| count(pages, "page");
        match self {
            Self::Simple { trim: 0.0, .. } => Vec::new(),
            Self::Simple { trim, .. } => {
                vec![parameter("trims", format!("{} % of all requests", percent(*trim)))]
            }
            Self::Writers(writers) => {
                writers.descriptions().map(|writer| parameter("writer", writer)).collect()
            }
            Self::CacheLib(recipe) => vec![
                parameter("small objects", format!("{} % of the cache", percent(recipe.small_space))),
                parameter("their traffic", format!("{} % of the pages", percent(recipe.small_traffic))),
                parameter(
                    "their popularity",
                    format!("zipf {}, {} hashed to each bucket", recipe.theta, recipe.objects),
                ),
                parameter("large objects", format!("a ring, {} at a time", pages(recipe.burst))),
            ],
            Self::RocksDb(recipe) => vec![
                parameter("data by level", list(&mut recipe.levels.iter().map(|level| level.0))),
                parameter("traffic by level", list(&mut recipe.levels.iter().map(|level| level.1))),
                parameter("files of", pages(recipe.file_pages)),
                parameter("written", format!("{} at a time", pages(recipe.burst))),
                parameter(
                    "deleted",
                    (if recipe.victim == Victim::Fifo { "the oldest first" } else { "at random" }).to_owned(),
                ),
            ],
            Self::Adversarial(recipe) => vec![
                parameter("random range", format!("{} % of the data", percent(recipe.random_space.0))),
                parameter("traffic by stream", list(&mut recipe.traffic.iter().copied())),
                parameter("overwrites", recipe.overwrites.to_string()),
            ],
            Self::Trace { trace, .. } => vec![
                parameter("form", format!("{:?}", trace.format).to_lowercase()),
                parameter("reaches", pages(trace.pages)),
                parameter("writes", format!("{} in one pass", count(trace.written, "page"))),
            ],
        }
    }

    /// Names of its streams; a stream's number is its handle with FDP on.
    pub(super) fn streams(&self) -> Vec<String> {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        match self {
            Self::Simple { .. } => names(&["all"]),
            Self::Writers(writers) => writers.streams(),
            Self::CacheLib(_) => names(&["small objects", "large objects"]),
            Self::RocksDb(recipe) => (0..recipe.levels.len()).map(|level| format!("level {level}")).collect(),
            Self::Adversarial(_) => names(&["sequential", "random", "overwrites"]),
            Self::Trace { trace, .. } => (0..trace.streams).map(|pid| format!("placement {pid}")).collect(),
        }
    }

    /// The traffic on the first `pages` of a device. Errors: a usage error when the workload does not fit.
    pub(super) fn source(&self, pages: u32, seed: u64) -> Result<Source<'_>> {
        if pages < 2 {
            return Err(usage(format!("--util: {pages} pages are in use, expected at least 2")));
        }
        Ok(match self {
            Self::Simple { pattern, trim } => Source::Simple(Simple::new(*pattern, pages, *trim, seed)),
            Self::Writers(writers) => Source::Writers(writers.traffic(pages, seed)?),
            Self::CacheLib(recipe) => Source::CacheLib(cachelib::Traffic::new(*recipe, pages, seed)),
            Self::RocksDb(recipe) => Source::RocksDb(rocksdb::Traffic::new(recipe, pages, seed)?),
            Self::Adversarial(recipe) => Source::Adversarial(adversarial::Traffic::new(recipe, pages, seed)),
            Self::Trace { trace, .. } if trace.pages <= pages => Source::Trace(Replay::new(trace)),
            Self::Trace { name, trace } => {
                let bytes = u64::from(trace.pages) * PAGE_BYTES;
                let have = u64::from(pages) * PAGE_BYTES;
                let message = format!(
                    "--size: {name} reaches {bytes} bytes, and {have} are in use; make the device larger"
                );
                return Err(usage(message));
            }
        })
    }

    /// What a formula says about a run that uses `pages`, if there is one.
    pub(super) fn theory(&self, config: &FtlConfig, pages: u32, fdp: bool) -> Option<Theory> {
        let physical = f64::from(config.units) * f64::from(config.unit_pages);
        let reserve = f64::from(config.reserve_units()) * f64::from(config.unit_pages);
        let both = |formula, of: &dyn Fn(f64) -> Option<f64>| {
            // Without reserve the formula may have an answer when with it there is none.
            let value = of(physical)?;
            Some(Theory { value, with_reserve: of(physical - reserve).unwrap_or(value), formula })
        };
        let pages = f64::from(pages);
        match self {
            Self::Simple { pattern: Pattern::Sequential, .. } => {
                both("units of a sequential stream die whole, nothing is moved", &|_| Some(1.0))
            }
            Self::Simple { pattern: Pattern::Uniform, trim } => {
                let mapped = theory::in_use_with_trims(*trim) * pages;
                let formula =
                    "uniform random writes, from the overprovisioning as sold to what its reserve leaves";
                both(formula, &|physical| amplification(mapped / physical))
            }
            Self::Writers(writers) => {
                let parts = writers.uniform(pages as u32)?;
                let is_apart = fdp && writers.are_apart() && config.handles[0] == Isolation::Persistently;
                match config.policy {
                    VictimPolicy::Fifo if !fdp => {
                        let formula = "uniform random writes to parts that get shares of them, all mixed, under strict \
                                       first in, first out";
                        both(formula, &|physical| {
                            (pages / physical < USED_MAX)
                                .then(|| theory::write_amplification_fifo(&parts, physical))
                        })
                    }
                    VictimPolicy::Greedy if is_apart => {
                        let formula = "uniform random writes: streams that are kept apart gain nothing under greedy reclaim";
                        both(formula, &|physical| amplification(pages / physical))
                    }
                    _ => None,
                }
            }
            Self::CacheLib(recipe) if fdp => {
                let small = f64::from(recipe.buckets(pages as u32));
                let traffic = recipe.small_traffic;
                both(
                    "the large objects' units die whole and the small ones have all overprovisioning: the least that \
                     FDP can reach were all buckets equally popular",
                    &|physical| {
                        let room = physical - (pages - small);
                        Some(1.0 + traffic * (amplification(small / room)? - 1.0))
                    },
                )
            }
            Self::RocksDb(recipe) if fdp && recipe.victim == Victim::Fifo => both(
                "files of a level die in the order in which they were written, nothing is moved",
                &|_| Some(1.0),
            ),
            _ => None,
        }
    }

    /// What others have published for such a row.
    pub(super) fn published(&self, util: f64, fdp: bool) -> Option<Published> {
        let at = |percent: f64| (util * 100.0 - percent).abs() < 0.5;
        match self {
            Self::CacheLib(recipe) if (recipe.small_space - 0.04).abs() < 1e-9 => {
                let value = match (fdp, at(50.0), at(70.0) || at(80.0), at(100.0)) {
                    (false, true, ..) => "1.22",
                    (true, true, ..) | (true, _, _, true) => "1.03",
                    (false, _, _, true) => "3.22",
                    (false, _, true, _) if at(70.0) => "1.3-1.4",
                    (false, _, true, _) => "higher",
                    (true, _, true, _) => "about 1",
                    _ => return None,
                };
                let source = "CacheLib's documentation on FDP for 50 % and 100 %; SNIA SDC 2023, \
                              \"WAF, No-FDP vs FDP\", read from the plots, for 70 % and 80 %. The drive's \
                              overprovisioning and what was on it before are not published: with --op 22% \
                              --prefill=false this recipe settles at 1.22, 1.27, 1.89 and 3.15 without FDP";
                Some(Published { value, source })
            }
            Self::RocksDb(recipe) if recipe.victim == Victim::Fifo && at(80.0) => {
                let source = "SNIA SDC 2023, \"FDP vs No-FDP (WAF & Utilization)\", read from the plot";
                Some(Published { value: if fdp { "about 1" } else { "1.4-1.6" }, source })
            }
            _ => None,
        }
    }
}

/// Write amplification of uniform random overwrites when a fraction `used` of the flash is in use; `None`
/// when there is no room to move.
fn amplification(used: f64) -> Option<f64> {
    (used > 0.0 && used < USED_MAX).then(|| theory::write_amplification_used(used))
}

/// Options that the chosen workload does not have.
fn check_options(args: &Sim) -> Result<()> {
    let o = &args.recipes;
    let (cachelib, rocksdb, adversarial) =
        (&[Recipe::CacheLib][..], &[Recipe::RocksDb][..], &[Recipe::Adversarial][..]);
    let given = [
        ("--soc", o.soc.is_some(), cachelib),
        ("--soc-traffic", o.soc_traffic.is_some(), cachelib),
        ("--soc-objects", o.soc_objects.is_some(), cachelib),
        ("--theta", o.theta.is_some(), cachelib),
        ("--burst", o.burst.is_some(), &[Recipe::CacheLib, Recipe::RocksDb]),
        ("--levels", !o.levels.is_empty(), rocksdb),
        ("--level-traffic", !o.level_traffic.is_empty(), rocksdb),
        ("--file-size", o.file_size.is_some(), rocksdb),
        ("--file-victim", o.file_victim.is_some(), rocksdb),
        ("--random-space", o.random_space.is_some(), adversarial),
        ("--stream-traffic", !o.stream_traffic.is_empty(), adversarial),
        ("--overwrites", o.overwrites.is_some(), adversarial),
    ];
    for (option, is_given, recipes) in given {
        if is_given && !args.recipe.is_some_and(|recipe| recipes.contains(&recipe)) {
            let names: Vec<&str> = recipes.iter().map(|recipe| recipe.name()).collect();
            return Err(usage(format!("{option}: only --recipe {} has this option", names.join(" and "))));
        }
    }
    if args.trim.is_some() && (args.recipe.is_some() || args.trace.is_some()) {
        return Err(usage(
            "--trim: only a --workload has this option, a recipe or a trace has trims of its own",
        ));
    }
    Ok(())
}

fn tree(args: &Sim) -> Result<RocksDb> {
    let options = &args.recipes;
    let shares = |given: &[Share], default: &[f64]| -> Vec<f64> {
        if given.is_empty() { default.to_vec() } else { given.iter().map(|share| share.0).collect() }
    };
    let data = shares(&options.levels, &[0.02, 0.08, 0.25, 0.65]);
    let traffic = shares(&options.level_traffic, &[0.30, 0.25, 0.25, 0.20]);
    if data.len() != traffic.len() {
        let message = format!(
            "--levels, --level-traffic: {} and {} levels, expected as many of each",
            data.len(),
            traffic.len()
        );
        return Err(usage(message));
    }
    let most = usize::from(unvme::registry::HANDLES_MAX);
    if data.len() > most {
        return Err(usage(format!("--levels: at most {most}, a handle for each")));
    }
    whole_of("--levels", &data)?;
    whole_of("--level-traffic", &traffic)?;
    let file_bytes = options.file_size.unwrap_or(4 << 20);
    if file_bytes == 0 || !file_bytes.is_multiple_of(PAGE_BYTES) || file_bytes > 1 << 40 {
        return Err(usage(format!("--file-size: {file_bytes} bytes, expected a multiple of 4K up to 1T")));
    }
    Ok(RocksDb {
        levels: data.into_iter().zip(traffic).collect(),
        file_pages: (file_bytes / PAGE_BYTES) as u32,
        burst: options.burst.unwrap_or(16),
        victim: options.file_victim.unwrap_or(Victim::Fifo),
    })
}

fn whole<const N: usize>(option: &str, shares: [f64; N]) -> Result<[f64; N]> {
    whole_of(option, &shares)?;
    Ok(shares)
}

/// Shares make up a whole.
fn whole_of(option: &str, shares: &[f64]) -> Result<()> {
    let sum: f64 = shares.iter().sum();
    if (sum - 1.0).abs() > 1e-6 {
        return Err(usage(format!("{option}: the shares add up to {} %, expected 100 %", percent(sum))));
    }
    Ok(())
}
