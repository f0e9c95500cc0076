//! The placements that are measured: one of each class that the machine has, and the guide's tables.

use serde::Serialize;

use crate::cpus::Cpus;
use crate::location::Location;
use crate::measure::{Completing, Layout, Placed};
use crate::order::{completing_cpu, first_of_core, order};
use crate::relation::Relation;
use crate::topology::Topology;

/// Depth of what is measured for the tail of its latency: that of the guide's Figure 32.
pub(crate) const LOW_DEPTH: u16 = 8;
/// Usable CPUs up to which each one is measured; beyond, one of each class is.
const EACH_CPU_MAX: usize = 8;
/// Devices on a core in the advice and in the guide's Figure 31.
const DEVICES: [usize; 4] = [1, 2, 3, 4];
/// Those of its Figure 32.
const DEVICES_QOS: [usize; 4] = [1, 2, 4, 8];

/// What is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sweep {
    /// What advice needs.
    #[default]
    Advice,
    /// The guide's Figure 10: devices on their own nodes and cores, and not.
    Affinity,
    /// Its Figure 13: both threads behind one L3, and behind two.
    L3,
    /// Its Figure 31: devices on one core, by rate.
    Devices,
    /// Its Figure 32: devices on one core, by the tail of the read latency at depth 8.
    Qos,
}

impl Sweep {
    /// Devices that it measures together at most.
    pub fn devices(self) -> usize {
        match self {
            Self::Advice | Self::Devices => DEVICES[DEVICES.len() - 1],
            Self::Affinity => 2,
            Self::L3 => 1,
            Self::Qos => DEVICES_QOS[DEVICES_QOS.len() - 1],
        }
    }
}

/// What a plan is made for.
#[derive(Clone, Copy, Debug)]
pub struct PlanOptions<'a> {
    /// What is measured.
    pub sweep: Sweep,
    /// Commands that each queue keeps outstanding.
    pub depth: u16,
    /// Queues that the first device has: more are not planned for it.
    pub queues_max: usize,
    /// CPUs that processes which serve devices need.
    pub served: usize,
    /// Indices of the devices that are like the first one, it included: only those are measured together.
    pub alike: &'a [usize],
}

/// A layout at a depth.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Case {
    /// Its queues.
    pub layout: Layout,
    /// Commands that each queue keeps outstanding.
    pub depth: u16,
}

impl Case {
    /// Number of devices.
    pub fn devices(&self) -> usize {
        let mut devices: Vec<usize> = self.layout.iter().map(|placed| placed.device).collect();
        devices.sort_unstable();
        devices.dedup();
        devices.len().max(1)
    }

    /// CPUs that its threads run on.
    pub fn cpus(&self) -> Cpus {
        let completing = self.layout.iter().filter_map(|placed| match placed.complete {
            Completing::Polled => None,
            Completing::Thread(cpu) => Some(cpu),
        });
        self.layout.iter().map(|placed| placed.submit).chain(completing).collect()
    }

    /// True when a thread that submits has its CPU for itself.
    pub fn has_own_cpus(&self) -> bool {
        self.layout.iter().all(|placed| {
            !self.layout.iter().any(|other| other.complete == Completing::Thread(placed.submit))
        })
    }
}

/// A row of a choice.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Alternative {
    /// Its name.
    pub name: String,
    /// Index of the case at the depth for rates.
    pub case: usize,
    /// Index of the case at the low depth.
    pub low: usize,
    /// How the CPUs of both threads relate, where there are two.
    pub relation: Option<Relation>,
}

/// Something to choose, and what there is to choose from; the first one is what the others are compared with.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Choice {
    /// What is chosen.
    pub kind: ChoiceKind,
    /// A title for people.
    pub title: String,
    /// The rows.
    pub alternatives: Vec<Alternative>,
}

/// What a choice is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChoiceKind {
    /// The CPU of a thread that submits and polls.
    Cpu,
    /// The completing thread, and its CPU.
    Completing,
    /// Queues of one device, each polled by a thread of its own.
    Queues,
    /// Queues of one device with completion threads.
    QueuesApart,
    /// Devices of one thread that polls.
    DevicesPolled,
    /// Devices of one submitting and one completing thread.
    DevicesApart,
}

