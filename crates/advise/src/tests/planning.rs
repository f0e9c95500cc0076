use std::time::Duration;

use super::machines::*;
use super::tree::Tree;
use crate::measure::{Completing, Placed, Sample, Subject, SubjectOptions};
use crate::{
    Campaign, Case, ChoiceKind, Figures, Findings, Goal, Location, Plan, PlanOptions, Reach, Relation, Sweep,
    Topology, Worth, judge, noise,
};

fn plan(tree: &Tree, devices: usize, sweep: Sweep) -> Plan {
    let topology = Topology::read(&tree.system()).expect("a topology");
    let alike: Vec<usize> = (0..devices).collect();
    let devices = vec![Location::nowhere("mem:block:64M", Reach::InProcess); devices];
    Plan::new(
        &topology,
        &devices,
        PlanOptions { sweep, depth: 128, queues_max: 64, served: 0, alike: &alike },
    )
}

fn of(tree: &Tree, devices: usize) -> Vec<(ChoiceKind, Vec<String>)> {
    let plan = plan(tree, devices, Sweep::Advice);
    let names = |choice: &crate::Choice| choice.alternatives.iter().map(|own| own.name.clone()).collect();
    plan.choices.iter().map(|choice| (choice.kind, names(choice))).collect()
}

#[test]
fn every_class_of_a_machine_is_measured_and_others_are_named() {
    let epyc = plan(&epyc_7451_two_sockets(), 4, Sweep::Advice);
    let completing = epyc.choice(ChoiceKind::Completing).expect("a choice");
    let classes: Vec<Option<Relation>> = completing.alternatives.iter().map(|own| own.relation).collect();
    use Relation::{OtherL3, OtherNode, OtherSocket, SameCpu, SameL3, Sibling};
    assert_eq!(
        classes,
        [None, Some(SameCpu), Some(Sibling), Some(SameL3), Some(OtherL3), Some(OtherNode), Some(OtherSocket)]
    );
    assert!(epyc.missing.is_empty(), "{:?}", epyc.missing);
    let arm = plan(&ampere_altra(), 1, Sweep::Advice);
    let missing: Vec<&str> = arm.missing.iter().map(|own| own.what.as_str()).collect();
    assert!(missing.contains(&"completion thread: SMT sibling"), "{missing:?}");
    assert!(missing.contains(&"completion thread: other socket"), "{missing:?}");
    assert!(missing.contains(&"2 devices on a core"), "{missing:?}");
}

#[test]
fn a_small_machine_has_each_cpu_measured() {
    let tree = Tree::new();
    tree.cpus(2, |cpu| [0, cpu, 0], &["0-1"]);
    assert_eq!(
        of(&tree, 2),
        [
            (ChoiceKind::Cpu, vec!["CPU 0".to_owned(), "CPU 1 (same L3)".to_owned()]),
            (
                ChoiceKind::Completing,
                vec![
                    "polled by CPU 0".to_owned(),
                    "by CPU 0 (same CPU)".to_owned(),
                    "by CPU 1 (same L3)".to_owned()
                ]
            ),
            (ChoiceKind::Queues, vec!["1 on CPU 0".to_owned(), "2 on CPUs 0-1".to_owned()]),
            (
                ChoiceKind::QueuesApart,
                vec!["1 on CPUs 0-1, pair".to_owned(), "2 on CPUs 0-1, same CPU".to_owned()]
            ),
            (ChoiceKind::DevicesPolled, vec!["1 device".to_owned(), "2 devices".to_owned()]),
            (ChoiceKind::DevicesApart, vec!["1 device".to_owned(), "2 devices".to_owned()]),
        ]
    );
}

#[test]
fn a_device_is_not_given_more_queues_than_it_has() {
    let topology = Topology::read(&epyc_9124().system()).expect("a topology");
    let devices = [Location::nowhere("mem:block:64M", Reach::InProcess)];
    let plan = Plan::new(
        &topology,
        &devices,
        PlanOptions { sweep: Sweep::Advice, depth: 128, queues_max: 3, served: 0, alike: &[0] },
    );
    assert!(plan.cases.iter().all(|case| case.layout.len() <= 3));
    let names: Vec<&str> = plan.missing.iter().map(|own| own.what.as_str()).collect();
    assert!(names.contains(&"16 queues of one device"), "{names:?}");
}

