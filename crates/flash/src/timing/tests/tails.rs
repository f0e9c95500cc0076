//! How reads, writes and erases disturb each other.

use super::invariants::Random;
use super::*;

/// What goes on beside the reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    Nothing,
    Writes,
    /// Reclaim erases as much as is written.
    WritesAndErases,
}

/// Median, 99th and 99.9th percentile of 4 KiB random reads, in nanoseconds: one every 100 µs, and beside
/// them 1 GB/s of sequential writes.
fn reads_beside(beside: Beside) -> [u64; 3] {
    const UNIT: u32 = 2048;
    let mut random = Random::new(0x7a11);
    let mut timing = device("tlc");
    let mut times = Vec::new();
    let mut page = 0;
    for index in 0..20_000 {
        let now = index * 100 * US;
        if beside != Beside::Nothing {
            // 98 304 bytes in 100 µs.
            for _ in 0..24 {
                write(&mut timing, now, (1 << 20) + page, 1);
                page += 1;
                if beside == Beside::WritesAndErases && page.is_multiple_of(UNIT) {
                    background(&mut timing, now, &[reclaim(FlashOp::Erase { unit: page / UNIT })]);
                }
            }
        }
        times.push(read(&mut timing, now, random.below(1 << 20), 1) - now);
    }
    times.sort_unstable();
    [500, 990, 999].map(|thousandth| times[times.len() * thousandth / 1000])
}

#[test]
fn writes_lengthen_the_tail_of_reads_and_erases_lengthen_it_further() {
    let [alone, writes, erases] =
        [Beside::Nothing, Beside::Writes, Beside::WritesAndErases].map(reads_beside);
    assert!(alone[0] == 80_446 && alone[2] < 100_000, "alone, hardly any two meet: {alone:?}");
    assert!(writes[0] < alone[0] + 60_000, "half of the reads find no program on their die: {writes:?}");
    assert!(writes[1] >= alone[1] + 20_000, "a program has to be suspended: {writes:?}");
    assert!(erases[2] >= writes[2] + 20_000, "an erase takes longer to suspend: {erases:?}");
}

#[test]
fn without_suspension_a_read_waits_for_programs_and_erases() {
    // Every die erases a block with each unit.
    let model = TimingModel { suspends_max: 0, block_pages: 24, ..preset("tlc") };
    let mut timing = Timing::new(model, 24 * 32).unwrap();
    write(&mut timing, 0, 0, 24);
    // It is programmed from about 0.47 to 1.03 ms, on die 0.
    assert_eq!(read(&mut timing, 800_000, 24, 1), 880_446, "die 1");
    let slow = read(&mut timing, 800_000, 768 + 5, 1);
    assert!((1_080_000..1_110_000).contains(&slow), "{slow}");
    background(&mut timing, 2_000_000, &[reclaim(FlashOp::Erase { unit: 0 })]);
    assert_eq!(read(&mut timing, 2_010_000, 768 + 5, 1), 4_000_000 + 50_000 + 9103 + 1343);
}

#[test]
fn reads_lengthen_writes_that_wait_for_a_place() {
    let times = |with_reads| {
        let mut timing = Timing::new(TimingModel { buffer_pages: 48, ..preset("tlc") }, 2048).unwrap();
        let mut random = Random::new(3);
        let mut now = 0;
        for index in 0..3000 {
            // All to die 0, so that the buffer is full.
            now = write(&mut timing, now, index % 24, 1);
            if with_reads {
                read(&mut timing, now, random.below(24) + 768, 1);
            }
        }
        now
    };
    let (alone, disturbed) = (times(false), times(true));
    assert!(disturbed > alone + alone / 4, "3000 writes: {alone} ns, with reads {disturbed} ns");
}
