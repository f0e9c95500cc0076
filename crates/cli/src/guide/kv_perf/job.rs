//! What was typed, made into a configuration and into the pairs of each thread.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use unvme_guide::config::SsdType;
use unvme_guide::session::{Member, Session};
use unvme_guide::{DeviceConfig, SdkConfig};

use super::args::{KvPerf, RANGE_LAST_KV, RANGE_LAST_LBA};
use crate::exit::usage;
use crate::file;
use crate::guide::ids::{Ids, Workload};
use crate::guide::load_configuration;
use crate::guide::pair::{Content, KeyForm, Pair, Pairs, VALUE_BYTES_MAX, Values};

/// Lengths of a key of a file.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 1..=unvme_spec::samsung_kv::KEY_BYTES_MAX;

/// The configuration, and what was said in it and is not followed.
pub(super) fn configuration(args: &KvPerf) -> Result<(SdkConfig, Vec<String>)> {
    let (mut config, mut warnings) = load_configuration(&args.json_conf)?;
    config.cache |= args.use_cache;
    if args.is_low_level() {
        // The driver's own calls never look into the cache.
        config.cache = false;
    }
    if let Some(megabytes) = args.slab_size {
        let bytes = megabytes.checked_mul(1 << 20);
        config.slab_bytes = bytes.ok_or_else(|| usage(format!("-l {megabytes}: too many megabytes")))?;
    }
    match args.ssd_type {
        Some(0) => config.ssd_type = SsdType::Lba,
        Some(_) => config.ssd_type = SsdType::Kv,
        None => {}
    }
    devices(args, &mut config)?;
    warnings.extend(config.settle()?);
    if !args.key_range.is_empty() && !args.workload.contains(&3) {
        warnings.push("-y: a range of keys counts only with -p 3".to_owned());
    }
    Ok((config, warnings))
}

/// Options of devices go before what the file says of the device at the same place; there are as many as
/// options.
fn devices(args: &KvPerf, config: &mut SdkConfig) -> Result<()> {
    let lengths =
        [args.device.len(), args.core_mask.len(), args.sync_mask.len(), args.cq_mask.len(), args.qd.len()];
    let Some(count) = lengths.into_iter().find(|&length| length > 0) else { return Ok(()) };
    let device = |index: usize| {
        let named = args.device.get(index).cloned();
        let base = config.devices.get(index).cloned();
        let mut device = match (named, base) {
            (Some(name), Some(base)) => DeviceConfig { dev_id: name, ..base },
            (Some(name), None) => DeviceConfig::new(name),
            (None, Some(base)) => base,
            (None, None) => {
                return Err(usage(format!(
                    "there are options for {count} devices, and {} has {}; name them with -d",
                    args.json_conf.display(),
                    config.devices.len()
                )));
            }
        };
        let mask = |masks: &[unvme_guide::CpuSet], old: u64| masks.get(index).map_or(old, |mask| mask.0);
        device.core_mask = mask(&args.core_mask, device.core_mask);
        device.sync_mask = mask(&args.sync_mask, device.sync_mask);
        device.cq_thread_mask = mask(&args.cq_mask, device.cq_thread_mask);
        device.queue_depth = args.qd.get(index).copied().unwrap_or(device.queue_depth);
        Ok(device)
    };
    config.devices = (0..count).map(device).collect::<Result<_>>()?;
    Ok(())
}

/// A thread before it has a queue.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Place of its device in the configuration.
    pub(super) device: usize,
    /// Its own place among the threads of the device.
    pub(super) thread: u32,
    pub(super) cpu: u32,
    /// Pairs of stores, retrieves and deletes of a blend; of everything else those of the first.
    pub(super) ids: [Ids; 3],
    /// Where its pairs come from.
    pub(super) pairs: Pairs,
}