#[test]
fn a_device_is_measured_on_its_node_first() {
    let tree = xeon_e5_2667_v3_two_sockets();
    tree.drive("0000:05:00.0", 1, "vfio-pci");
    let (devices, alike) = (crate::located_drives(&tree.system()).expect("drives"), [0]);
    let topology = Topology::read(&tree.system()).expect("a topology");
    let plan = Plan::new(
        &topology,
        &devices,
        PlanOptions { sweep: Sweep::Advice, depth: 128, queues_max: 64, served: 0, alike: &alike },
    );
    let names: Vec<&str> = plan.choices[0].alternatives.iter().map(|own| own.name.as_str()).collect();
    assert_eq!(names, ["CPU 8", "CPU 24 (SMT sibling)", "CPU 9 (same L3)", "CPU 0 (other socket)"]);
}

#[test]
fn one_cpu_leaves_nothing_apart_but_the_same_cpu() {
    let tree = Tree::new();
    tree.cpus(1, |_| [0, 0, 0], &["0"]);
    let one = of(&tree, 1);
    assert_eq!(one[1].1, ["polled by CPU 0", "by CPU 0 (same CPU)"]);
    assert_eq!(one.len(), 3);
}

#[test]
fn no_layout_is_measured_twice_at_one_depth() {
    for sweep in [Sweep::Advice, Sweep::Affinity, Sweep::L3, Sweep::Devices, Sweep::Qos] {
        let plan = plan(&epyc_7451_two_sockets(), 8, sweep);
        for (at, case) in plan.cases.iter().enumerate() {
            assert!(!plan.cases[..at].contains(case), "{sweep:?}: {case:?}");
        }
        assert!(plan.cases.iter().all(|case| case.devices() <= sweep.devices()), "{sweep:?}");
    }
}

#[test]
fn the_tables_of_the_guide_have_its_placements() {
    let cell = |plan: &Plan, row: usize, column: usize| -> Option<Vec<Placed>> {
        let case = plan.tables[0].rows[row].1[column].case?;
        Some(plan.cases[case].layout.clone())
    };
    let apart = |device, submit, complete| Placed { device, submit, complete: Completing::Thread(complete) };
    let affinity = plan(&xeon_e5_2667_v3_two_sockets(), 2, Sweep::Affinity);
    assert_eq!(cell(&affinity, 0, 1), Some(vec![apart(0, 0, 1), apart(1, 2, 3)]));
    // CPU 0 in both pairs, and the other threads on the other node: the guide's Figure 12.
    assert_eq!(cell(&affinity, 1, 1), Some(vec![apart(0, 8, 0), apart(1, 0, 9)]));
    let l3 = plan(&epyc_7451_two_sockets(), 1, Sweep::L3);
    assert_eq!((cell(&l3, 0, 0), cell(&l3, 1, 0)), (Some(vec![apart(0, 0, 1)]), Some(vec![apart(0, 0, 3)])));
    let none = plan(&xeon_e5_2667_v3_two_sockets(), 1, Sweep::L3);
    assert_eq!(cell(&none, 1, 0), None);
    assert_eq!(none.missing[0].what, "no L3 cache sharing");
    let devices = plan(&xeon_e5_2667_v3_two_sockets(), 4, Sweep::Devices);
    assert_eq!(cell(&devices, 1, 0), Some(vec![apart(0, 0, 1), apart(1, 0, 2)]));
    assert_eq!(cell(&devices, 1, 1), Some(vec![apart(0, 1, 0), apart(1, 2, 0)]));
    assert_eq!(devices.tables[0].rows.len(), 4);
    let qos = plan(&xeon_e5_2667_v3_two_sockets(), 8, Sweep::Qos);
    assert_eq!((qos.tables[0].rows.len(), qos.tables[0].columns.len()), (4, 4));
    assert!(qos.cases.iter().all(|case| case.depth == 8));
}

