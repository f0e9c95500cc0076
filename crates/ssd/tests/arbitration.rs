//! Weighted Round Robin with Urgent Priority Class (Base 3.4.4.2).

mod host;

use std::time::Duration;

use host::blocks::{COMPARE, READ, WRITE, transfer};
use host::{DATA, Host, attached, config, sqe};
use unvme_bus::Function;
use unvme_flash::timing::TimingConfig;
use unvme_spec::{Sqe, Status};
use unvme_ssd::SsdConfig;

/// CC.AMS: weighted round robin.
const WEIGHTED: u32 = 1 << 11;
const URGENT: u32 = 0;
const HIGH: u32 = 1;
const MEDIUM: u32 = 2;
const LOW: u32 = 3;

/// Set Features, Arbitration: the burst as a power of two, and the weights.
fn arbitration(burst: u32, [high, medium, low]: [u32; 3]) -> Sqe {
    let weights = (high - 1) << 24 | (medium - 1) << 16 | (low - 1) << 8;
    Sqe { cdw10: 0x01, cdw11: weights | burst, ..sqe(0x09, 0) }
}

/// A host that has chosen a mechanism, with submission queues 1 and up of these classes, that all complete to
/// queue 1.
fn with_queues(more: u32, classes: &[u32]) -> Host {
    with(config(512), more, classes)
}

fn with(config: SsdConfig, more: u32, classes: &[u32]) -> Host {
    let mut host = attached(config);
    host.enable_with(more);
    host.create_cq(1, 512).unwrap();
    for (qid, &class) in (1..).zip(classes) {
        host.create_sq_of(qid, 1, 128, class).unwrap();
    }
    host
}

/// Submits so many commands on each queue.
fn submit(host: &mut Host, counts: &[usize]) {
    for (qid, &count) in (1..).zip(counts) {
        (0..count).for_each(|_| _ = host.push(qid, sqe(0x00, 1)));
        host.ring(qid);
    }
}

/// Has the device work until nothing is left. The queues in the order in which their commands have ended.
fn order(host: &mut Host) -> Vec<u16> {
    while host.advance() > 0 {}
    std::iter::from_fn(|| host.poll(1)).map(|cqe| cqe.sq_id).collect()
}

/// Commands of a queue that the device has not taken yet, as far as completions have told.
fn waiting(host: &Host, qid: u16) -> usize {
    host.waiting(qid) as usize
}

fn times(qid: u16, count: usize) -> Vec<u16> {
    vec![qid; count]
}

#[test]
fn it_is_offered_at_a_bus() {
    let host = Host::started(512);
    assert_eq!(host.read64(0) >> 17 & 3, 1, "CAP.AMS");
}

#[test]
fn what_is_urgent_is_first_and_the_others_have_their_weights() {
    let mut host = with_queues(WEIGHTED, &[LOW, MEDIUM, HIGH, URGENT]);
    host.admin(arbitration(7, [3, 2, 1])).unwrap();
    submit(&mut host, &[12; 4]);
    let round = [times(3, 3), times(2, 2), times(1, 1)].concat();
    // After the fourth round the high class has nothing left, after the sixth the medium one.
    let expected =
        [times(4, 12), round.repeat(4), [times(2, 2), times(1, 1)].concat().repeat(2), times(1, 6)];
    assert_eq!(order(&mut host), expected.concat());
}

#[test]
fn a_round_goes_on_where_it_was() {
    // Less than is taken at once, as much, and more; and as much as is left beside urgent commands.
    for (weights, urgent) in
        [([4, 1, 2], 0), ([64, 1, 16], 0), ([96, 1, 32], 0), ([100, 1, 20], 28), ([16, 4, 1], 48)]
    {
        let mut host = with_queues(WEIGHTED, &[LOW, HIGH, URGENT]);
        host.admin(arbitration(7, weights)).unwrap();
        let mut seen = [0u32; 4];
        // They never run dry.
        while seen[1] + seen[2] < 3000 {
            for (qid, depth) in [(1, 120), (2, 120)] {
                (0..depth - waiting(&host, qid)).for_each(|_| _ = host.push(qid, sqe(0x00, 1)));
                host.ring(qid);
            }
            (0..urgent).for_each(|_| _ = host.push(3, sqe(0x00, 1)));
            host.ring(3);
            host.advance();
            while let Some(cqe) = host.poll(1) {
                seen[usize::from(cqe.sq_id)] += 1;
                host.taken(cqe.sq_id, cqe.sq_head);
            }
        }
        let ratio = f64::from(seen[2]) / f64::from(seen[1]);
        let expected = f64::from(weights[0]) / f64::from(weights[2]);
        assert!((0.9..1.1).contains(&(ratio / expected)), "{weights:?}, {urgent} urgent: {seen:?}");
    }
}

