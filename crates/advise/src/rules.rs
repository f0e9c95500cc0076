//! The rules of placement: from a topology, devices and what was measured to the CPUs of each device.
//!
//! They are those of the guide (sections 6.1.3 and 7.8.1): threads of a device run on its NUMA node; the
//! completion thread has a core of its own behind the L3 of its submitters; a few devices share a pair of
//! cores, as many as a core serves without loss; no core does the work of two pairs while others are free.

use serde::Serialize;
use unvme_guide::placement::CPUS_MAX;

use crate::cpus::Cpus;
use crate::location::{Location, Reach};
use crate::order::{completing_cpu, first_of_core, order};
use crate::relation::Relation;
use crate::topology::Topology;

/// What the placement is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    /// Most commands in a second with the fewest cores.
    #[default]
    Throughput,
    /// The shortest tail of the latency at low depth.
    Latency,
}

/// How many devices a core serves without loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PerCore {
    /// Devices that one CPU submits to.
    pub submitting: usize,
    /// Devices that one CPU completes for.
    pub completing: usize,
    /// True for figures of this machine; else they are the guide's.
    pub is_measured: bool,
}

impl PerCore {
    /// The figures of the guide's own machine, where nothing was measured (section 7.8.1, first step).
    pub fn of_guide(goal: Goal) -> Self {
        match goal {
            Goal::Throughput => Self { submitting: 4, completing: 4, is_measured: false },
            Goal::Latency => Self { submitting: 2, completing: 8, is_measured: false },
        }
    }
}

/// What is asked of the rules.
#[derive(Clone, Copy, Debug)]
pub struct AssignOptions {
    /// Devices on a core.
    pub per_core: PerCore,
    /// Threads that submit poll for completions themselves, and there are no completion threads.
    pub polls: bool,
    /// Queues of each device, each with a submitting CPU of its own, as far as there are CPUs.
    pub queues: usize,
    /// How the completing CPU relates to the first submitting one, where a measurement tells; the rules
    /// choose where there is none.
    pub completing: Option<Relation>,
    /// The same for a device with several queues.
    pub completing_many: Option<Relation>,
}

impl AssignOptions {
    /// True where a thread that submits needs no second CPU.
    fn is_alone(self) -> bool {
        self.polls || self.completing == Some(Relation::SameCpu)
    }

    /// True where the completing CPU is to be a core of its own behind the same L3.
    fn is_beside(self) -> bool {
        !self.is_alone() && matches!(self.completing, None | Some(Relation::SameL3))
    }
}

/// A device with its CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Assigned {
    /// Index of the device.
    pub device: usize,
    /// CPUs of the threads that submit: `core_mask`.
    pub submit: Cpus,
    /// CPUs of completion threads: `cq_thread_mask`; none where the program polls.
    pub complete: Cpus,
    /// How the completing CPU relates to the first submitting one; `None` where the program polls.
    pub relation: Option<Relation>,
}

/// CPUs for all devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Assignment {
    /// One for each device, in their order.
    pub devices: Vec<Assigned>,
    /// Rules that this machine or this process does not let be followed, each a sentence.
    pub notes: Vec<String>,
}

impl Assignment {
    /// All CPUs that threads run on.
    pub fn cpus(&self) -> Cpus {
        self.devices.iter().flat_map(|own| own.submit.iter().chain(own.complete.iter())).collect()
    }
}

/// CPUs, and which of them have been assigned.
struct Pool<'a> {
    topology: &'a Topology,
    /// Assigned CPUs, in the order of their assignment.
    used: Vec<u32>,
    notes: Vec<String>,
}