impl ChoiceKind {
    /// True where figures are those of one device.
    pub fn is_per_device(self) -> bool {
        matches!(self, Self::DevicesPolled | Self::DevicesApart)
    }
}

/// What a cell shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// Thousands of commands in a second, of each device.
    KiopsPerDevice,
    /// 99.99th percentile of the latency in microseconds.
    P9999,
    /// Longest latency in microseconds.
    Max,
}

/// A cell of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Cell {
    /// Index of the case; `None` where it was not measured.
    pub case: Option<usize>,
    /// What of it.
    pub quantity: Quantity,
}

/// A table of the guide's.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Table {
    /// Its title.
    pub title: String,
    /// Its columns, without that of the names.
    pub columns: Vec<String>,
    /// Names of the rows, and their cells.
    pub rows: Vec<(String, Vec<Cell>)>,
}

/// What is not measured on this machine, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Missing {
    /// What.
    pub what: String,
    /// Why not.
    pub why: String,
}

/// Everything that is measured.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Plan {
    /// Each case once.
    pub cases: Vec<Case>,
    /// Choices among them.
    pub choices: Vec<Choice>,
    /// The guide's tables.
    pub tables: Vec<Table>,
    /// What is left out.
    pub missing: Vec<Missing>,
    /// CPUs that a case may use and be judged: what affinity and quota allow, less those of processes that
    /// serve devices.
    pub free_cpus: usize,
}

impl Plan {
    /// Plans a sweep over `devices`, of which the first one stands for all where one is measured.
    pub fn new(topology: &Topology, devices: &[Location], options: PlanOptions<'_>) -> Self {
        let PlanOptions { sweep, depth, queues_max, served, alike } = options;
        let node = devices.first().and_then(|device| device.node);
        let usable = topology.usable.len();
        let allowed = topology.quota.map_or(usable, |quota| usable.min(quota.floor().max(1.0) as usize));
        let free_cpus = allowed.saturating_sub(served);
        let plan = Self { free_cpus, ..Self::default() };
        let mut planning =
            Planning { topology, devices, alike, depth, queues_max, cpus: order(topology, node), plan };
        match sweep {
            Sweep::Advice => planning.advice(),
            Sweep::Affinity => planning.affinity(),
            Sweep::L3 => planning.l3(),
            Sweep::Devices => planning.devices_by_rate(),
            Sweep::Qos => planning.devices_by_tail(),
        }
        planning.plan
    }

    /// True for a case that leaves a CPU to each process that serves a device, and keeps within the quota.
    pub fn leaves_cpus(&self, case: usize) -> bool {
        self.cases.get(case).is_some_and(|case| case.cpus().len() <= self.free_cpus.max(1))
    }

    /// The choice of a kind.
    pub fn choice(&self, kind: ChoiceKind) -> Option<&Choice> {
        self.choices.iter().find(|choice| choice.kind == kind)
    }
}

/// Numbers of queues up to `most`: powers of two, and `most` itself.
fn counts(most: usize) -> Vec<usize> {
    let mut counts: Vec<usize> =
        std::iter::successors(Some(1), |count| Some(count * 2)).take_while(|&count| count < most).collect();
    counts.extend((most > 0).then_some(most));
    counts
}

struct Planning<'a> {
    topology: &'a Topology,
    devices: &'a [Location],
    alike: &'a [usize],
    depth: u16,
    /// Queues that the first device has.
    queues_max: usize,
    /// Usable CPUs for the first device, the best one first.
    cpus: Vec<u32>,
    plan: Plan,
}

fn polled(device: usize, submit: u32) -> Placed {
    Placed { device, submit, complete: Completing::Polled }
}

fn apart(device: usize, submit: u32, complete: u32) -> Placed {
    Placed { device, submit, complete: Completing::Thread(complete) }
}

