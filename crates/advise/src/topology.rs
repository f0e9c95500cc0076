//! The topology of a machine: CPUs, cores, caches, NUMA nodes, and what limits this process.
//!
//! Everything is read from `/sys` and `/proc`, of this machine or of a copy. A file that does not exist
//! leaves a fact unknown; a file that exists and cannot be read or parsed is an error that names it.

use std::collections::BTreeMap;

use serde::Serialize;
use unvme::{Error, Result};
use unvme_setup::System;

use crate::cpus::Cpus;
use crate::relation::Relation;

/// Level of the cache that the rules are about.
const L3: &str = "3";
const CPU: &str = "/sys/devices/system/cpu";
const NODE: &str = "/sys/devices/system/node";

/// A logical CPU that is online.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Cpu {
    /// Its number.
    pub number: u32,
    /// The socket it is in; `None` where the kernel does not say.
    pub package: Option<u32>,
    /// Its NUMA node; `None` on a machine without nodes.
    pub node: Option<u32>,
    /// The CPUs of its core, itself included: its SMT siblings.
    pub core: Cpus,
    /// The CPUs that share its L3; `None` where no L3 is listed.
    pub l3: Option<Cpus>,
    /// Its share of the performance of the machine's fastest core, in 1024ths; `None` where all are alike.
    pub capacity: Option<u32>,
}

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Node {
    /// Its number.
    pub number: u32,
    /// Its CPUs that are online; none of a node of memory alone.
    pub cpus: Cpus,
    /// Distances to all nodes in their order, 10 to itself; empty where the kernel does not say.
    pub distances: Vec<u32>,
    /// Huge pages of 2 MiB that are reserved on it.
    pub huge_pages: u64,
    /// Those of them that no process has.
    pub huge_pages_free: u64,
    /// False for a node of CPUs alone.
    pub has_memory: bool,
}

/// A machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Topology {
    /// Model name of the processor; empty where the kernel does not say.
    pub model: String,
    /// CPUs that are online, ascending.
    pub cpus: Vec<Cpu>,
    /// CPUs that exist and are offline.
    pub offline: Cpus,
    /// Online CPUs that this process may run on.
    pub usable: Cpus,
    /// CPUs that the scheduler keeps free (`isolcpus=`).
    pub isolated: Cpus,
    /// NUMA nodes, ascending; none where the kernel lists none.
    pub nodes: Vec<Node>,
    /// Governors of the CPU frequency, and the online CPUs that have each; none without cpufreq.
    pub governors: BTreeMap<String, Cpus>,
    /// CPUs' worth of time that a cgroup allows this process; `None` without a limit.
    pub quota: Option<f64>,
    /// What could not be found out, each a sentence.
    pub unknown: Vec<String>,
}

impl Topology {
    /// Reads the topology of `system`.
    ///
    /// # Errors
    /// [`Error::Io`] for a file that exists and cannot be read; [`Error::Argument`] for one that says
    /// something else than the kernel would, with its path and text; when not a single CPU is found in a
    /// copy.
    pub fn read(system: &System) -> Result<Self> {
        let mut unknown = Vec::new();
        let allowed = allowed(system)?;
        let online = match list(system, &format!("{CPU}/online"))? {
            Some(online) => online,
            None => without_sys(system, &allowed, &mut unknown)?,
        };
        let nodes = nodes(system, &online)?;
        let cpus =
            online.iter().map(|cpu| read_cpu(system, cpu, &online, &nodes)).collect::<Result<Vec<_>>>()?;
        let has_core = |cpu: &Cpu| cpu.package.is_some() || cpu.core.len() > 1 || cpu.l3.is_some();
        if unknown.is_empty() && !cpus.iter().any(has_core) {
            unknown
                .push(format!("{CPU}: no topology of its CPUs; which share a core or a cache is not known"));
        }
        let usable = match allowed {
            Some(allowed) => allowed.intersection(&online),
            None => online.clone(),
        };
        if usable.is_empty() {
            return Err(Error::Argument(format!(
                "this process may run on none of the CPUs {online} that are online"
            )));
        }
        let possible = list(system, &format!("{CPU}/present"))?.unwrap_or_default();
        let mut topology = Self {
            model: model(system)?,
            offline: possible.difference(&online),
            isolated: list(system, &format!("{CPU}/isolated"))?.unwrap_or_default().intersection(&online),
            governors: governors(system, &online)?,
            quota: quota(system)?,
            cpus,
            usable,
            nodes,
            unknown,
        };
        topology.rank_hybrid(system)?;
        Ok(topology)
    }