#[test]
fn other_weights_begin_another_round() {
    let mut host = with_queues(WEIGHTED, &[LOW, HIGH]);
    host.admin(arbitration(7, [200, 1, 1])).unwrap();
    submit(&mut host, &[0, 70]);
    host.advance();
    host.admin(arbitration(7, [1, 1, 1])).unwrap();
    submit(&mut host, &[3, 0]);
    // Of the old round a hundred and more were left.
    let order = order(&mut host);
    let last = order.iter().rposition(|&qid| qid == 1).unwrap();
    assert!(order[last..].iter().filter(|&&qid| qid == 2).count() > 0, "{order:?}");
}

#[test]
fn an_admin_command_is_before_all_and_queues_without_room_hold_nobody_up() {
    let mut host = with_queues(WEIGHTED, &[LOW, HIGH]);
    // Queue 3 completes to a queue of four entries, which nobody looks at.
    host.create_cq(3, 4).unwrap();
    host.create_sq_of(3, 3, 64, URGENT).unwrap();
    (0..20).for_each(|_| _ = host.push(3, sqe(0x00, 1)));
    host.ring(3);
    submit(&mut host, &[100, 100]);
    let identify = host.push(0, Sqe { cdw10: 0x01, ..sqe(0x0a, 0) });
    host.ring(0);
    host.advance();
    assert_eq!(host.poll(0).map(|cqe| cqe.cid), Some(identify));
    assert_eq!(order(&mut host).len(), 200);
    let urgent = std::iter::from_fn(|| {
        host.advance();
        host.poll(3)
    });
    assert_eq!(urgent.count(), 20);
}

#[test]
fn queues_of_a_class_take_turns_of_a_burst() {
    let mut host = with_queues(WEIGHTED, &[HIGH, HIGH, LOW]);
    // Two commands, of a weight of six.
    host.admin(arbitration(1, [6, 1, 1])).unwrap();
    submit(&mut host, &[6, 6, 3]);
    assert_eq!(order(&mut host), [1, 1, 2, 2, 1, 1, 3, 2, 2, 1, 1, 2, 2, 3, 3]);
}

#[test]
fn classes_mean_nothing_without_it() {
    let mut host = with_queues(0, &[LOW, URGENT]);
    submit(&mut host, &[3, 3]);
    assert_eq!(order(&mut host), [1, 1, 1, 2, 2, 2]);
}

#[test]
fn with_one_class_left_each_queue_is_served_on_its_own_again() {
    let mut host = with_queues(WEIGHTED, &[LOW, LOW, HIGH]);
    submit(&mut host, &[2, 2, 2]);
    // Whoever serves one queue serves the others.
    assert!(host.ssd.advance(Some(1), &host.clock) >= 2);
    assert_eq!(order(&mut host)[..2], [3, 3]);
    host.admin(Sqe { cdw10: 3, ..sqe(0x00, 0) }).unwrap();
    submit(&mut host, &[2, 2]);
    assert_eq!(host.ssd.advance(Some(2), &host.clock), 2);
    assert_eq!(std::iter::from_fn(|| host.poll(1)).map(|cqe| cqe.sq_id).collect::<Vec<_>>(), [2, 2]);
    assert_eq!(order(&mut host), [1, 1]);
}

#[test]
fn a_fused_pair_is_taken_whole() {
    let mut host = with_queues(WEIGHTED, &[LOW, HIGH]);
    host.admin(arbitration(0, [1, 1, 1])).unwrap();
    let compare = Sqe { flags: 1, ..transfer(&host, COMPARE, 0, 1, DATA, 512) };
    let write = Sqe { flags: 2, ..transfer(&host, WRITE, 0, 1, DATA, 512) };
    for half in [compare, write] {
        host.push(1, half);
    }
    host.ring(1);
    while host.advance() > 0 {}
    let statuses: Vec<_> = std::iter::from_fn(|| host.poll(1)).map(|cqe| cqe.status()).collect();
    assert_eq!(statuses, [Status::SUCCESS; 2]);
}

#[test]
fn a_fused_pair_without_room_for_both_holds_up_its_own_queue_alone() {
    let mut host = with_queues(WEIGHTED, &[LOW, HIGH]);
    // Of three entries two can be taken.
    host.create_cq(3, 3).unwrap();
    host.create_sq_of(3, 3, 64, URGENT).unwrap();
    host.push(3, sqe(0x00, 1));
    host.ring(3);
    host.advance();
    let compare = Sqe { flags: 1, ..transfer(&host, COMPARE, 0, 1, DATA, 512) };
    let write = Sqe { flags: 2, ..transfer(&host, WRITE, 0, 1, DATA, 512) };
    for half in [compare, write] {
        host.push(3, half);
    }
    host.ring(3);
    submit(&mut host, &[5, 5]);
    assert_eq!(order(&mut host).len(), 10);
    assert!(host.poll(3).is_some());
    host.advance();
    let statuses: Vec<_> = std::iter::from_fn(|| host.poll(3)).map(|cqe| cqe.status()).collect();
    assert_eq!(statuses, [Status::SUCCESS; 2]);
}

