//! Policies as they are typed: `cache=write-back:64M:lru,sched=share:8,limit=iops:1000`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use unvme_spec::admin::QueuePriority;
use unvme_spec::fdp::PlacementId;

use super::policy::{CacheMode, Caching, Completing, Limit, Policies, Queueing, Schedule};
use crate::Size;
use crate::cache::Order;

/// What can be said, in the words in which it is said.
pub const POLICY_SYNTAX: &str = "cache=none|read|write-through|write-back[:SIZE][:s3fifo|:lru][:dirty:SIZE], \
     sched=fifo|deadline:TIME|share:WEIGHT|priority:N|wrr:CLASS, limit=[iops:N][:bytes:SIZE][:burst:TIME], \
     complete=poll|interrupt|hybrid, stream=none|N, queue=shared|own";

/// A word that is no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{word}`: {expected}")]
pub struct NotAPolicy {
    /// The word.
    pub word: String,
    /// What is wrong with it, and what was expected.
    pub expected: String,
}

const ORDERS: [(&str, Order); 2] = [("s3fifo", Order::S3Fifo), ("lru", Order::Lru)];
const MODES: [(&str, CacheMode); 4] = [
    ("none", CacheMode::None),
    ("read", CacheMode::Read),
    ("write-through", CacheMode::WriteThrough),
    ("write-back", CacheMode::WriteBack),
];
const COMPLETING: [(&str, Completing); 3] =
    [("poll", Completing::Poll), ("interrupt", Completing::Interrupt), ("hybrid", Completing::Hybrid)];
const QUEUES: [(&str, Queueing); 2] = [("shared", Queueing::Shared), ("own", Queueing::Own)];
const CLASSES: [(&str, QueuePriority); 4] = [
    ("urgent", QueuePriority::Urgent),
    ("high", QueuePriority::High),
    ("medium", QueuePriority::Medium),
    ("low", QueuePriority::Low),
];
/// What a limit has at once unless it says something else.
const BURST: Duration = Duration::from_millis(10);

/// The one of `all` that has this name.
fn named<T: Clone>(what: &str, name: &str, all: &[(&str, T)]) -> Result<T, String> {
    match all.iter().find(|(known, _)| *known == name) {
        Some((_, found)) => Ok(found.clone()),
        None => {
            let known: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
            Err(format!("`{name}` is no {what}; known are {}", known.join(", ")))
        }
    }
}

fn name_of<T: PartialEq>(wanted: &T, all: &[(&'static str, T)]) -> &'static str {
    all.iter().find(|(_, known)| known == wanted).map_or("", |(name, _)| name)
}

fn number<T: FromStr>(what: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is no {what}: a number is expected"))
}

fn size(text: &str) -> Result<u64, String> {
    text.parse::<Size>().map(|size| size.0).map_err(|e| e.to_string())
}

/// The units of times, and their nanoseconds; the longest first.
const UNITS: [(&str, u64); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1000), ("ns", 1)];

fn time(text: &str) -> Result<Duration, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = text.split_at(digits);
    let scale = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale);
    let nanoseconds =
        count.parse::<u64>().ok().zip(scale).and_then(|(count, scale)| count.checked_mul(scale));
    nanoseconds
        .map(Duration::from_nanos)
        .ok_or_else(|| format!("`{text}` is no time: a number with ns, us, ms or s is expected"))
}

/// The shortest exact form of a time.
fn shown(time: Duration) -> String {
    let nanoseconds = time.as_nanos() as u64;
    let (unit, scale) =
        UNITS.into_iter().find(|(_, scale)| nanoseconds.is_multiple_of(*scale)).unwrap_or(("ns", 1));
    format!("{}{unit}", nanoseconds / scale)
}

impl FromStr for Policies {
    type Err = NotAPolicy;

    fn from_str(text: &str) -> Result<Self, NotAPolicy> {
        let mut policies = Self::default();
        let mut said: Vec<&str> = Vec::new();
        for word in text.split(',').filter(|word| !word.is_empty()) {
            let wrong = |expected: String| NotAPolicy { word: word.to_owned(), expected };
            let Some((key, value)) = word.split_once('=') else {
                return Err(wrong(format!("KEY=VALUE is expected; known are {POLICY_SYNTAX}")));
            };
            if said.contains(&key) {
                return Err(wrong(format!("`{key}` was said before")));
            }
            said.push(key);
            policies.take(key, value).map_err(wrong)?;
            policies.check().map_err(wrong)?;
        }
        Ok(policies)
    }
}