    /// A CPU that is online.
    pub fn cpu(&self, number: u32) -> Option<&Cpu> {
        let place = self.cpus.binary_search_by_key(&number, |cpu| cpu.number).ok()?;
        self.cpus.get(place)
    }

    /// A NUMA node.
    pub fn node(&self, number: u32) -> Option<&Node> {
        self.nodes.iter().find(|node| node.number == number)
    }

    /// Sets of online CPUs that share an L3, each once, by their lowest CPU.
    pub fn l3_domains(&self) -> Vec<&Cpus> {
        let mut domains: Vec<&Cpus> = self.cpus.iter().filter_map(|cpu| cpu.l3.as_ref()).collect();
        domains.sort();
        domains.dedup();
        domains
    }

    /// Number of sockets; 0 where the kernel does not say.
    pub fn packages(&self) -> usize {
        let mut packages: Vec<u32> = self.cpus.iter().filter_map(|cpu| cpu.package).collect();
        packages.sort_unstable();
        packages.dedup();
        packages.len()
    }

    /// Number of physical cores that are online.
    pub fn cores(&self) -> usize {
        self.cpus.iter().filter(|cpu| cpu.core.first() == Some(cpu.number)).count()
    }

    /// How two CPUs relate to each other; [`Relation::Unknown`] when one of them is not online, or nothing is
    /// known of the topology.
    pub fn relation(&self, one: u32, other: u32) -> Relation {
        let (Some(a), Some(b)) = (self.cpu(one), self.cpu(other)) else { return Relation::Unknown };
        if one == other {
            return Relation::SameCpu;
        }
        if a.core.contains(other) {
            return Relation::Sibling;
        }
        // The node before the L3: one L3 may be behind several nodes (sub-NUMA clustering).
        match (a.package, b.package, a.node, b.node) {
            (Some(one), Some(other), ..) if one != other => Relation::OtherSocket,
            (.., Some(one), Some(other)) if one != other => Relation::OtherNode,
            _ if a.l3.as_ref().is_some_and(|l3| l3.contains(other)) => Relation::SameL3,
            _ if a.l3.is_some() && b.l3.is_some() => Relation::OtherL3,
            (Some(_), Some(_), ..) => Relation::SameNode,
            _ => Relation::Unknown,
        }
    }

    /// Distance between two nodes as the firmware reports it, 10 for the same one.
    pub fn distance(&self, from: u32, to: u32) -> u32 {
        let place = self.nodes.iter().position(|node| node.number == to);
        let reported =
            self.node(from).zip(place).and_then(|(node, place)| node.distances.get(place).copied());
        reported.unwrap_or(if from == to { 10 } else { 20 })
    }

    /// Hybrid processors of Intel's have no `cpu_capacity` on most kernels; they list their efficient cores.
    fn rank_hybrid(&mut self, system: &System) -> Result<()> {
        let fastest = self.cpus.iter().filter_map(|cpu| cpu.capacity).max();
        let is_ranked = self.cpus.iter().any(|cpu| cpu.capacity.is_some_and(|own| Some(own) != fastest));
        if is_ranked {
            return Ok(());
        }
        self.cpus.iter_mut().for_each(|cpu| cpu.capacity = None);
        let Some(efficient) = list(system, "/sys/devices/cpu_atom/cpus")? else { return Ok(()) };
        for cpu in &mut self.cpus {
            // Their share is not reported; half is enough to order them.
            cpu.capacity = Some(if efficient.contains(cpu.number) { 512 } else { 1024 });
        }
        Ok(())
    }
}

/// The CPUs that the calling process may use: by its affinity, and in a copy by `/proc/self/status`.
fn allowed(system: &System) -> Result<Option<Cpus>> {
    if system.is_live() {
        let set = rustix::thread::sched_getaffinity(None).map_err(|e| Error::Io {
            what: "ask which CPUs this process may use".into(),
            source: e.into(),
        })?;
        let cpus = (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu));
        return Ok(Some(cpus.map(|cpu| cpu as u32).collect()));
    }
    let status = system.file("/proc/self/status")?.unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.map(|line| parsed("/proc/self/status", line)).transpose()
}