/// What each thread is to do: one thread for each device and each CPU that has a queue to it.
pub(super) fn plans(
    args: &KvPerf,
    session: &Session,
    listed: Option<&Listed>,
    salt: u64,
) -> Result<Vec<Plan>> {
    let ssd_type = session.config().ssd_type;
    let threads: Vec<(usize, u32, u32)> = session
        .members()
        .iter()
        .flat_map(|member| {
            let cpus = member.cpus().into_iter().zip(0..);
            cpus.map(|(cpu, thread)| (member.index(), thread, cpu)).collect::<Vec<_>>()
        })
        .collect();
    if listed.is_some() && ssd_type == SsdType::Lba {
        return Err(usage("-f: a block device has no keys; the pairs of a file need a key-value device"));
    }
    let offsets = args.offsets();
    let counts = counts(args, listed, threads.len())?;
    let range_last = if ssd_type == SsdType::Lba { RANGE_LAST_LBA } else { RANGE_LAST_KV };
    let workloads = args.workloads(range_last);
    let mut next = offsets;
    let mut plans = Vec::new();
    for (order, (device, thread, cpu)) in threads.into_iter().enumerate() {
        let member = &session.members()[device];
        let pairs = match listed {
            Some(pairs) => Pairs::Listed(Arc::clone(pairs)),
            None => made(args, member, thread, salt)?,
        };
        let seed = seed(&args.seed, order, salt);
        let ids = std::array::from_fn(|index| {
            let workload = clipped(workloads[index], args, &pairs, member, listed);
            Ids { workload, first: next[index], count: counts[index], seed: seed.wrapping_add(index as u64) }
        });
        for index in 0..3 {
            next[index] = next[index].saturating_add(counts[index]).saturating_add(offsets[index]);
        }
        let plan = Plan { device, thread, cpu, ids, pairs };
        check_fits(&plan, member, args.blend)?;
        plans.push(plan);
    }
    Ok(plans)
}

/// The seed of a thread: the one that was given for it, else one that follows from the first, else from the
/// time.
fn seed(seeds: &[u64], thread: usize, salt: u64) -> u64 {
    match (seeds.get(thread), seeds.first()) {
        (Some(&seed), _) if seed != 0 => seed,
        (None, Some(&first)) if first != 0 => first.wrapping_add((thread as u64) << 32),
        _ => salt.wrapping_add((thread as u64) << 32),
    }
}

/// Operations of each thread.
fn counts(args: &KvPerf, listed: Option<&Listed>, threads: usize) -> Result<[u64; 3]> {
    let Some(pairs) = listed else { return Ok(args.counts()) };
    let [first, ..] = args.offsets();
    let per_thread = (pairs.len() as u64) / threads.max(1) as u64;
    let there = per_thread.saturating_sub(first);
    let count = args.num_keys.first().map_or(there, |&asked| asked.min(there));
    if count == 0 {
        return Err(usage(format!("-f: {} pairs are not one for each of {threads} threads", pairs.len())));
    }
    Ok([count; 3])
}

/// Keys and values that are made from ids.
fn made(args: &KvPerf, member: &Member, thread: u32, salt: u64) -> Result<Pairs> {
    let content = match &args.def_value {
        Some(text) => Content::Text(text.clone().into_bytes()),
        None if args.verify => Content::Random { salt },
        None => Content::Letters,
    };
    let values = Values { sizes: args.value_size.clone(), content };
    let block = member.ssd_type() == SsdType::Lba;
    for &size in &values.sizes {
        if block && (size == 0 || !size.is_multiple_of(member.sector_bytes())) {
            return Err(usage(format!(
                "-v {size}: {} has blocks of {} bytes, and a value is whole blocks",
                member.name(),
                member.sector_bytes()
            )));
        }
    }
    Ok(match block {
        true => Pairs::Blocks { block_bytes: member.sector_bytes(), values },
        false => Pairs::Made { form: KeyForm::Thread(thread), values },
    })
}

/// A range that nobody typed ends where the device does, and one of a file where the file does.
fn clipped(
    workload: Workload,
    args: &KvPerf,
    pairs: &Pairs,
    member: &Member,
    listed: Option<&Listed>,
) -> Workload {
    match (workload, pairs) {
        (Workload::Range { first, last }, Pairs::Blocks { block_bytes, values })
            if args.key_range.is_empty() =>
        {
            let largest = u64::from(values.bytes_max() / block_bytes).max(1);
            Workload::Range { first, last: last.min((member.sectors() / largest).saturating_sub(1)) }
        }
        (Workload::Range { first, last }, Pairs::Listed(_)) => {
            let end = listed.map_or(0, |pairs| pairs.len()) as u64 - 1;
            Workload::Range { first: first.min(end), last: last.min(end) }
        }
        (other, _) => other,
    }
}