#[test]
fn default_weights_can_be_read_and_are_back_after_a_reset() {
    let mut host = with_queues(WEIGHTED, &[LOW, HIGH]);
    let get = Sqe { cdw10: 0x01, ..sqe(0x0a, 0) };
    assert_eq!(host.admin(get), Ok(0x0f03_0007));
    host.admin(arbitration(2, [256, 128, 64])).unwrap();
    assert_eq!(host.admin(get), Ok(0xff7f_3f02));
    host.disable();
    host.enable_with(WEIGHTED);
    assert_eq!(host.admin(get), Ok(0x0f03_0007));
    // The queues are gone, and their classes with them.
    host.create_cq(1, 64).unwrap();
    host.create_sq_of(2, 1, 64, LOW).unwrap();
    host.create_sq_of(1, 1, 64, LOW).unwrap();
    submit(&mut host, &[2, 2]);
    assert_eq!(host.ssd.advance(Some(2), &host.clock), 2);
}

/// Where commands take time: a queue of depth 64 whose commands never end, beside one with one command at a
/// time. How long those took, in nanoseconds, the longest first.
fn beside(more: u32, classes: [u32; 2]) -> Vec<u64> {
    let timing = TimingConfig::preset("tlc").unwrap();
    let mut host = with(SsdConfig { timing, ..config(4096) }, more, &classes);
    let big = |host: &Host, nth: u64| transfer(host, READ, nth * 32 % 8192, 32, DATA, 32 * 4096);
    let mut nth = 0;
    for _ in 0..64 {
        nth += 1;
        let command = big(&host, nth);
        host.push(1, command);
    }
    host.ring(1);
    host.advance();
    let mut took = Vec::new();
    for lba in 0..200 {
        let begun = host.clock.now();
        let command = transfer(&host, READ, lba * 41 % 16_000, 1, DATA, 4096);
        host.push(2, command);
        host.ring(2);
        loop {
            host.advance();
            match host.poll(1) {
                Some(cqe) if cqe.sq_id == 2 => break,
                Some(_) => {
                    nth += 1;
                    let command = big(&host, nth);
                    host.push(1, command);
                    host.ring(1);
                }
                None => {
                    let next = host.ssd.next_event().expect("something is under way");
                    host.clock.advance(Duration::from_nanos(next.saturating_sub(host.clock.now()).max(1)));
                }
            }
        }
        took.push(host.clock.now() - begun);
    }
    took.sort_unstable_by_key(|&time| std::cmp::Reverse(time));
    took
}

#[test]
fn a_class_waits_for_no_more_than_is_under_way() {
    let alike = beside(0, [LOW, HIGH]);
    let weighted = beside(WEIGHTED, [LOW, HIGH]);
    let urgent = beside(WEIGHTED, [LOW, URGENT]);
    let median = |took: &[u64]| took[took.len() / 2];
    assert!(median(&weighted) * 2 < median(&alike), "{} {}", median(&weighted), median(&alike));
    assert!(weighted[2] * 2 < alike[2], "{:?} {:?}", &weighted[..3], &alike[..3]);
    assert!(urgent[2] * 2 < alike[2], "{:?} {:?}", &urgent[..3], &alike[..3]);
}

#[test]
fn where_commands_take_time_the_weights_hold_as_well() {
    let timing = TimingConfig::preset("tlc").unwrap();
    let mut host = with(SsdConfig { timing, ..config(4096) }, WEIGHTED, &[LOW, HIGH]);
    host.admin(arbitration(7, [8, 1, 2])).unwrap();
    let mut seen = [0u32; 3];
    let mut lba = 0;
    let mut push = |host: &mut Host, qid: u16| {
        lba = (lba + 37) % 16_000;
        let command = transfer(host, READ, lba, 1, DATA, 4096);
        host.push(qid, command);
        host.ring(qid);
    };
    for qid in [1, 2] {
        (0..120).for_each(|_| push(&mut host, qid));
    }
    while seen[1] + seen[2] < 4000 {
        host.advance();
        match host.poll(1) {
            Some(cqe) => {
                seen[usize::from(cqe.sq_id)] += 1;
                push(&mut host, cqe.sq_id);
            }
            None => {
                let next = host.ssd.next_event().expect("something is under way");
                host.clock.advance(Duration::from_nanos(next.saturating_sub(host.clock.now()).max(1)));
            }
        }
    }
    let ratio = f64::from(seen[2]) / f64::from(seen[1]);
    assert!((3.8..4.2).contains(&ratio), "{seen:?}");
}
