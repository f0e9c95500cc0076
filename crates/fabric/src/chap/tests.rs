mod linux;

use proptest::prelude::*;
use unvme_spec::auth::message_id;

use super::group::Exchange;
use super::*;

const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";
const SUBSYSTEM: &str = "nqn.2014-08.org.example:kv";

fn names() -> Names {
    Names { host: HOST.into(), subsystem: SUBSYSTEM.into() }
}

fn keys(is_mutual: bool) -> Keys {
    let secret = || Secret::generate(Some(Hash::Sha256)).expect("random numbers");
    Keys { host: secret(), controller: is_mutual.then(secret) }
}

fn only(hash: Hash, group: Group) -> Policy {
    Policy { hashes: vec![hash], groups: vec![group] }
}

fn bytes(digits: &str) -> Vec<u8> {
    let digits: Vec<u32> = digits.chars().map(|digit| digit.to_digit(16).expect("hexadecimal")).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

/// Runs both ends until the host is done; every message, and what the host says at the end.
fn run(host: &mut Host, controller: &mut Controller) -> (Vec<Vec<u8>>, Step) {
    let mut messages = Vec::new();
    loop {
        match host.step() {
            Step::Send(message) => {
                controller.send(&message);
                messages.push(message);
            }
            Step::Receive { bytes } => {
                let message = controller.receive(bytes);
                // The command transfers all it has room for.
                let mut padded = message.clone();
                padded.resize(bytes as usize, 0);
                host.received(&padded);
                messages.push(message);
            }
            end => return (messages, end),
        }
    }
}

fn refused(failure: Failure) -> Step {
    Step::Failed { failure, by_controller: true }
}

#[test]
fn every_hash_function_and_group_authenticates_one_way_and_both_ways() {
    for hash in Hash::ALL {
        for group in Group::ALL {
            // The large groups are slow, and alike for every hash function.
            if group.bytes() > 512 && hash != Hash::Sha384 {
                continue;
            }
            for is_mutual in [false, true] {
                let keys = keys(is_mutual);
                let mut host = Host::new(names(), keys.clone(), Policy::default(), 7);
                let mut controller = Controller::new(names(), keys, only(hash, group));
                assert_eq!(controller.outcome(), Outcome::Pending);
                let (messages, end) = run(&mut host, &mut controller);
                assert_eq!(end, Step::Authenticated, "{hash:?} {group:?}");
                assert_eq!(controller.outcome(), Outcome::Authenticated);
                assert_eq!(messages.len(), if is_mutual { 5 } else { 4 });
                assert_eq!(messages[1].len(), 16 + hash.bytes() + group.bytes());
                assert_eq!(messages[2].len(), 16 + 2 * hash.bytes() + group.bytes());
            }
        }
    }
}

#[test]
fn a_host_may_authenticate_again_and_is_out_when_it_fails_then() {
    let keys = keys(false);
    let mut controller = Controller::new(names(), keys.clone(), only(Hash::Sha256, Group::Null));
    for transaction in 1..3 {
        let mut host = Host::new(names(), keys.clone(), Policy::default(), transaction);
        assert_eq!(run(&mut host, &mut controller).1, Step::Authenticated);
    }
    let mut impostor = Host::new(names(), self::keys(false), Policy::default(), 3);
    assert_eq!(run(&mut impostor, &mut controller).1, refused(Failure::AUTHENTICATION_FAILED));
    assert_eq!(controller.outcome(), Outcome::Failed(Failure::AUTHENTICATION_FAILED));
}

#[test]
fn a_wrong_secret_or_name_of_either_end_is_refused_by_the_other() {
    let right = keys(true);
    let other = keys(true);
    let policy = || only(Hash::Sha512, Group::Null);
    let impostor = Keys { host: other.host.clone(), ..right.clone() };
    let mut controller = Controller::new(names(), right.clone(), policy());
    let (_, end) = run(&mut Host::new(names(), impostor, policy(), 1), &mut controller);
    assert_eq!(end, refused(Failure::AUTHENTICATION_FAILED));
    assert_eq!(controller.outcome(), Outcome::Failed(Failure::AUTHENTICATION_FAILED));

    let renamed = Names { host: "nqn.2014-08.org.example:another".into(), ..names() };
    let mut controller = Controller::new(names(), right.clone(), policy());
    let (_, end) = run(&mut Host::new(renamed, right.clone(), policy(), 1), &mut controller);
    assert_eq!(end, refused(Failure::AUTHENTICATION_FAILED));

    let impostor = Keys { controller: other.controller.clone(), ..right.clone() };
    let mut controller = Controller::new(names(), impostor, policy());
    let (messages, end) = run(&mut Host::new(names(), right.clone(), policy(), 1), &mut controller);
    assert_eq!(end, Step::Failed { failure: Failure::AUTHENTICATION_FAILED, by_controller: false });
    assert_eq!(messages.last().expect("Failure2")[..], [0x00, 0xf0, 0, 0, 1, 0, 0x01, 0x01]);
    assert_eq!(controller.outcome(), Outcome::Failed(Failure::AUTHENTICATION_FAILED));

    // A controller without a secret of its own cannot answer, and says so.
    let poor = Keys { controller: None, ..right.clone() };
    let mut controller = Controller::new(names(), poor, policy());
    let (_, end) = run(&mut Host::new(names(), right, policy(), 1), &mut controller);
    assert_eq!(end, refused(Failure::AUTHENTICATION_FAILED));
}

#[test]
fn ends_that_have_no_hash_function_or_group_in_common_say_which() {
    for (policy, failure) in [
        (only(Hash::Sha256, Group::Null), Failure::HASH_NOT_USABLE),
        (only(Hash::Sha512, Group::Ffdhe2048), Failure::GROUP_NOT_USABLE),
    ] {
        let keys = keys(false);
        let mut controller = Controller::new(names(), keys.clone(), only(Hash::Sha512, Group::Null));
        let (messages, end) = run(&mut Host::new(names(), keys, policy, 0x0201), &mut controller);
        assert_eq!(end, refused(failure));
        assert_eq!(messages[1], [0x00, 0xf1, 0, 0, 0x01, 0x02, 0x01, failure.0]);
    }
}

/// What the Linux host sends first (transaction 0x0102): three hash functions, six groups.
fn negotiate_of_linux() -> Vec<u8> {
    let mut message = vec![0; 72];
    message[..8].copy_from_slice(&[0x00, 0x00, 0, 0, 0x02, 0x01, 0x00, 0x01]);
    message[8..15].copy_from_slice(&[0x01, 0x00, 0x03, 0x06, 0x01, 0x02, 0x03]);
    message[42..48].copy_from_slice(&[0x00, 0x01, 0x02, 0x03, 0x04, 0x05]);
    message
}

#[test]
fn a_host_offers_what_linux_offers_in_the_same_bytes() {
    let policy = Policy {
        hashes: vec![Hash::Sha256, Hash::Sha384, Hash::Sha512],
        groups: vec![
            Group::Null,
            Group::Ffdhe2048,
            Group::Ffdhe3072,
            Group::Ffdhe4096,
            Group::Ffdhe6144,
            Group::Ffdhe8192,
        ],
    };
    let mut host = Host::new(names(), keys(false), policy, 0x0102);
    assert_eq!(host.step(), Step::Send(negotiate_of_linux()));
    assert_eq!(host.step(), Step::Receive { bytes: 4096 });
}

#[test]
fn each_malformed_negotiate_gets_its_failure() {
    let change = |at: usize, value: u8| {
        let mut message = negotiate_of_linux();
        message[at] = value;
        message
    };
    for (message, failure) in [
        (negotiate_of_linux()[..71].to_vec(), Failure::INCORRECT_PAYLOAD),
        (negotiate_of_linux()[..5].to_vec(), Failure::INCORRECT_PAYLOAD),
        (Vec::new(), Failure::INCORRECT_PAYLOAD),
        (change(0, 0x01), Failure::INCORRECT_MESSAGE),
        (change(1, 0x04), Failure::INCORRECT_MESSAGE),
        (change(6, 0x01), Failure::SECURE_CHANNEL_MISMATCH),
        (change(7, 0x00), Failure::INCORRECT_PAYLOAD),
        (change(7, 0x02), Failure::INCORRECT_PAYLOAD),
        (change(8, 0x02), Failure::PROTOCOL_NOT_USABLE),
        (change(10, 0x00), Failure::HASH_NOT_USABLE),
        (change(10, 31), Failure::INCORRECT_PAYLOAD),
        (change(11, 0x00), Failure::GROUP_NOT_USABLE),
        (change(11, 0xff), Failure::INCORRECT_PAYLOAD),
    ] {
        let mut controller = Controller::new(names(), keys(false), Policy::default());
        // A transaction is known when there is a Negotiate.
        controller.send(&message);
        assert_eq!(controller.outcome(), Outcome::Pending, "the host is told first");
        let answer = controller.receive(4096);
        assert_eq!(
            (answer[1], answer[6], answer[7]),
            (message_id::FAILURE1, 0x01, failure.0),
            "{message:02x?}"
        );
        assert_eq!(controller.outcome(), Outcome::Failed(failure));
        assert_eq!(controller.receive(4096), answer, "there is no way back");
        controller.send(&negotiate_of_linux());
        assert_eq!(controller.outcome(), Outcome::Failed(failure));
    }
}

#[test]
fn messages_out_of_order_or_of_another_transaction_are_refused() {
    let keys = keys(true);
    let begun = || {
        let mut controller = Controller::new(names(), keys.clone(), only(Hash::Sha256, Group::Null));
        let mut host = Host::new(names(), keys.clone(), Policy::default(), 5);
        let Step::Send(negotiate) = host.step() else { panic!("Negotiate") };
        controller.send(&negotiate);
        host.step();
        host.received(&controller.receive(4096));
        let Step::Send(reply) = host.step() else { panic!("Reply") };
        (controller, negotiate, reply)
    };
    let (mut controller, ..) = begun();
    assert_eq!(controller.receive(4096)[7], Failure::INCORRECT_MESSAGE.0, "a Challenge is there once");

    let (mut controller, negotiate, _) = begun();
    controller.send(&negotiate);
    assert_eq!(controller.receive(4096)[7], Failure::INCORRECT_MESSAGE.0, "it was time for Reply");

    let (mut controller, _, mut reply) = begun();
    reply[4] ^= 1;
    controller.send(&reply);
    assert_eq!(controller.receive(4096)[7], Failure::INCORRECT_PAYLOAD.0, "another transaction");

    let (mut controller, _, reply) = begun();
    controller.send(&reply);
    controller.send(&reply);
    assert_eq!(controller.receive(4096)[7], Failure::INCORRECT_MESSAGE.0, "Success1 was not fetched");

    let (mut controller, _, reply) = begun();
    controller.send(&reply);
    assert_eq!(controller.receive(47)[7], Failure::INCORRECT_PAYLOAD.0, "no room for Success1");

    let (mut controller, _, reply) = begun();
    controller.send(&reply);
    assert_eq!(controller.receive(48).len(), 48);
    assert_eq!(controller.outcome(), Outcome::Pending, "the host has yet to say Success2");

    let mut fresh = Controller::new(names(), keys.clone(), Policy::default());
    assert_eq!(fresh.receive(6).len(), 6, "no more than there is room for");
    assert_eq!(fresh.outcome(), Outcome::Failed(Failure::INCORRECT_MESSAGE));
}

#[test]
fn a_reply_with_any_bit_of_what_matters_changed_is_refused() {
    let keys = keys(true);
    for at in (0..16 + 2 * 32 + 256).filter(|at| !matches!(at, 2 | 3 | 7 | 9)) {
        // All of the head, and some of each value.
        if at > 16 && at % 13 != 0 {
            continue;
        }
        let mut controller = Controller::new(names(), keys.clone(), only(Hash::Sha256, Group::Ffdhe2048));
        let mut host = Host::new(names(), keys.clone(), Policy::default(), 5);
        let Step::Send(negotiate) = host.step() else { panic!("Negotiate") };
        controller.send(&negotiate);
        host.step();
        host.received(&controller.receive(4096));
        let Step::Send(mut reply) = host.step() else { panic!("Reply") };
        // The lowest bit of CVALID, and of a head's other fields any.
        reply[at] ^= 1;
        controller.send(&reply);
        let answer = controller.receive(4096);
        host.step();
        host.received(&answer);
        match at {
            // Asked no question, or another one: the host sees that in what it gets back.
            8 | 12..16 | 48..80 => {
                assert!(matches!(host.step(), Step::Send(failure) if failure[1] == message_id::FAILURE2));
            }
            _ => assert_eq!(answer[1], message_id::FAILURE1, "byte {at}"),
        }
    }
}

/// Values computed with the HMAC of Python's standard library from the formulas of Base 8.3.4.5.
#[test]
fn responses_are_those_of_the_specification() {
    for (hash, expected) in [
        (
            Hash::Sha256,
            [
                "145350bced56a03785b0661c01e78a59f19905c9470ea388ed12c4fb82f3cfa5",
                "ce224c9056bbb6e3da14d03e1854ec7b9d97002a83bde7b12ccd211501612bef",
                "c9f1b2ea11aa6bceaaaacf16c5f46b76706648303a14c4770cf6f2ba5264f53e",
            ],
        ),
        (
            Hash::Sha384,
            [
                "71d765481a62d38661bd3e6c889bc5e655b9ec311ce6da7905f499e4c317b36c16d6fdfc1b1cffd546d1b8bc017e251a",
                "d094fa77236b04fc939144bc295b8184e1dbbf59fe5635ce5444dc94fdbc6b487a549d4d840091f5dfabebc17544d035",
                "c3503c2a12b8c0bf2fc1c6f33d727496a5f58883a45b89f96b6520acf058ca063e17a6bd94db90c2071a18aa9450da14",
            ],
        ),
        (
            Hash::Sha512,
            [
                "c7760b67087dd0187aff3ee94f21ceda684cc5590168e5d4dc568be1cba9617f\
                 86102733a01658f133742178d9897ded571ce6194fe466af9303175f55cbf242",
                "0ca44e0e1741cfc906d2055b43daa54cf92519a87b44eb926a232fa4718d3a6a\
                 a533acb2d8a8f2355ba8dbb84f4e8a6d390189cb7aa34d91d69a5bc6331931bd",
                "f205de30a1f5cb20c1745682634745b71b645803cea7205b282d3baed9ad1284\
                 b543f36619600b643ec862f4e6b2ae1fa3e371daaf9a7e96f9ef30bcf9c7ce91",
            ],
        ),
    ] {
        let secret = |first: u8| Secret::of_bytes(Some(hash), (first..).take(hash.bytes()).collect());
        let (host, controller) = (secret(0), secret(100));
        let challenge: Vec<u8> = (0..hash.bytes()).map(|i| 0xa0 + (i % 16) as u8).collect();
        let shared: Vec<u8> = (0..256).map(|i| (i * 3) as u8).collect();
        let mut question = Question {
            hash,
            challenge: &challenge,
            shared: None,
            sequence: 0x0102_0304,
            transaction: 0x0506,
        };
        let [alone, augmented, back] = expected.map(bytes);
        assert_eq!(*question.response(Prover::Host, &host, &names()), alone);
        assert_eq!(*question.response(Prover::Controller, &controller, &names()), back);
        question.shared = Some(&shared);
        assert_eq!(*question.response(Prover::Host, &host, &names()), augmented);
    }
}

/// Keys made, and the secret derived, by `openssl genpkey` and `openssl pkeyutl -derive`.
#[test]
fn an_exchange_gives_what_openssl_derives() {
    let theirs = bytes(
        "8a76153bb41e169777f38b88063b0ee6da9b1d86c792f8c2173ce73bb0da9297e49b421a677b4445993e833787df9754\
         cc6ed2de16b5f45a9ffa57a399cb51cfdd617a6f6751aa4755699381eb59da5919560109b79f4dda14e45ab998ec7846\
         c23264fb1148479c860cff6c1f658875e291adb486a054b0489b15ed88374b0abbef4bfed5afe683e7c9c4e2d38dc114\
         2bd09b893cd2cd0cfbe86248abf258b70ba3c359ac814a85b637b9cd93f6cefe9cb754519708349368f77ef760dcac85\
         cb7455b8eb9db9ad0fbecf3f9298076230172a736cd184cd52012fe99f3db90243d259f0f14124d4fc784a33ad863271\
         1a2de3f0ebb4640623b463753d359d0b",
    );
    let exponent = bytes("57dbb4b79a356468531014622dd39034603ade86b5bd96abeba52b08");
    let ours = Exchange::from_exponent(Group::Ffdhe2048, &exponent);
    let digest = |data: &[u8]| Hash::Sha256.of(data).to_vec();
    assert_eq!(
        digest(&ours.public()),
        bytes("cf5d28fec08384a22dc9875bc7e62d655250853b17f5a60dca0ea921eb22461b")
    );
    assert_eq!(
        digest(&ours.shared(&theirs).expect("a value of the group")),
        bytes("e9df051c8fea83c8d3f6488d260f080b817f9274ec94d9f6732f97e5010a404b")
    );
    let exponent = bytes(
        "4e8a50f49994d401601003b5da659a4413bb9ed60785d4b22d5b2e3bc59ddffffcfc13a5494ae17f224e7f0e3b41d72e5af2",
    );
    assert_eq!(
        digest(&Exchange::from_exponent(Group::Ffdhe8192, &exponent).public()),
        bytes("44eed65f6df7cc7932451c48085dc8f7aa9b59dcf96256af2175d1393aa2a9e7")
    );
}

#[test]
fn public_values_that_give_the_secret_away_are_refused() {
    let ours = Exchange::new(Group::Ffdhe2048).expect("random numbers").expect("a group");
    let prime = bytes(group_prime());
    let value = |last: u8| {
        let mut bytes = vec![0; 256];
        bytes[255] = last;
        bytes
    };
    let below = |by: u8| {
        let mut bytes = prime.clone();
        bytes[255] -= by;
        bytes
    };
    for bad in [value(0), value(1), below(1), below(0), vec![0xff; 256], value(2)[1..].to_vec(), Vec::new()] {
        assert!(ours.shared(&bad).is_none(), "{bad:02x?}");
    }
    assert!(ours.shared(&value(2)).is_some());
    assert!(ours.shared(&below(2)).is_some());
}

/// The prime of ffdhe2048 as RFC 7919 prints it.
fn group_prime() -> &'static str {
    "FFFFFFFFFFFFFFFFADF85458A2BB4A9AAFDC5620273D3CF1D8B9C583CE2D3695A9E13641146433FBCC939DCE249B3EF9\
     7D2FE363630C75D8F681B202AEC4617AD3DF1ED5D5FD65612433F51F5F066ED0856365553DED1AF3B557135E7F57C935\
     984F0C70E0E68B77E2A689DAF3EFE8721DF158A136ADE73530ACCA4F483A797ABC0AB182B324FB61D108A94BB2C8E3FB\
     B96ADAB760D7F4681D4F42A3DE394DF4AE56EDE76372BB190B07A7C8EE0A6D709E02FCE1CDF7E2ECC03404CD28342F61\
     9172FE9CE98583FF8E4F1232EEF28183C3FE3B1B4C6FAD733BB5FCBC2EC22005C58EF1837D1683B2C6F34A26C1B2EFFA\
     886B423861285C97FFFFFFFFFFFFFFFF"
}

