//! What holds whatever is asked for.

use super::*;

/// xorshift64*.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn below(&mut self, end: u32) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) * u64::from(end)) >> 32) as u32
    }

    /// A model with few of everything, so that everything is fought for.
    fn model(&mut self) -> TimingModel {
        let (planes, plane_pages, cell_bits) =
            (1 + self.below(3) as u8, 1 + self.below(3) as u8, 1 + self.below(4) as u8);
        let program_pages = u32::from(planes) * u32::from(plane_pages) * u32::from(cell_bits);
        let unbuffered = program_pages == 1 && self.below(2) == 0;
        TimingModel {
            firmware_cores: 1 + self.below(3) as u8,
            channels: 1 + self.below(3) as u16,
            dies_per_channel: 1 + self.below(3) as u16,
            planes,
            plane_pages,
            cell_bits,
            block_pages: 1 + self.below(300),
            program_suspend_ns: self.below(40_000),
            erase_suspend_ns: self.below(100_000),
            resume_ns: self.below(20_000),
            suspends_max: self.below(6) as u16,
            buffer_pages: if unbuffered { 0 } else { program_pages * (1 + self.below(6)) },
            ..preset("tlc")
        }
    }

    fn op(&mut self) -> FlashOp {
        match self.below(20) {
            0 => FlashOp::Erase { unit: self.below(8) },
            1..=9 => FlashOp::Program { ppn: self.below(512) },
            _ => FlashOp::Read { ppn: self.below(512) },
        }
    }

    fn command<'a>(&mut self, ops: &'a mut Vec<NotedOp>) -> Command<'a> {
        ops.clear();
        for _ in 0..self.below(12) {
            let cause = if self.below(3) == 0 { Cause::Reclaim } else { Cause::Host };
            ops.push(NotedOp { op: self.op(), cause });
        }
        let kinds = [CommandKind::Read, CommandKind::Write, CommandKind::Other, CommandKind::Background];
        let kind = match self.below(40) {
            0 => CommandKind::Flush,
            _ => kinds[self.below(4) as usize],
        };
        let bytes = u64::from(self.below(65_536));
        Command { kind, bytes, durable: self.below(30) == 0, ops }
    }
}

/// Runs random commands against `timing`, and `check`s after each one with its time and its due time.
fn run(random: &mut Random, timing: &mut Timing, commands: u32, mut check: impl FnMut(&Timing, u64, u64)) {
    let (mut now, mut ops) = (0, Vec::new());
    for _ in 0..commands {
        now += u64::from(random.below(200_000));
        let due = timing.schedule(now, &random.command(&mut ops));
        check(timing, now, due);
    }
}

#[test]
fn nothing_is_done_before_it_came_and_the_buffer_never_holds_more_than_it_can() {
    for seed in 1..60 {
        let mut random = Random::new(seed);
        let model = random.model();
        let (buffer_pages, mut fullest) = (model.buffer_pages, 0);
        let mut timing = Timing::new(model, 64).unwrap();
        run(&mut random, &mut timing, 400, |timing, now, due| {
            assert!(due >= now, "due at {due}, came at {now}");
            assert!(timing.buffered_pages() <= buffer_pages);
            fullest = fullest.max(timing.buffered_pages());
        });
        assert_eq!(fullest, buffer_pages, "it was never full");
    }
}

#[test]
fn no_plane_is_used_twice_at_a_time_and_programs_and_erases_have_the_die_to_themselves() {
    let mut pieces = 0;
    for seed in 100..160 {
        let mut random = Random::new(seed);
        let mut timing = Timing::new(random.model(), 64).unwrap();
        run(&mut random, &mut timing, 400, |_, _, _| ());
        for die in &mut timing.dies {
            die.settle_all();
            let planes = usize::from(timing.model.planes);
            for plane in 0..planes {
                let mut uses: Vec<_> =
                    die.trace.uses.iter().filter(|u| u.plane.is_none_or(|p| p == plane)).collect();
                uses.sort_unstable_by_key(|u| (u.start, u.end));
                for pair in uses.windows(2) {
                    assert!(pair[0].end <= pair[1].start, "{:?} and {:?}", pair[0], pair[1]);
                }
                pieces += uses.len();
            }
        }
    }
    assert!(pieces > 10_000, "{pieces} uses are few");
}

