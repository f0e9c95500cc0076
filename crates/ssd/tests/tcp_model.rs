//! Random commands on a connection next to an array, with all that the two sides can agree on; and the same
//! bytes in other portions.

mod wire;

use std::collections::BTreeMap;

use proptest::prelude::*;
use unvme_ssd::tcp::{Ending, Limits};
use wire::player::Player;
use wire::{Pdu, Random, Wire, Wishes, target};

/// What both sides want.
fn agreement() -> impl Strategy<Value = (Wishes, Limits)> {
    let wishes = (any::<bool>(), any::<bool>(), 0u8..32, 0u32..6);
    let limits = (0u8..32, 0usize..3, 0usize..4, 1u32..5);
    (wishes, limits).prop_map(
        |((header_digest, data_digest, hpda_z, maxr2t_z), (cpda_z, h2c, parts, r2ts_max))| {
            let wishes = Wishes { header_digest, data_digest, hpda_z, maxr2t_z };
            let limits = Limits {
                cpda_z,
                h2c_bytes_max: [4096, 16384, 1 << 20][h2c],
                c2h_bytes_max: [512, 5000, 16384, 1 << 20][parts],
                r2t_bytes_max: [512, 4096, 20_000, 4 << 20][parts],
                r2ts_max,
                ..Limits::default()
            };
            (wishes, limits)
        },
    )
}

/// Plays and gives back what the host has sent.
fn play(wishes: Wishes, limits: Limits, seed: u64, count: usize) -> Vec<u8> {
    let (_admin, mut wire) = Wire::pair(&target(), limits, wishes, 16);
    let mut player = Player::new(Random(seed | 1), 12, limits.h2c_bytes_max);
    player.play(&mut wire, count);
    assert!(wire.connection.is_idle());
    assert_eq!(wire.connection.queue().outstanding(), 0);
    player.sent
}

/// What a connection sends, by command, and how it ends.
#[derive(Debug, PartialEq)]
struct Heard {
    by_command: BTreeMap<u16, Vec<Pdu>>,
    terminated: Option<Pdu>,
    ending: Option<Ending>,
}

/// Sends the bytes in these portions on a new I/O queue.
fn replay(wishes: Wishes, limits: Limits, bytes: &[u8], mut portion: impl FnMut() -> usize) -> Heard {
    let (_admin, mut wire) = Wire::pair(&target(), limits, wishes, 16);
    let mut at = 0;
    while at < bytes.len() {
        wire.chunk = usize::MAX;
        let end = bytes.len().min(at + portion());
        let taken = wire.feed(&bytes[at..end]);
        if taken < end - at {
            break;
        }
        at = end;
    }
    let mut heard = Heard { by_command: BTreeMap::new(), terminated: None, ending: None };
    while let Some(mut pdu) = wire.next() {
        if pdu.kind() == 3 {
            heard.terminated = Some(pdu);
            continue;
        }
        if pdu.kind() == 5 {
            // SQHD is reserved without flow control; a digest of the header covers it.
            pdu.0[16..18].fill(0);
            pdu.0.truncate(24);
        }
        heard.by_command.entry(pdu.cid()).or_default().push(pdu);
    }
    wire.hang_up();
    heard.ending = wire.ending();
    heard
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn what_was_written_is_read_whatever_was_agreed_on((wishes, limits) in agreement(), seed in any::<u64>()) {
        play(wishes, limits, seed, 150);
    }

    #[test]
    fn the_portions_in_which_bytes_arrive_make_no_difference((wishes, limits) in agreement(), seed in any::<u64>()) {
        let bytes = play(wishes, limits, seed, 12);
        let whole = replay(wishes, limits, &bytes, || usize::MAX);
        prop_assert_eq!(whole.ending, Some(Ending::Closed));
        let single = replay(wishes, limits, &bytes, || 1);
        prop_assert_eq!(&whole, &single);
        let mut random = Random(seed | 1);
        let some = replay(wishes, limits, &bytes, || 1 + random.below(500) as usize);
        prop_assert_eq!(&whole, &some);
    }

    #[test]
    fn bytes_that_were_changed_end_the_connection_in_the_same_way_in_all_portions(
        (wishes, limits) in agreement(),
        seed in any::<u64>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = play(wishes, limits, seed, 8);
        for (index, value) in changes {
            let at = index.index(bytes.len());
            bytes[at] = value;
        }
        let whole = replay(wishes, limits, &bytes, || usize::MAX);
        let mut random = Random(seed | 1);
        let some = replay(wishes, limits, &bytes, || 1 + random.below(300) as usize);
        prop_assert_eq!(&whole.terminated, &some.terminated);
        prop_assert_eq!(whole.ending, some.ending);
        let single = replay(wishes, limits, &bytes, || 1);
        prop_assert_eq!(&whole.terminated, &single.terminated);
        prop_assert_eq!(whole.ending, single.ending);
    }
}