/// Figures as a quiet machine would give them: `rate` of each case, with a spread of 1 %.
fn figures(plan: &Plan, rate: impl Fn(&Case) -> f64) -> Vec<Figures> {
    let sample = |case: &Case, turn: u32| {
        let tail = 10.0 * case.devices() as f64;
        Sample {
            iops: rate(case) * (1.0 + f64::from(turn % 5) / 500.0),
            mean_us: Some(5.0),
            p99_us: Some(tail),
            p9999_us: Some(tail),
            max_us: Some(tail),
            on_cpu: 1.0,
        }
    };
    plan.cases
        .iter()
        .map(|case| Figures { samples: (0..10).map(|turn| sample(case, turn)).collect() })
        .collect()
}

#[test]
fn a_drive_that_is_the_limit_shares_its_core_with_others() {
    let plan = plan(&epyc_9124(), 4, Sweep::Advice);
    // 500 k of each device, however it is placed; a thread behind another L3 completes a tenth less.
    let rate = |case: &Case| {
        let far = case.layout.iter().any(|placed| placed.complete == Completing::Thread(4));
        case.devices() as f64 * if far { 450e3 } else { 500e3 }
    };
    let figures = figures(&plan, rate);
    assert_eq!(noise(&plan, &figures), None);
    let found = Findings::of(&plan, &figures, Goal::Throughput);
    assert_eq!((found.per_core_apart.submitting, found.per_core_polled.submitting), (4, 4));
    assert!(found.per_core_apart.is_measured);
    assert_eq!((found.queues_polled, found.completing), (1, Some(Relation::SameL3)));
    // Tails grow with the devices on a core.
    let found = Findings::of(&plan, &figures, Goal::Latency);
    assert_eq!(found.per_core_apart.submitting, 1);
    let choice = plan.choice(ChoiceKind::Completing).expect("a choice");
    let judged = judge(&plan, &figures, choice).expect("figures");
    let worth: Vec<&Worth> = judged.iter().map(|own| &own.worth).collect();
    assert_eq!(*worth[0], Worth::Base);
    assert_eq!((worth[1], worth[3]), (&Worth::None, &Worth::None));
    assert!(matches!(worth[4], Worth::Times { ratio, .. } if (0.89..0.91).contains(ratio)), "{worth:?}");
}

#[test]
fn a_core_that_is_the_limit_serves_one_device() {
    let plan = plan(&epyc_9124(), 4, Sweep::Advice);
    let threads = |case: &Case| {
        let mut cpus: Vec<u32> = case.layout.iter().map(|placed| placed.submit).collect();
        cpus.sort_unstable();
        cpus.dedup();
        cpus.len() as f64
    };
    let figures = figures(&plan, |case| 1e6 * threads(case));
    let found = Findings::of(&plan, &figures, Goal::Throughput);
    assert_eq!((found.per_core_apart.submitting, found.queues_polled), (1, 16));
}

#[test]
fn a_machine_that_is_not_quiet_gives_no_advice() {
    let plan = plan(&epyc_9124(), 4, Sweep::Advice);
    let mut all = figures(&plan, |_| 1e6);
    for (turn, sample) in all.iter_mut().flat_map(|own| own.samples.iter_mut().enumerate()) {
        sample.iops *= 1.0 + 0.4 * f64::from(turn as u32 % 3);
    }
    let reason = noise(&plan, &all).expect("noise").reason;
    assert!(reason.contains("are spread by"), "{reason}");
    let mut all = figures(&plan, |_| 1e6);
    all.iter_mut().flat_map(|own| &mut own.samples).for_each(|sample| sample.on_cpu = 0.5);
    let reason = noise(&plan, &all).expect("noise").reason;
    assert!(reason.contains("had 50 % of their CPUs"), "{reason}");
}