#[test]
fn everything_queued_is_worked_off_in_exactly_its_time() {
    for seed in 200..240 {
        let mut random = Random::new(seed);
        let model = TimingModel { resume_ns: 0, ..random.model() };
        let mut timing = Timing::new(model, 64).unwrap();
        run(&mut random, &mut timing, 200, |_, _, _| ());
        timing.drain();
        let worked: u64 = timing
            .dies
            .iter_mut()
            .flat_map(|die| {
                die.settle_all();
                die.trace
                    .uses
                    .iter()
                    .filter(|u| u.plane.is_none())
                    .map(|u| u.end - u.start)
                    .collect::<Vec<_>>()
            })
            .sum();
        // Suspended or not, a program works as long as it takes.
        let queued: u64 = timing.dies.iter().map(Die::pushed_ns).sum();
        assert_eq!(worked, queued);
    }
}

#[test]
fn reads_put_a_program_off_only_so_often() {
    // Reads without a pause on the only plane there is: programs end all the same.
    let model = TimingModel { channels: 1, dies_per_channel: 1, planes: 1, suspends_max: 4, ..preset("tlc") };
    let buffer_pages = 12;
    let mut timing = Timing::new(TimingModel { buffer_pages, ..model.clone() }, 2048).unwrap();
    let most = u64::from(model.suspends_max) * u64::from(50_000 + model.program_suspend_ns + model.resume_ns);
    // What a full buffer waits for: a program at work, the next one, with the reads that each lets go first.
    let bound = 2 * (561_000 + most) + 100_000 + 24 * 9103;
    let (mut read_due, mut write_due, mut writes) = (0, 0, 0);
    while writes < 500 {
        let now = u64::min(read_due, write_due);
        if read_due == now {
            read_due = read(&mut timing, now, 5000, 1).max(now + 1);
        } else {
            write_due = write(&mut timing, now, writes, 1);
            writes += 1;
            assert!(write_due - now <= bound, "{} ns for a write, the bound is {bound}", write_due - now);
        }
    }
}

#[test]
fn the_same_commands_have_the_same_times_to_the_nanosecond() {
    let times = |seed| {
        let mut random = Random::new(seed);
        let mut timing = Timing::new(random.model(), 64).unwrap();
        let mut times = Vec::new();
        run(&mut random, &mut timing, 2000, |_, _, due| times.push(due));
        times
    };
    assert_eq!(times(0xfeed), times(0xfeed));
    assert_ne!(times(0xfeed), times(0xfeee));
}

#[test]
fn a_full_buffer_makes_writes_as_slow_as_programs() {
    let mut timing = device("tlc");
    // 32 dies with 24 pages in 561 µs each are 5607 MB/s of programs, 8 channels of 450 MB/s carry 3600, and
    // the link 3050, which waits 2 µs of a core before each of these.
    let mut now = 0;
    for index in 0..4000 {
        now = write(&mut timing, now, index * 32, 32) - 5600 - 32 * 600;
    }
    let mb_s = 4000.0 * 32.0 * 4096.0 * 1000.0 / now as f64;
    assert!((2900.0..=2920.0).contains(&mb_s), "{mb_s} MB/s");
    // Writes that all go to one die run at its pace: 24 pages in 561 µs, 175 MB/s.
    let mut timing = Timing::new(TimingModel { buffer_pages: 96, ..preset("tlc") }, 2048).unwrap();
    let mut now = 0;
    for index in 0..4000 {
        now = write(&mut timing, now, index % 24, 1);
    }
    let mb_s = 4000.0 * 4096.0 * 1000.0 / now as f64;
    assert!((170.0..=182.0).contains(&mb_s), "{mb_s} MB/s");
}