/// Gives each device its CPUs. Devices of a node are dealt to groups, and each group gets cores of that node
/// behind one L3. CPUs that masks cannot name, those from 64 on, are left out.
pub fn assign(topology: &Topology, devices: &[Location], options: AssignOptions) -> Assignment {
    let mut pool = Pool { topology, used: Vec::new(), notes: Vec::new() };
    let mut assigned: Vec<Option<Assigned>> = vec![None; devices.len()];
    let mut nodes: Vec<Option<u32>> = devices.iter().map(|device| device.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    for node in nodes {
        let own: Vec<usize> = (0..devices.len()).filter(|&at| devices[at].node == node).collect();
        let many = AssignOptions { completing: options.completing_many, ..options };
        let queues = pool.queues(node, own.len(), many);
        let options = AssignOptions { queues, ..if queues > 1 { many } else { options } };
        for group in own.chunks(pool.group(node, options)) {
            pool.assign_group(node, group, options, &mut assigned);
        }
        pool.explain(&own, devices, options, &assigned);
    }
    let limit = topology.quota.map(|quota| quota.floor().max(1.0) as usize);
    let mut assignment = Assignment { devices: assigned.into_iter().flatten().collect(), notes: pool.notes };
    let threads = assignment.cpus().len();
    if let Some(limit) = limit.filter(|&limit| threads > limit) {
        assignment.notes.push(format!(
            "a cgroup gives this process {:.1} CPUs' worth of time, and these are {threads} CPUs: threads that poll \
             are throttled; raise the quota, or keep to {limit}",
            topology.quota.unwrap_or_default()
        ));
    }
    assignment
}

impl Pool<'_> {
    /// The CPUs for a node that masks can name, or all where masks can name none: free ones first.
    fn candidates(&self, node: Option<u32>) -> Vec<u32> {
        let mut cpus = order(self.topology, node);
        if cpus.iter().any(|&cpu| cpu < CPUS_MAX) {
            cpus.retain(|&cpu| cpu < CPUS_MAX);
        }
        // A stable sort by the number of assignments.
        cpus.sort_by_key(|cpu| self.used.iter().filter(|used| *used == cpu).count());
        let near = |cpu: u32| self.is_near(node, cpu);
        // A core of the node that is shared is better than a free one of another node.
        let (near, far): (Vec<u32>, Vec<u32>) = cpus.into_iter().partition(|&cpu| near(cpu));
        let near = if near.is_empty() { far } else { near };
        // Other CPUs run what the scheduler puts there, so two isolated ones are enough.
        let isolated: Vec<u32> =
            near.iter().copied().filter(|&cpu| self.topology.isolated.contains(cpu)).collect();
        if isolated.len() < 2 { near } else { isolated }
    }

    fn is_near(&self, node: Option<u32>, cpu: u32) -> bool {
        let of = self.topology.cpu(cpu).and_then(|cpu| cpu.node);
        node.zip(of).is_none_or(|(node, of)| node == of)
    }

    /// Devices of one group: no more than what the cores behind one L3 take, the completing CPU included.
    fn group(&self, node: Option<u32>, options: AssignOptions) -> usize {
        let shared = options.per_core.submitting.max(1);
        if options.polls || options.queues > 1 {
            return shared;
        }
        let all = options.per_core.completing.max(1);
        if !options.is_beside() {
            return all;
        }
        let cores: Cpus =
            self.candidates(node).into_iter().filter(|&cpu| self.is_first_of_core(cpu)).collect();
        let of = |domain: &Cpus| domain.intersection(&cores).len();
        let largest = self.topology.l3_domains().into_iter().map(of).max().unwrap_or(0);
        if largest < 2 { all } else { all.min((largest - 1) * shared) }
    }

    /// CPUs for one group: submitting ones, each for as many devices as it serves, and a completing one.
    fn assign_group(
        &mut self,
        node: Option<u32>,
        group: &[usize],
        options: AssignOptions,
        assigned: &mut [Option<Assigned>],
    ) {
        let shared = options.per_core.submitting.max(1);
        if options.queues > 1 {
            group.chunks(shared).for_each(|devices| self.assign_queues(node, devices, options, assigned));
            return;
        }
        let (submitting, complete) = self.pick(&self.candidates(node), group.len().div_ceil(shared), options);
        for (share, devices) in group.chunks(shared).enumerate() {
            let Some(&submit) = submitting.get(share % submitting.len().max(1)) else { continue };
            let complete = if options.is_alone() { Some(submit) } else { complete };
            let complete = complete.filter(|_| !options.polls);
            for &device in devices {
                assigned[device] = Some(Assigned {
                    device,
                    submit: Cpus::one(submit),
                    complete: complete.into_iter().collect(),
                    relation: complete.map(|complete| self.topology.relation(submit, complete)),
                });
            }
        }
        self.used.extend(submitting);
        self.used.extend(complete);
    }

    /// Several queues for devices that share them, each with CPUs of its own as far as there are free ones.
    fn assign_queues(
        &mut self,
        node: Option<u32>,
        devices: &[usize],
        options: AssignOptions,
        assigned: &mut [Option<Assigned>],
    ) {
        let mut own =
            Assigned { device: 0, submit: Cpus::default(), complete: Cpus::default(), relation: None };
        for queue in 0..options.queues {
            let mut candidates = self.candidates(node);
            candidates.retain(|&cpu| !own.submit.contains(cpu));
            if queue > 0 && candidates.first().is_none_or(|&cpu| !self.is_free(cpu)) {
                break;
            }
            let (submitting, complete) = self.pick(&candidates, 1, options);
            let Some(&submit) = submitting.first() else { break };
            own.submit.insert(submit);
            self.used.push(submit);
            let complete = if options.is_alone() { Some(submit) } else { complete };
            if let Some(complete) = complete.filter(|_| !options.polls) {
                own.complete.insert(complete);
                own.relation.get_or_insert(self.topology.relation(submit, complete));
                self.used.extend((complete != submit).then_some(complete));
            }
        }
        for &device in devices {
            assigned[device] = Some(Assigned { device, ..own.clone() });
        }
    }

    /// Queues of each of `devices` on a node: as many as are asked for, and as there are cores for.
    fn queues(&self, node: Option<u32>, devices: usize, options: AssignOptions) -> usize {
        let each = if options.is_alone() { 1 } else { 2 };
        let cores = self.candidates(node).into_iter().filter(|&cpu| self.is_first_of_core(cpu)).count();
        let shares = devices.div_ceil(options.per_core.submitting.max(1)).max(1);
        options.queues.min(cores / (shares * each)).max(1)
    }

    fn is_free(&self, cpu: u32) -> bool {
        !self.used.contains(&cpu)
    }

    /// True for the first usable CPU of its core.
    fn is_first_of_core(&self, cpu: u32) -> bool {
        first_of_core(self.topology, cpu) == Some(cpu)
    }

    /// `count` free cores behind one L3; `None` where no L3 has as many.
    fn behind_one_l3(&self, candidates: &[u32], count: usize) -> Option<Vec<u32>> {
        candidates.iter().find_map(|&start| {
            let domain = self.topology.cpu(start)?.l3.as_ref()?;
            let is_fit =
                |cpu: &u32| domain.contains(*cpu) && self.is_free(*cpu) && self.is_first_of_core(*cpu);
            let own: Vec<u32> = candidates.iter().copied().filter(is_fit).take(count).collect();
            (own.len() == count).then_some(own)
        })
    }

    /// Up to `count` submitting CPUs, and the completing one where the options have one: all behind one L3
    /// where one has enough free cores, else at least the first submitting CPU and the completing one.
    fn pick(&self, candidates: &[u32], count: usize, options: AssignOptions) -> (Vec<u32>, Option<u32>) {
        if options.is_alone() {
            let whole = self.behind_one_l3(candidates, count);
            return (whole.unwrap_or_else(|| candidates.iter().copied().take(count).collect()), None);
        }
        let whole = self.behind_one_l3(candidates, count + 1).filter(|_| options.is_beside());
        if let Some(mut whole) = whole {
            let complete = whole.pop();
            return (whole, complete);
        }
        let pair = self.behind_one_l3(candidates, 2).filter(|_| options.is_beside());
        let (first, complete) = match (pair.as_deref(), candidates.first()) {
            (Some(&[first, complete]), _) => (first, complete),
            (_, Some(&first)) => (first, self.completing(candidates, first, options)),
            (_, None) => return (Vec::new(), None),
        };
        let others = candidates.iter().copied().filter(|&cpu| cpu != first && cpu != complete);
        (std::iter::once(first).chain(others).take(count).collect(), Some(complete))
    }

    /// The completing CPU: of the relation that was measured to be the best, else the best one by the rules;
    /// free CPUs go before assigned ones.
    fn completing(&self, candidates: &[u32], first: u32, options: AssignOptions) -> u32 {
        let others: Vec<u32> = candidates.iter().copied().filter(|&cpu| cpu != first).collect();
        let free: Vec<u32> = others.iter().copied().filter(|&cpu| self.is_free(cpu)).collect();
        let among = if free.is_empty() { &others } else { &free };
        let is_preferred = |cpu: &u32| Some(self.topology.relation(first, *cpu)) == options.completing;
        let preferred = among.iter().copied().find(is_preferred);
        preferred.or_else(|| completing_cpu(self.topology, first, among)).unwrap_or(first)
    }

    /// Says which rules the devices of a node could not get.
    fn explain(
        &mut self,
        own: &[usize],
        devices: &[Location],
        options: AssignOptions,
        assigned: &[Option<Assigned>],
    ) {
        let node = own.first().and_then(|&at| devices[at].node);
        let names = own.iter().map(|&at| devices[at].name.as_str()).collect::<Vec<_>>().join(", ");
        let placed: Vec<&Assigned> = own.iter().filter_map(|&at| assigned[at].as_ref()).collect();
        if let Some(node) = node {
            let is_far = |own: &&Assigned| own.submit.iter().any(|cpu| !self.is_near(Some(node), cpu));
            if placed.iter().any(is_far) {
                let reason = match self.topology.node(node) {
                    None => "that node has no CPU that is online".to_owned(),
                    Some(of) if of.cpus.is_empty() => {
                        "that node has memory and no CPU that is online".to_owned()
                    }
                    Some(of) if of.cpus.intersection(&self.topology.usable).is_empty() => {
                        format!("this process may run on none of its CPUs {}", of.cpus)
                    }
                    Some(of) => {
                        format!("masks name CPUs 0 to {}, and its CPUs are {}", CPUS_MAX - 1, of.cpus)
                    }
                };
                self.notes
                    .push(format!("{names}: on node {node}, and {reason}: every command crosses nodes"));
            }
        } else if self.topology.nodes.len() > 1 {
            let is_drive =
                |at: &&usize| matches!(devices[**at].reach, Reach::UserSpace | Reach::Kernel | Reach::Other);
            let lost: Vec<&str> = own.iter().filter(is_drive).map(|&at| devices[at].name.as_str()).collect();
            if !lost.is_empty() {
                self.notes.push(format!(
                    "{}: the firmware does not say which node it is on; `unvme perf -c` on CPUs of each node tells",
                    lost.join(", ")
                ));
            }
        }
        let mut relations: Vec<Relation> = placed.iter().filter_map(|own| own.relation).collect();
        relations.sort_unstable();
        relations.dedup();
        relations.retain(|relation| Some(*relation) != options.completing);
        for relation in relations {
            let concerned = placed.iter().filter(|own| own.relation == Some(relation));
            let names: Vec<&str> = concerned.map(|own| devices[own.device].name.as_str()).collect();
            let names = names.join(", ");
            match relation {
                Relation::SameL3 | Relation::SameNode | Relation::Unknown => {}
                Relation::SameCpu => self.notes.push(format!(
                    "{names}: one CPU submits and completes, as there is no other: expect less of both"
                )),
                other => self.notes.push(format!(
                    "{names}: the relation of the completing CPU to the submitting one is \"{other}\": no free core \
                     shares an L3 with the submitting one"
                )),
            }
        }
    }
}