#[test]
fn cases_beyond_a_quota_or_without_a_cpu_for_a_server_do_not_count() {
    let tree = Tree::new();
    tree.cpus(2, |cpu| [0, cpu, 0], &["0-1"]);
    let topology = Topology::read(&tree.system()).expect("a topology");
    let devices = [Location::nowhere("vfio-user:/run/ssd.sock", Reach::Process)];
    let options = PlanOptions { sweep: Sweep::Advice, depth: 128, queues_max: 64, served: 1, alike: &[0] };
    let plan = Plan::new(&topology, &devices, options);
    let mut all = figures(&plan, |case| 1e6 * case.layout.len() as f64);
    // Two threads leave none to the server: they are slow, and that says nothing of other programs.
    for (case, own) in plan.cases.iter().zip(&mut all) {
        let on_cpu = if case.cpus().len() > 1 { 0.4 } else { 1.0 };
        own.samples.iter_mut().for_each(|sample| sample.on_cpu = on_cpu);
    }
    assert_eq!(noise(&plan, &all), None);
    let found = Findings::of(&plan, &all, Goal::Throughput);
    assert_eq!((found.queues_polled, found.queues_apart), (1, 1));
    tree.file("/proc/self/cgroup", "0::/\n");
    tree.file("/sys/fs/cgroup/cpu.max", "150000 100000\n");
    let topology = Topology::read(&tree.system()).expect("a topology");
    let plan = Plan::new(&topology, &devices, PlanOptions { served: 0, ..options });
    assert_eq!(plan.free_cpus, 1);
}

#[test]
fn devices_of_other_nodes_are_not_measured_together() {
    let tree = xeon_e5_2667_v3_two_sockets();
    tree.drive("0000:05:00.0", 0, "vfio-pci");
    tree.drive("0000:06:00.0", 1, "vfio-pci");
    tree.drive("0000:07:00.0", 0, "vfio-pci");
    let devices = crate::located_drives(&tree.system()).expect("drives");
    let topology = Topology::read(&tree.system()).expect("a topology");
    let options = PlanOptions { sweep: Sweep::Advice, depth: 128, queues_max: 64, served: 0, alike: &[0, 2] };
    let plan = Plan::new(&topology, &devices, options);
    let used: Vec<usize> = plan.cases.iter().flat_map(|case| &case.layout).map(|own| own.device).collect();
    assert!(used.contains(&2) && !used.contains(&1), "{used:?}");
}

#[test]
fn more_queues_are_taken_where_they_are_shown_to_be_faster() {
    let plan = plan(&epyc_9124(), 1, Sweep::Advice);
    let mut all = figures(&plan, |_| 1e6);
    // Medians differ by a tenth, and so do the repetitions: no difference is shown.
    for (case, own) in plan.cases.iter().zip(&mut all) {
        for (turn, sample) in own.samples.iter_mut().enumerate() {
            let lucky = if case.layout.len() == 2 { 0.02 } else { 0.0 };
            sample.iops = 1e6 * (1.0 + lucky + 0.05 * f64::from(turn as u32 % 5));
        }
    }
    let found = Findings::of(&plan, &all, Goal::Throughput);
    assert_eq!((found.queues_polled, found.queues_apart), (1, 1));
}

#[test]
fn pairs_of_several_queues_are_behind_one_l3_each() {
    let plan = plan(&epyc_7451_two_sockets(), 1, Sweep::Advice);
    let topology = Topology::read(&epyc_7451_two_sockets().system()).expect("a topology");
    let choice = plan.choice(ChoiceKind::QueuesApart).expect("a choice");
    let two =
        choice.alternatives.iter().find(|own| own.name.starts_with("2 on") && own.name.ends_with(", pairs"));
    let two = two.expect("two pairs");
    for placed in &plan.cases[two.case].layout {
        let Completing::Thread(complete) = placed.complete else { panic!("{placed:?}") };
        assert_eq!(topology.relation(placed.submit, complete), Relation::SameL3, "{placed:?}");
    }
    assert_eq!(two.relation, Some(Relation::SameL3));
}

#[test]
fn reasons_are_those_of_the_machine() {
    let bare = Tree::new();
    bare.file("/proc/self/status", "Cpus_allowed_list:\t0-1\n");
    let why = |tree: &Tree, what: &str| {
        let plan = plan(tree, 1, Sweep::Advice);
        plan.missing.iter().find(|own| own.what.ends_with(what)).map(|own| own.why.clone()).expect(what)
    };
    assert_eq!(why(&bare, "SMT sibling"), "the topology is not known");
    assert_eq!(why(&ampere_altra(), "other L3"), "no L3 is listed");
    // CPU 0 alone has no sibling; CPUs 1 and 17 are of one core.
    let tree = epyc_9124();
    tree.file("/proc/self/status", "Cpus_allowed_list:\t0-1,17\n");
    assert_eq!(why(&tree, "SMT sibling"), "CPU 0, from which the classes are measured, has none");
}