/// The CPUs of a machine without `/sys`, or of a kernel without its list.
fn without_sys(system: &System, allowed: &Option<Cpus>, unknown: &mut Vec<String>) -> Result<Cpus> {
    let listed = system.entries(CPU)?;
    let numbers: Cpus = listed.iter().filter_map(|name| name.strip_prefix("cpu")?.parse().ok()).collect();
    if !numbers.is_empty() {
        return Ok(numbers);
    }
    match allowed {
        Some(allowed) => {
            unknown.push(format!(
                "{CPU} is missing: which CPUs share a core, a cache or a node is not known; they are taken for alike"
            ));
            Ok(allowed.clone())
        }
        None => Err(Error::Argument(format!(
            "{CPU}/online is missing; expected a copy of a machine's /sys, or of its root directory"
        ))),
    }
}

fn read_cpu(system: &System, number: u32, online: &Cpus, nodes: &[Node]) -> Result<Cpu> {
    let dir = format!("{CPU}/cpu{number}");
    let siblings = match list(system, &format!("{dir}/topology/core_cpus_list"))? {
        None => list(system, &format!("{dir}/topology/thread_siblings_list"))?,
        found => found,
    };
    let mut core = siblings.unwrap_or_default().intersection(online);
    core.insert(number);
    Ok(Cpu {
        number,
        package: identifier(system, &format!("{dir}/topology/physical_package_id"))?,
        node: nodes.iter().find(|node| node.cpus.contains(number)).map(|node| node.number),
        core,
        l3: l3(system, &dir, number)?.map(|cpus| cpus.intersection(online)),
        capacity: identifier(system, &format!("{dir}/cpu_capacity"))?,
    })
}

fn l3(system: &System, dir: &str, number: u32) -> Result<Option<Cpus>> {
    for index in system.entries(&format!("{dir}/cache"))? {
        if !index.starts_with("index") {
            continue;
        }
        let level = system.file(&format!("{dir}/cache/{index}/level"))?;
        if level.as_deref().is_some_and(|level| level.parse::<u32>().is_err()) {
            let path = format!("{dir}/cache/{index}/level");
            return Err(wrong(&path, &level.unwrap_or_default(), "a number"));
        }
        if level.as_deref() == Some(L3) {
            let path = format!("{dir}/cache/{index}/shared_cpu_list");
            let shared = list(system, &path)?;
            return match shared {
                Some(cpus) if !cpus.contains(number) => {
                    Err(wrong(&path, &cpus.to_string(), &format!("a list with CPU {number} in it")))
                }
                shared => Ok(shared),
            };
        }
    }
    Ok(None)
}

fn nodes(system: &System, online: &Cpus) -> Result<Vec<Node>> {
    let names = system.entries(NODE)?;
    let numbers = names.iter().filter_map(|name| name.strip_prefix("node")?.parse::<u32>().ok());
    let with_memory = list(system, &format!("{NODE}/has_memory"))?;
    let mut nodes = Vec::new();
    for number in numbers {
        let dir = format!("{NODE}/node{number}");
        let distances = system.file(&format!("{dir}/distance"))?.unwrap_or_default();
        let pages = |name: &str| -> Result<u64> {
            let path = format!("{dir}/hugepages/hugepages-2048kB/{name}");
            let text = system.file(&path)?;
            let count = text.map(|text| text.parse().map_err(|_| wrong(&path, &text, "a number")));
            Ok(count.transpose()?.unwrap_or(0))
        };
        nodes.push(Node {
            number,
            cpus: list(system, &format!("{dir}/cpulist"))?.unwrap_or_default().intersection(online),
            distances: distances
                .split_ascii_whitespace()
                .map(|text| text.parse().map_err(|_| wrong(&format!("{dir}/distance"), text, "a number")))
                .collect::<Result<_>>()?,
            huge_pages: pages("nr_hugepages")?,
            huge_pages_free: pages("free_hugepages")?,
            has_memory: with_memory.as_ref().is_none_or(|nodes| nodes.contains(number)),
        });
    }
    Ok(nodes)
}

fn governors(system: &System, online: &Cpus) -> Result<BTreeMap<String, Cpus>> {
    let mut governors: BTreeMap<String, Cpus> = BTreeMap::new();
    for cpu in online.iter() {
        if let Some(governor) = system.file(&format!("{CPU}/cpu{cpu}/cpufreq/scaling_governor"))? {
            governors.entry(governor).or_default().insert(cpu);
        }
    }
    Ok(governors)
}