#[test]
fn a_host_refuses_a_challenge_it_has_not_asked_for() {
    let challenge = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut host = Host::new(names(), keys(false), only(Hash::Sha256, Group::Null), 5);
        host.step();
        host.step();
        let mut message = vec![0x01, 0x01, 0, 0, 5, 0, 32, 0, 0x01, 0x00, 0, 0, 9, 0, 0, 0];
        message.extend([0xaa; 32]);
        change(&mut message);
        host.received(&message);
        match host.step() {
            Step::Send(message) if message[1] == message_id::FAILURE2 => Some(Failure(message[7])),
            Step::Send(_) => None,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(challenge(&|_| ()), None);
    assert_eq!(challenge(&|it| it[0] = 0), Some(Failure::INCORRECT_MESSAGE));
    assert_eq!(challenge(&|it| it[1] = 3), Some(Failure::INCORRECT_MESSAGE));
    assert_eq!(challenge(&|it| it[4] = 6), Some(Failure::INCORRECT_PAYLOAD));
    assert_eq!(challenge(&|it| it[6] = 48), Some(Failure::INCORRECT_PAYLOAD));
    assert_eq!(challenge(&|it| it[8] = 2), Some(Failure::HASH_NOT_USABLE));
    assert_eq!(challenge(&|it| it[8] = 9), Some(Failure::HASH_NOT_USABLE));
    assert_eq!(challenge(&|it| it[9] = 1), Some(Failure::GROUP_NOT_USABLE));
    assert_eq!(challenge(&|it| it[12] = 0), Some(Failure::INCORRECT_PAYLOAD));
    assert_eq!(challenge(&|it| it[10] = 4), Some(Failure::INCORRECT_PAYLOAD));
    assert_eq!(challenge(&|it| it.truncate(47)), Some(Failure::INCORRECT_PAYLOAD));
    assert_eq!(challenge(&|it| it.truncate(5)), Some(Failure::INCORRECT_PAYLOAD));
}

#[test]
fn nothing_that_is_printed_has_a_secret_in_it() {
    let keys = keys(true);
    let text = keys.host.to_text();
    let host = Host::new(names(), keys.clone(), Policy::default(), 1);
    let printed =
        format!("{keys:?} {host:?} {:?}", Controller::new(names(), keys.clone(), Policy::default()));
    assert!(!printed.contains(&text[10..20]), "{printed}");
    assert!(printed.contains("Secret(..)"));
}

proptest! {
    #[test]
    fn no_bytes_from_the_other_end_make_either_end_panic_or_let_anybody_in(
        messages in proptest::collection::vec(
            (proptest::collection::vec(any::<u8>(), 0..120), any::<bool>(), 0_u8..6), 1..12,
        ),
        bytes in 0_u32..5000,
    ) {
        let keys = keys(true);
        let mut controller = Controller::new(names(), keys.clone(), only(Hash::Sha256, Group::Null));
        for (mut message, is_common, auth_id) in messages.clone() {
            // Heads that are often plausible, so that what is behind them is reached.
            if let [auth_type, id, _, _, low, high, ..] = message.as_mut_slice() {
                (*auth_type, *id, *low, *high) = (u8::from(!is_common), auth_id, 5, 0);
            }
            controller.send(&message);
            controller.receive(bytes);
        }
        prop_assert_ne!(controller.outcome(), Outcome::Authenticated);
        for (mut message, is_common, auth_id) in messages {
            let mut host = Host::new(names(), keys.clone(), Policy::default(), 5);
            host.step();
            if let [auth_type, id, _, _, low, high, ..] = message.as_mut_slice() {
                (*auth_type, *id, *low, *high) = (u8::from(!is_common), auth_id, 5, 0);
            }
            host.received(&message);
            prop_assert_ne!(host.step(), Step::Authenticated);
        }
    }
}