impl Planning<'_> {
    /// The index of a case; known ones are measured once.
    fn case(&mut self, mut layout: Layout, depth: u16) -> usize {
        layout.sort_unstable();
        let case = Case { layout, depth };
        match self.plan.cases.iter().position(|known| *known == case) {
            Some(known) => known,
            None => {
                self.plan.cases.push(case);
                self.plan.cases.len() - 1
            }
        }
    }

    fn alternative(&mut self, name: String, layout: Layout, relation: Option<Relation>) -> Alternative {
        let depth = self.depth;
        let case = self.case(layout.clone(), depth);
        let low = self.case(layout, LOW_DEPTH.min(depth));
        Alternative { name, case, low, relation }
    }

    fn missing(&mut self, what: impl Into<String>, why: impl Into<String>) {
        let missing = Missing { what: what.into(), why: why.into() };
        if !self.plan.missing.contains(&missing) {
            self.plan.missing.push(missing);
        }
    }

    /// The best CPU, and the best one beside it; the same where there is no other.
    fn pair(&self) -> (u32, u32) {
        let first = self.cpus.first().copied().unwrap_or(0);
        let others: Vec<u32> = self.cpus.iter().copied().filter(|&cpu| cpu != first).collect();
        (first, completing_cpu(self.topology, first, &others).unwrap_or(first))
    }

    /// The first CPU that relates so to the best one.
    fn of_class(&self, class: Relation) -> Option<u32> {
        let first = *self.cpus.first()?;
        self.cpus.iter().copied().find(|&cpu| self.topology.relation(first, cpu) == class)
    }

    fn is_on_first_node(&self, cpu: u32) -> bool {
        let node = |cpu: u32| self.topology.cpu(cpu).and_then(|cpu| cpu.node);
        self.cpus.first().is_none_or(|&first| node(first) == node(cpu))
    }

    /// Why no usable CPU relates so to the best one.
    fn absence(&self, class: Relation) -> String {
        if !self.topology.unknown.is_empty() {
            return "the topology is not known".to_owned();
        }
        if matches!(class, Relation::SameL3 | Relation::OtherL3) && self.topology.l3_domains().is_empty() {
            return "no L3 is listed".to_owned();
        }
        let exists = self
            .cpus
            .iter()
            .any(|&one| self.cpus.iter().any(|&other| self.topology.relation(one, other) == class));
        match (exists, self.cpus.first()) {
            (true, Some(first)) => format!("CPU {first}, from which the classes are measured, has none"),
            _ => class.absence().to_owned(),
        }
    }

    /// CPUs of cores of their own, the best one first.
    fn cores(&self) -> Vec<u32> {
        let is_first = |cpu: &u32| first_of_core(self.topology, *cpu).is_none_or(|first| first == *cpu);
        self.cpus.iter().copied().filter(is_first).collect()
    }

    fn advice(&mut self) {
        self.choice_of_cpu();
        self.choice_of_completing();
        self.choice_of_queues();
        self.choice_of_queues_apart();
        self.choice_of_devices();
    }

    fn choice_of_cpu(&mut self) {
        let (first, _) = self.pair();
        let mut chosen = vec![first];
        if self.cpus.len() <= EACH_CPU_MAX {
            chosen.extend(self.cpus.iter().copied().filter(|&cpu| cpu != first));
        } else {
            chosen.extend(Relation::ALL.iter().skip(1).filter_map(|&class| self.of_class(class)));
        }
        let options = chosen
            .into_iter()
            .map(|cpu| {
                let relation = self.topology.relation(first, cpu);
                let name = match relation {
                    Relation::SameCpu => format!("CPU {cpu}"),
                    relation => format!("CPU {cpu} ({relation})"),
                };
                self.alternative(name, vec![polled(0, cpu)], None)
            })
            .collect();
        self.choice(ChoiceKind::Cpu, "CPU of a thread that submits and polls", options);
    }

    fn choice_of_completing(&mut self) {
        let (first, _) = self.pair();
        let mut options =
            vec![self.alternative(format!("polled by CPU {first}"), vec![polled(0, first)], None)];
        for class in Relation::ALL.into_iter().chain([Relation::Unknown]) {
            match self.of_class(class) {
                Some(cpu) => {
                    let name = format!("by CPU {cpu} ({class})");
                    options.push(self.alternative(name, vec![apart(0, first, cpu)], Some(class)));
                }
                None if class == Relation::Unknown || class == Relation::SameNode => {}
                None => self.missing(format!("completion thread: {class}"), self.absence(class)),
            }
        }
        self.choice(ChoiceKind::Completing, "Completion of what one thread submits", options);
    }

    fn choice_of_queues(&mut self) {
        let cores = self.cores();
        let most = self.queues_of(cores.len());
        let options = counts(most)
            .into_iter()
            .map(|count| {
                let used = &cores[..count];
                let listed: Cpus = used.iter().copied().collect();
                let layout = used.iter().map(|&cpu| polled(0, cpu)).collect();
                let name = format!("{count} on CPU{} {listed}", if count == 1 { "" } else { "s" });
                self.alternative(name, layout, None)
            })
            .collect();
        self.choice(ChoiceKind::Queues, "Queues of one device, each polled by a thread of its own", options);
    }

    /// As many queues as there are cores for them, and as the device has.
    fn queues_of(&mut self, cores: usize) -> usize {
        if cores > self.queues_max {
            let why = format!("the device has {}", self.queues_max);
            self.missing(format!("{cores} queues of one device"), why);
        }
        cores.min(self.queues_max.max(1))
    }

    /// `count` pairs of cores, each of a submitting and the best completing one of those that are left.
    fn pairs(&self, cores: &[u32], count: usize) -> Vec<[u32; 2]> {
        let mut left = cores.to_vec();
        let mut pairs = Vec::new();
        while pairs.len() < count && left.len() >= 2 {
            // A core whose L3 has no other left is for the end.
            let has_other =
                |one: u32| left.iter().any(|&other| self.topology.relation(one, other) == Relation::SameL3);
            let at = left.iter().position(|&one| has_other(one)).unwrap_or(0);
            let submit = left.remove(at);
            let Some(complete) = completing_cpu(self.topology, submit, &left) else { break };
            left.retain(|&cpu| cpu != complete);
            pairs.push([submit, complete]);
        }
        pairs
    }

    /// One pair of CPUs; several CPUs of which each completes what it submits; several pairs.
    fn choice_of_queues_apart(&mut self) {
        let (submit, complete) = self.pair();
        let relation = |own: &Self, one, other| Some(own.topology.relation(one, other));
        let name = |count: usize, how: &str, cpus: &[u32]| {
            let listed: Cpus = cpus.iter().copied().collect();
            let is_one = cpus.iter().all(|cpu| *cpu == cpus[0]);
            format!("{count} on CPU{} {listed}{how}", if is_one { "" } else { "s" })
        };
        let how = if submit == complete { "" } else { ", pair" };
        let first = relation(self, submit, complete);
        let mut options = vec![self.alternative(
            name(1, how, &[submit, complete]),
            vec![apart(0, submit, complete)],
            first,
        )];
        let cores = self.cores();
        for count in counts(self.queues_of(cores.len())).into_iter().filter(|&count| count > 1) {
            let used = &cores[..count];
            let layout = used.iter().map(|&cpu| apart(0, cpu, cpu)).collect();
            let name = name(count, ", same CPU", used);
            options.push(self.alternative(name, layout, Some(Relation::SameCpu)));
        }
        for count in counts(self.queues_of(cores.len() / 2)).into_iter().filter(|&count| count > 1) {
            let pairs = self.pairs(&cores, count);
            let used: Vec<u32> = pairs.iter().flatten().copied().collect();
            let layout = pairs.iter().map(|&[submit, complete]| apart(0, submit, complete)).collect();
            let of_pair = |pair: &[u32; 2]| relation(self, pair[0], pair[1]);
            let first = pairs
                .first()
                .and_then(of_pair)
                .filter(|&first| pairs.iter().all(|pair| of_pair(pair) == Some(first)));
            let name = name(count, ", pairs", &used);
            options.push(self.alternative(name, layout, first));
        }
        if options.len() > 1 {
            self.choice(ChoiceKind::QueuesApart, "Queues of one device with completion threads", options);
        }
    }

    fn choice_of_devices(&mut self) {
        let (submit, complete) = self.pair();
        let devices = self.alike.to_vec();
        let counts: Vec<usize> = DEVICES.into_iter().filter(|&n| n <= self.alike.len()).collect();
        for count in DEVICES.into_iter().filter(|&n| n > self.alike.len()) {
            self.missing(format!("{count} devices on a core"), self.too_few());
        }
        if counts.len() < 2 {
            return;
        }
        let mut of = |kind, title: String, placed: &dyn Fn(usize) -> Placed| {
            let options = counts
                .iter()
                .map(|&count| {
                    let name = format!("{count} device{}", if count == 1 { "" } else { "s" });
                    self.alternative(
                        name,
                        devices[..count].iter().map(|&device| placed(device)).collect(),
                        None,
                    )
                })
                .collect();
            self.choice(kind, &title, options);
        };
        let title = format!("Devices of one thread that polls, on CPU {submit}");
        of(ChoiceKind::DevicesPolled, title, &|device| polled(device, submit));
        let on = if complete == submit {
            format!("CPU {submit}")
        } else {
            format!("CPUs {submit} and {complete}")
        };
        let title = format!("Devices of one submitting and one completing thread, on {on}");
        of(ChoiceKind::DevicesApart, title, &|device| apart(device, submit, complete));
    }

    fn choice(&mut self, kind: ChoiceKind, title: &str, alternatives: Vec<Alternative>) {
        self.plan.choices.push(Choice { kind, title: title.to_owned(), alternatives });
    }

    fn too_few(&self) -> String {
        match self.alike.len() {
            1 => "one device was given, and it cannot be opened several times".to_owned(),
            count => format!("{count} devices were given"),
        }
    }

    fn cell(&mut self, layout: Option<Layout>, depth: u16, quantity: Quantity) -> Cell {
        Cell { case: layout.map(|layout| self.case(layout, depth)), quantity }
    }

    /// Pairs of CPUs of their own for the first `count` devices, on their nodes; pairs are shared where there
    /// are not enough.
    fn aware(&self, count: usize) -> Layout {
        let mut taken: Vec<u32> = Vec::new();
        let place = |device: usize| {
            let node = self.devices.get(device).and_then(|device| device.node);
            let all = order(self.topology, node);
            let free: Vec<u32> = all.iter().copied().filter(|cpu| !taken.contains(cpu)).collect();
            let from = if free.len() < 2 { &all } else { &free };
            let submit = from.first().copied().unwrap_or(0);
            let others: Vec<u32> = from.iter().copied().filter(|&cpu| cpu != submit).collect();
            let complete = completing_cpu(self.topology, submit, &others).unwrap_or(submit);
            taken.extend([submit, complete]);
            apart(device, submit, complete)
        };
        (0..count).map(place).collect()
    }

    /// The guide's bad case: threads of a device on two nodes, and one CPU in both pairs.
    fn unaware(&self, count: usize) -> Option<Layout> {
        let near = *self.cpus.first()?;
        let home = self.topology.cpu(near)?.node;
        let mut far =
            self.cpus.iter().copied().filter(|&cpu| {
                self.topology.cpu(cpu).is_some_and(|cpu| cpu.node.is_some() && cpu.node != home)
            });
        let (one, other) = (far.next()?, far.next()?);
        Some([apart(0, one, near), apart(1, near, other)].into_iter().take(count).collect())
    }

    fn affinity(&mut self) {
        let counts: Vec<usize> = [1, 2].into_iter().filter(|&n| n <= self.devices.len()).collect();
        if counts.len() < 2 {
            self.missing("2 devices", self.too_few());
        }
        let depth = self.depth;
        let mut rows = Vec::new();
        let mut row = |own: &mut Self, name: &str, layout: &dyn Fn(&Self, usize) -> Option<Layout>| {
            let layouts: Vec<Option<Layout>> = counts.iter().map(|&count| layout(own, count)).collect();
            let cells =
                layouts.into_iter().map(|layout| own.cell(layout, depth, Quantity::KiopsPerDevice)).collect();
            rows.push((name.to_owned(), cells));
        };
        row(self, "NUMA-aware, a pair of cores for each", &|own, count| Some(own.aware(count)));
        row(self, "not NUMA-aware, one core in both pairs", &Self::unaware);
        if self.unaware(1).is_none() {
            let far = self.cpus.iter().filter(|&&cpu| !self.is_on_first_node(cpu)).count();
            let why = match far {
                0 => "all usable cores are in one NUMA node".to_owned(),
                _ => format!("{far} CPU of another node is usable, and two are needed"),
            };
            self.missing("not NUMA-aware", why);
            let (one, other) = self.pair();
            row(self, "one node, the same two cores crosswise", &|_, count| {
                let crossed = [apart(0, one, other), apart(1, other, one)];
                (count == 2 && one != other).then(|| crossed.to_vec())
            });
        }
        if 2 * counts.len() > self.cpus.len() {
            self.missing(
                "a pair of cores for each of 2 devices",
                format!("{} CPUs are usable", self.cpus.len()),
            );
        }
        let columns =
            counts.iter().map(|n| format!("{n} device{}", if *n == 1 { "" } else { "s" })).collect();
        let title = "CPU affinity (the guide's Figure 10), thousands of reads in a second of each device";
        self.plan.tables.push(Table { title: title.to_owned(), columns, rows });
    }

    fn l3(&mut self) {
        let first = self.cpus.first().copied().unwrap_or(0);
        let mut rows = Vec::new();
        for (class, name) in
            [(Relation::SameL3, "L3 cache sharing"), (Relation::OtherL3, "no L3 cache sharing")]
        {
            let layout = self.of_class(class).map(|cpu| vec![apart(0, first, cpu)]);
            if layout.is_none() {
                self.missing(name, self.absence(class));
            }
            let cell = self.cell(layout, self.depth, Quantity::KiopsPerDevice);
            rows.push((name.to_owned(), vec![cell]));
        }
        let title = "L3 cache sharing (the guide's Figure 13), thousands of reads in a second";
        self.plan.tables.push(Table { title: title.to_owned(), columns: vec!["1 device".to_owned()], rows });
    }

    /// `count` devices that one CPU submits to, with completing CPUs of their own as far as there are any; or
    /// the other way round.
    fn on_one_core(&self, count: usize, is_submitting: bool) -> Layout {
        let (shared, beside) = self.pair();
        let mut others: Vec<u32> = self.cores().into_iter().filter(|&cpu| cpu != shared).collect();
        if others.is_empty() {
            others.push(beside);
        }
        let place = |at: usize, device: usize| {
            let own = others[at % others.len()];
            if is_submitting { apart(device, shared, own) } else { apart(device, own, shared) }
        };
        self.alike.iter().take(count).enumerate().map(|(at, &device)| place(at, device)).collect()
    }

    fn on_one_core_table(
        &mut self,
        title: &str,
        counts: &[usize],
        quantities: &[(Quantity, &str)],
        depth: u16,
    ) {
        let known: Vec<usize> = counts.iter().copied().filter(|&n| n <= self.alike.len()).collect();
        for count in counts.iter().filter(|&&n| n > self.alike.len()) {
            self.missing(format!("{count} devices on a core"), self.too_few());
        }
        let others = self.cores().len().saturating_sub(1).max(1);
        if let Some(most) = known.last().filter(|&&most| most > others) {
            let what = format!("a core of its own for the other thread of each of {most} devices");
            self.missing(
                what,
                format!("{others} other core{}", if others == 1 { " is usable" } else { "s are usable" }),
            );
        }
        let mut columns = Vec::new();
        for side in ["submitting", "completing"] {
            columns.extend(quantities.iter().map(|(_, name)| format!("{side}{name}")));
        }
        let mut rows = Vec::new();
        for count in known {
            let mut cells = Vec::new();
            for is_submitting in [true, false] {
                for (quantity, _) in quantities {
                    let layout = self.on_one_core(count, is_submitting);
                    cells.push(self.cell(Some(layout), depth, *quantity));
                }
            }
            rows.push((format!("{count} on a core"), cells));
        }
        self.plan.tables.push(Table { title: title.to_owned(), columns, rows });
    }

    fn devices_by_rate(&mut self) {
        let title =
            "Devices on a core (the guide's Figure 31), thousands of reads in a second of each device";
        let depth = self.depth;
        self.on_one_core_table(title, &DEVICES, &[(Quantity::KiopsPerDevice, "")], depth);
    }

    fn devices_by_tail(&mut self) {
        let title = "Devices on a core (the guide's Figure 32), read latency at depth 8 in microseconds";
        let quantities = [(Quantity::P9999, ", p99.99"), (Quantity::Max, ", max")];
        self.on_one_core_table(title, &DEVICES_QOS, &quantities, LOW_DEPTH);
    }
}