/// Refuses blocks behind the end of the device, before the first of them is touched.
fn check_fits(plan: &Plan, member: &Member, blend: bool) -> Result<()> {
    let Pairs::Blocks { block_bytes, values } = &plan.pairs else { return Ok(()) };
    let largest = u64::from(values.bytes_max() / block_bytes);
    let ids = if blend { &plan.ids[..] } else { &plan.ids[..1] };
    let highest = ids.iter().filter_map(|ids| ids.highest()).max();
    match highest.map(|id| (u128::from(id) + 1) * u128::from(largest)) {
        Some(end) if end > u128::from(member.sectors()) => Err(usage(format!(
            "{}: key {} of {} bytes ends at block {end}, and the device has {} blocks",
            member.name(),
            highest.unwrap_or(0),
            largest * u64::from(*block_bytes),
            member.sectors()
        ))),
        _ => Ok(()),
    }
}

/// Bytes of a file of pairs at most.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// Pairs of a file.
pub(super) type Listed = Arc<Vec<Pair>>;

/// Reads the pairs of the file, if there is to be one.
pub(super) fn listed(args: &KvPerf) -> Result<Option<Listed>> {
    args.read_file.as_deref().map(read_pairs).transpose()
}

fn read_pairs(path: &Path) -> Result<Listed> {
    let text = file::read(path, FILE_BYTES_MAX, "a pair in each line")?;
    let pairs = parse_pairs(&text);
    let pairs = pairs.map_err(|(line, reason)| usage(format!("{}:{line}: {reason}", path.display())))?;
    Ok(Arc::new(pairs))
}

/// Operations of all threads together on the pairs of a file, of each thread on pairs that are made.
pub(super) fn counts_told(args: &KvPerf, listed: Option<&Listed>) -> [u64; 3] {
    let Some(pairs) = listed else { return args.counts() };
    let there = pairs.len() as u64;
    [args.num_keys.first().map_or(there, |&asked| asked.min(there)); 3]
}

/// Pairs of a text, or the line that is none and why.
fn parse_pairs(text: &[u8]) -> Result<Vec<Pair>, (usize, String)> {
    let mut pairs = Vec::new();
    for (number, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            continue;
        }
        let wrong = |reason: String| Err((number + 1, reason));
        let Some(blank) = line.iter().position(|&byte| byte == b' ' || byte == b'\t') else {
            return wrong("expected a key, a blank or a tab, and a value".to_owned());
        };
        let pair = Pair { key: line[..blank].to_vec(), value: line[blank + 1..].to_vec() };
        if !KEY_BYTES.contains(&pair.key.len()) {
            let (min, max) = KEY_BYTES.into_inner();
            return wrong(format!("a key has {min} to {max} bytes, not {}", pair.key.len()));
        }
        if pair.value.len() > VALUE_BYTES_MAX as usize {
            return wrong(format!("a value has at most {VALUE_BYTES_MAX} bytes, not {}", pair.value.len()));
        }
        pairs.push(pair);
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_a_pair_on_each_line() {
        let pair = |key: &[u8], value: &[u8]| Pair { key: key.into(), value: value.into() };
        assert_eq!(
            parse_pairs(b"key1 a value\r\n\nkey2\tx\ty\nkey3 \n"),
            Ok(vec![pair(b"key1", b"a value"), pair(b"key2", b"x\ty"), pair(b"key3", b"")])
        );
        assert_eq!(parse_pairs(b"").map(|pairs| pairs.len()), Ok(0));
    }

    #[test]
    fn a_line_that_is_no_pair_is_named() {
        let line = |text: &[u8]| parse_pairs(text).expect_err("no pair");
        assert_eq!(line(b"k v\nalone\n"), (2, "expected a key, a blank or a tab, and a value".to_owned()));
        assert_eq!(line(b" value"), (1, "a key has 1 to 255 bytes, not 0".to_owned()));
        let long = [&[b'k'; 256][..], b" v"].concat();
        assert_eq!(line(&long).1, "a key has 1 to 255 bytes, not 256");
    }

    #[test]
    fn seeds_are_those_that_were_given_or_follow_from_them() {
        assert_eq!((seed(&[7, 8], 0, 99), seed(&[7, 8], 1, 99)), (7, 8));
        assert_eq!((seed(&[7], 2, 99), seed(&[7], 2, 1)), ((2 << 32) + 7, (2 << 32) + 7));
        assert_ne!(seed(&[], 0, 99), seed(&[], 1, 99));
        assert_eq!(seed(&[0], 0, 99), 99, "0 is the time");
    }
}