impl Policies {
    /// Whether [`Policies`] are typed with such a key.
    pub fn has_key(key: &str) -> bool {
        ["cache", "sched", "limit", "complete", "stream", "queue"].contains(&key)
    }

    /// Has one policy be as `value` says.
    fn take(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "cache" => self.cache = caching(value)?,
            "sched" => self.schedule = schedule(value)?,
            "limit" => self.limit = Some(limit(value)?),
            "complete" => self.completing = named("way to complete", value, &COMPLETING)?,
            "stream" if value == "none" => self.stream = None,
            "stream" => self.stream = Some(PlacementId(number("placement identifier", value)?)),
            "queue" if value.starts_with("own:") => {
                let class = value.split_once(':').map_or("", |(_, class)| class);
                return Err(format!(
                    "a queue of a class, by NVMe's weighted round robin, is sched=wrr:{class}"
                ));
            }
            "queue" => self.queue = named("queue", value, &QUEUES)?,
            _ => return Err(format!("`{key}` is not known; known are {POLICY_SYNTAX}")),
        }
        Ok(())
    }
}

fn caching(value: &str) -> Result<Caching, String> {
    let mut words = value.split(':');
    let mode = named("cache", words.next().unwrap_or_default(), &MODES)?;
    let mut cache = Caching { mode, ..Caching::default() };
    let mut dirty = None;
    let mut is_first = true;
    while let Some(word) = words.next() {
        match word {
            "dirty" => dirty = Some(size(words.next().unwrap_or_default())?),
            word if is_first && word.starts_with(|first: char| first.is_ascii_digit()) => {
                cache.bytes = usize::try_from(size(word)?).map_err(|e| e.to_string())?;
            }
            word => cache.order = named("order", word, &ORDERS)?,
        }
        is_first = false;
    }
    if mode == CacheMode::None && value != "none" {
        return Err(format!("`{value}`: without a cache there is neither a size nor an order"));
    }
    if dirty.is_some() && mode != CacheMode::WriteBack {
        return Err(format!("`{value}`: only write-back has dirty data"));
    }
    cache.dirty_bytes = match dirty {
        Some(bytes) => usize::try_from(bytes).map_err(|e| e.to_string())?,
        None => cache.bytes / 4,
    };
    Ok(cache)
}

fn schedule(value: &str) -> Result<Schedule, String> {
    let (name, rest) = value.split_once(':').map_or((value, None), |(name, rest)| (name, Some(rest)));
    let needed =
        |what: &str| rest.ok_or_else(|| format!("`{name}` needs {what}: {name}:{}", what.to_uppercase()));
    match name {
        "fifo" if rest.is_none() => Ok(Schedule::Fifo),
        "deadline" => Ok(Schedule::Deadline(time(needed("time")?)?)),
        "share" => Ok(Schedule::Share(number("share", needed("weight")?)?)),
        "priority" => Ok(Schedule::Priority(number("priority of 0 to 255", needed("n")?)?)),
        "wrr" => Ok(Schedule::Weighted(named("class", needed("class")?, &CLASSES)?)),
        _ => Err(format!(
            "`{value}` is no schedule; known are fifo, deadline:TIME, share:WEIGHT, priority:N, wrr:CLASS"
        )),
    }
}

fn limit(value: &str) -> Result<Limit, String> {
    let mut limit = Limit { iops: None, bytes: None, burst: BURST };
    let mut words = value.split(':');
    while let Some(name) = words.next() {
        let value = words
            .next()
            .ok_or_else(|| format!("`{name}` has no value: iops:1000, bytes:100M, burst:10ms"))?;
        match name {
            "iops" => limit.iops = Some(number("rate of commands", value)?),
            "bytes" => limit.bytes = Some(size(value)?),
            "burst" => limit.burst = time(value)?,
            _ => return Err(format!("`{name}` is no limit; known are iops:N, bytes:SIZE, burst:TIME")),
        }
    }
    Ok(limit)
}