/// The least quota of the cgroups that this process is in, in CPUs.
fn quota(system: &System) -> Result<Option<f64>> {
    let groups = system.file("/proc/self/cgroup")?.unwrap_or_default();
    let mut least: Option<f64> = None;
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
            return Err(wrong("/proc/self/cgroup", line, "ID:CONTROLLERS:PATH"));
        };
        let is_v2 = controllers.is_empty();
        if !is_v2 && !controllers.split(',').any(|name| name == "cpu") {
            continue;
        }
        let mounts: &[&str] =
            if is_v2 { &["/sys/fs/cgroup", "/sys/fs/cgroup/unified"] } else { &["/sys/fs/cgroup/cpu"] };
        for mount in mounts {
            let mut path = path.trim_end_matches('/');
            loop {
                let own = match is_v2 {
                    true => quota_v2(system, &format!("{mount}{path}/cpu.max"))?,
                    false => quota_v1(system, &format!("{mount}{path}"))?,
                };
                least = least.into_iter().chain(own).reduce(f64::min);
                let Some((parent, _)) = path.rsplit_once('/') else { break };
                path = parent;
            }
        }
    }
    Ok(least)
}

fn quota_v2(system: &System, path: &str) -> Result<Option<f64>> {
    let Some(text) = system.file(path)? else { return Ok(None) };
    let expected = "QUOTA PERIOD in microseconds, or max";
    let (quota, period) = text.split_once(' ').ok_or_else(|| wrong(path, &text, expected))?;
    if quota == "max" {
        return Ok(None);
    }
    let number = |text: &str| {
        text.parse::<u64>().ok().filter(|&number| number > 0).ok_or_else(|| wrong(path, text, expected))
    };
    Ok(Some(number(quota)? as f64 / number(period)? as f64))
}

fn quota_v1(system: &System, dir: &str) -> Result<Option<f64>> {
    let number = |name: &str| -> Result<Option<i64>> {
        let path = format!("{dir}/{name}");
        let text = system.file(&path)?;
        text.map(|text| text.parse().map_err(|_| wrong(&path, &text, "microseconds, or -1"))).transpose()
    };
    let quota = number("cpu.cfs_quota_us")?.filter(|&quota| quota > 0);
    match (quota, number("cpu.cfs_period_us")?) {
        (None, _) => Ok(None),
        (Some(quota), Some(period)) if period > 0 => Ok(Some(quota as f64 / period as f64)),
        (Some(_), period) => {
            let found = period.map_or_else(|| "nothing".to_owned(), |period| period.to_string());
            Err(wrong(&format!("{dir}/cpu.cfs_period_us"), &found, "microseconds"))
        }
    }
}

/// The processor's name, as `lscpu` finds it.
fn model(system: &System) -> Result<String> {
    let text = system.file("/proc/cpuinfo")?.unwrap_or_default();
    let field = |key: &str| {
        text.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == key).then(|| value.trim().to_owned())
        })
    };
    Ok(field("model name").or_else(|| field("Model")).or_else(|| field("CPU part")).unwrap_or_default())
}

/// A list of CPUs in a file; `None` without the file.
pub(crate) fn list(system: &System, path: &str) -> Result<Option<Cpus>> {
    system.file(path)?.map(|text| parsed(path, &text)).transpose()
}

fn parsed(path: &str, text: &str) -> Result<Cpus> {
    text.parse().map_err(|error| Error::Argument(format!("{path}: {error}")))
}

/// A number that is not negative; `None` without the file, and for -1, which says that there is none.
fn identifier(system: &System, path: &str) -> Result<Option<u32>> {
    let Some(text) = system.file(path)? else { return Ok(None) };
    match text.parse::<i64>().ok().map(|number| (number, u32::try_from(number))) {
        Some((-1, _)) => Ok(None),
        Some((_, Ok(number))) => Ok(Some(number)),
        _ => Err(wrong(path, &text, "a number, or -1 for none")),
    }
}

fn wrong(path: &str, text: &str, expected: &str) -> Error {
    let shown: String = text.chars().take(80).collect();
    Error::Argument(format!("{path}: found `{shown}`, expected {expected}"))
}