#[test]
fn a_thread_that_fails_ends_the_measurement() {
    let options = SubjectOptions { io_bytes: 4096, nsid: None };
    let subject =
        Subject::open(Location::nowhere("mem:block:16M", Reach::InProcess), &options).expect("a device");
    let began = std::time::Instant::now();
    let layout = [0, 9999].map(|submit| Placed { device: 0, submit, complete: Completing::Polled });
    let options = crate::measure::Options {
        depth: 8,
        warmup: Duration::from_secs(60),
        time: Duration::from_secs(60),
        seed: 0,
        stop: None,
    };
    let error = crate::measure::measure(&[subject], &layout, options).expect_err("no CPU 9999").to_string();
    assert!(error.contains("CPU 9999"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(50));
}

#[test]
fn too_few_measurements_tell_nothing() {
    let plan = plan(&epyc_9124(), 1, Sweep::Advice);
    let mut all = figures(&plan, |case| 1e6 * case.layout.len() as f64);
    all.iter_mut().for_each(|own| own.samples.truncate(3));
    let choice = plan.choice(ChoiceKind::Queues).expect("a choice");
    let judged = judge(&plan, &all, choice).expect("figures");
    assert_eq!(judged[1].worth, Worth::TooFew);
    let reason = noise(&plan, &all).expect("no advice").reason;
    assert!(reason.contains("3 measurements of a placement show no difference; expected 4"), "{reason}");
}

#[test]
fn devices_of_both_kinds_are_measured_on_this_machine() {
    let topology = Topology::read(&unvme_setup::System::live()).expect("this machine");
    for name in ["mem:block:16M", "mem:kv:64M"] {
        let options = SubjectOptions { io_bytes: 4096, nsid: None };
        let location = Location::nowhere(name, Reach::InProcess);
        let subjects: Vec<Subject> =
            (0..2).map(|_| Subject::open(location.clone(), &options).expect(name)).collect();
        assert_eq!(subjects[0].has_pairs(), name.contains("kv"));
        let (locations, alike) = ([location.clone(), location], [0, 1]);
        let plan = Plan::new(
            &topology,
            &locations,
            PlanOptions { sweep: Sweep::Advice, depth: 32, queues_max: 64, served: 0, alike: &alike },
        );
        let campaign = Campaign {
            repeat: 1,
            time: Duration::from_millis(20),
            warmup: Duration::from_millis(1),
            stop: None,
        };
        let mut seen = 0;
        let figures = campaign.run(&plan, &subjects, &mut |_, _, _| seen += 1).expect(name);
        assert_eq!((seen, figures.len()), (plan.cases.len(), plan.cases.len()));
        assert!(figures.iter().all(|own| own.samples.len() == 1));
        let completed = figures.iter().filter(|own| own.samples[0].iops > 0.0).count();
        assert!(completed > 0, "{name}: {figures:?}");
    }
}

#[test]
fn what_cannot_be_read_is_refused() {
    let open = |name: &str, io_bytes| {
        let options = SubjectOptions { io_bytes, nsid: None };
        Subject::open(Location::nowhere(name, Reach::InProcess), &options).expect_err(name).to_string()
    };
    assert!(open("mem:block:16M,block=4096", 512).contains("its blocks have 4096 bytes"));
    assert!(open("mem:block:16M", 32 << 20).contains("one command of it moves"));
    assert!(open("mem:block:16M", 0).contains("expected a multiple"));
    let empty = Subject::open(
        Location::nowhere("mem:kv:64M", Reach::Process),
        &SubjectOptions { io_bytes: 4096, nsid: None },
    );
    assert!(empty.expect_err("no pairs").to_string().contains("no pairs to retrieve"));
}