/// What is to be typed for them; what is as always is left out.
impl fmt::Display for Policies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        let cache = &self.cache;
        if cache.mode != CacheMode::None {
            let (mode, order) = (name_of(&cache.mode, &MODES), name_of(&cache.order, &ORDERS));
            let mut word = format!("cache={mode}:{}:{order}", Size(cache.bytes as u64));
            if cache.dirty_bytes != cache.bytes / 4 {
                word += &format!(":dirty:{}", Size(cache.dirty_bytes as u64));
            }
            words.push(word);
        }
        match self.schedule {
            Schedule::Fifo => {}
            Schedule::Deadline(time) => words.push(format!("sched=deadline:{}", shown(time))),
            Schedule::Share(share) => words.push(format!("sched=share:{share}")),
            Schedule::Priority(priority) => words.push(format!("sched=priority:{priority}")),
            Schedule::Weighted(class) => words.push(format!("sched=wrr:{}", name_of(&class, &CLASSES))),
        }
        if let Some(Limit { iops, bytes, burst }) = self.limit {
            let iops = iops.map(|iops| format!("iops:{iops}"));
            let bytes = bytes.map(|bytes| format!("bytes:{}", Size(bytes)));
            let burst = (burst != BURST).then(|| format!("burst:{}", shown(burst)));
            let parts: Vec<String> = [iops, bytes, burst].into_iter().flatten().collect();
            words.push(format!("limit={}", parts.join(":")));
        }
        if self.completing != Completing::default() {
            words.push(format!("complete={}", name_of(&self.completing, &COMPLETING)));
        }
        words.extend(self.stream.map(|stream| format!("stream={}", stream.0)));
        // What a function chooses cannot be typed.
        if self.queue == Queueing::Own {
            words.push(format!("queue={}", name_of(&self.queue, &QUEUES)));
        }
        f.pad(&words.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_what_was_typed() {
        for text in [
            "",
            "cache=read:64M:s3fifo",
            "cache=write-back:1G:lru:dirty:16M,sched=share:8,complete=hybrid,stream=2,queue=own",
            "cache=write-through:1M:lru,sched=deadline:500us,complete=interrupt",
            "sched=priority:255,limit=iops:1000:bytes:100M:burst:2s",
            "limit=bytes:1",
            "sched=wrr:high,limit=iops:1000,queue=own",
        ] {
            let policies: Policies = text.parse().unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(policies.to_string(), text);
        }
        let short: Policies = "cache=write-back,sched=fifo,stream=none,queue=shared".parse().expect("short");
        assert_eq!(short.to_string(), "cache=write-back:64M:s3fifo");
    }

    #[test]
    fn a_wrong_word_is_named_with_what_is_known() {
        for (text, word, known) in [
            ("cash=read", "cash=read", "cache=none|read"),
            ("cache", "cache", "KEY=VALUE"),
            ("sched=fifo,cache=writeback", "cache=writeback", "write-through, write-back"),
            ("cache=read:64K", "cache=read:64K", "1048576 or more"),
            ("cache=read:64M:mru", "cache=read:64M:mru", "s3fifo, lru"),
            ("cache=write-back:1M:dirty:2M", "cache=write-back:1M:dirty:2M", "1 to 1048576"),
            ("cache=none:64M", "cache=none:64M", "neither a size nor an order"),
            ("cache=read:64M:dirty:1M", "cache=read:64M:dirty:1M", "only write-back"),
            ("sched=share", "sched=share", "share:WEIGHT"),
            ("sched=share:0", "sched=share:0", "1 to 10000"),
            ("sched=deadline:5", "sched=deadline:5", "ns, us, ms or s"),
            ("sched=deadline:61s", "sched=deadline:61s", "up to 60s"),
            ("sched=priority:256", "sched=priority:256", "0 to 255"),
            ("limit=burst:1s", "limit=burst:1s", "commands or bytes"),
            ("limit=iops", "limit=iops", "iops:1000"),
            ("limit=iops:0", "limit=iops:0", "1 to 10^12"),
            ("complete=sleep", "complete=sleep", "poll, interrupt, hybrid"),
            ("stream=x", "stream=x", "number"),
            ("queue=mine", "queue=mine", "shared, own"),
            ("queue=own:high", "queue=own:high", "sched=wrr:high"),
            ("sched=wrr", "sched=wrr", "wrr:CLASS"),
            ("sched=wrr:top", "sched=wrr:top", "urgent, high, medium, low"),
            ("queue=own,queue=own", "queue=own", "said before"),
        ] {
            let error = text.parse::<Policies>().expect_err(text);
            assert_eq!(error.word, word);
            assert!(error.expected.contains(known), "{text}: {error}");
        }
    }
}
