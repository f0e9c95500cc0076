//! Transactions between Linux and itself: nvme-tcp and nvmet of Linux 6.12.107, connected by nvme-cli 2.13,
//! recorded at a proxy between them. The group is NULL: what the exponents of another were does not pass over
//! the wire.

use unvme_spec::auth::{Challenge, Reply};

use super::*;

const LOCKED: &str = "nqn.2024-01.io.example:locked";

struct Recorded {
    host_key: &'static str,
    controller_key: Option<&'static str>,
    hash: Hash,
    challenge: &'static str,
    reply: &'static str,
    /// Success1, or Failure1.
    answer: &'static str,
}

const NULL_SHA256: Recorded = Recorded {
    host_key: "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:",
    controller_key: None,
    hash: Hash::Sha256,
    challenge: "\
        0101000000002000010000000447fb7a80a7d38622cf972f1e0b7ebb3c67b24a5cdf76bbcfd388a188540f78245f28e5",
    reply: "\
        0102000000002000000000000547fb7a5bb74d00b2cc21c83dc4e144e69eb7c4f319a4eb694e5a0ab23564028b7b15b4\
        0000000000000000000000000000000000000000000000000000000000000000",
    answer: "01030000000020000000000000000000",
};

const NULL_SHA256_BOTH: Recorded = Recorded {
    host_key: "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:",
    controller_key: Some("DHHC-1:00:gIGCg4SFhoeIiYqLjI2Oj5CRkpOUlZaXmJmam5ydnp9vmVbU:"),
    hash: Hash::Sha256,
    challenge: "\
        0101000000002000010000000847fb7a1e22fef0b8a23263c51c2e9cc02b78254e34da4326f939f36e73c11753d580e0",
    reply: "\
        0102000000002000010000000947fb7a4d56661c2cdf7a5d7e375845f191df5e33b93ef1ed7c920dd7fb3a9daeab99d6\
        00a1c1bf981b703492c5f34e1a0529b68fa64dce18b5e7e7d7f37e34a41a1a05",
    answer: "\
        01030000000020000100000000000000bcfacaa7f0018c7b34d2a119beabb998f414e1dadc3b1d57e5d37519ad8b7f7f",
};

const NULL_SHA384_BOTH: Recorded = Recorded {
    host_key: "DHHC-1:02:JzgkyQ7IBRNgZgoVJQTRqDZ62Hnj5/kZ+vrrqjiE4TzoZZv5ycVS5cOLCiZ1bQfVVxJqow==:",
    controller_key: Some(
        "DHHC-1:02:mzjW4Bs7QIN8YUncVgVVoAVhT6/Z01yMc0RZZauFEUNpdefOLW1Qu/EwNYxrO9vfyjqTKQ==:",
    ),
    hash: Hash::Sha384,
    challenge: "\
        0101000000003000020000000c47fb7a07836f35768d5745a0e5bf0f914d333c996128b93624e5ce45c85c6bfb4e71f6\
        85bf8884d69d7fb8b48aef8bac998ae4",
    reply: "\
        0102000000003000010000000d47fb7a1e682f9ecf302a155fd05c719f742f7d30e0065d9ff4d153b9681d52f098a527\
        c6704c3000ba51e2444d12564bf9929814ed39c97aae9473b051fd233bab5153a6a45c41809e02bcaf9c63f09b89f476\
        4274a2b78ed9e3348b5242feff1c5c45",
    answer: "\
        010300000000300001000000000000006c50698e802ecd3e1329b4ed2c05ce0a1d6a94893f2ba4d0d874c298517f01d0\
        dbaef6c4f7059c4fbd2c4de8c72c2b2f",
};

const NULL_SHA512_BOTH: Recorded = Recorded {
    host_key: "DHHC-1:03:D+Ucidhr9Oh00yaKCrMLB2s2c/hsojlyxwni12p59UZ78f4YQ6UMpEcQG4yaPnLJFkljK+euytryvvQe2rYShiu0Vv0=:",
    controller_key: Some(
        "DHHC-1:03:ka9WAz74HF2gWo3lx4AarsFc7+eYaIwXvl321eR1fbYz322ZgfQolkXFAz3sN2RDGKmvGL+r7xZnViYzLZULXU1MndQ=:",
    ),
    hash: Hash::Sha512,
    challenge: "\
        0101000000004000030000001047fb7a5d1d0e99c4c98db9f692418e25d7855489f6206ee8757bb6bce60903966bb1cc\
        f70c5958f3e997aecfa2a8975ed33e11c46fab70158c14b871b22fd53dc6a112",
    reply: "\
        0102000000004000010000001147fb7ac3e1adcef2623be30b223c509df4ce4d8a261816b4282809f9a71b36cb686709\
        9f239558ef025140c22c79ec451497346d946c08b86886c1417c42c022afa42c895e70bf71dcabd7bb53829289e5f93e\
        8be9bf9f7fa8671db8b96d526c8238ba015f5e4e5470e0f92ee698b41ec9de571c456f935229e727da041d10ad1f1081",
    answer: "\
        01030000000040000100000000000000679165cff618be8cf29537deb113f31296f36e3f872e6e491696e90c8ecf0387\
        80ac25fce15a6c6ed987445978eec961baa079802c79f2cde0061ecbeff1d138",
};

const WRONG_KEY: Recorded = Recorded {
    host_key: "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:",
    controller_key: None,
    hash: Hash::Sha256,
    challenge: "\
        0101000000002000010000002047fb7a355e63956a8699d7038880a0b331f4b7e786deb6a638e31a751b3bbec1fcb8d2",
    reply: "\
        0102000000002000000000002147fb7ad9f881c57f5c3a7b1139dff10019565bf6a9cb6f6729840efab0a5c2b8397121\
        0000000000000000000000000000000000000000000000000000000000000000",
    answer: "00f1000000000101",
};

impl Recorded {
    fn names(&self) -> Names {
        Names { host: HOST.into(), subsystem: LOCKED.into() }
    }

    fn keys(&self) -> Keys {
        let secret = |text: &str| Secret::parse(text).expect("a secret");
        Keys { host: secret(self.host_key), controller: self.controller_key.map(secret) }
    }

    /// What a controller says that has sent the recorded Challenge.
    fn answer_to(&self, reply: &[u8]) -> (Vec<u8>, Controller) {
        let challenge = bytes(self.challenge);
        let challenge = Challenge::parse(&challenge).expect("whole");
        let controller = Controller::new(self.names(), self.keys(), Policy::default());
        let mut controller = controller.after_challenge(&challenge);
        controller.send(reply);
        (controller.receive(4096), controller)
    }
}

#[test]
fn a_controller_gives_linux_the_answers_that_linux_gives() {
    for recorded in [&NULL_SHA256_BOTH, &NULL_SHA384_BOTH, &NULL_SHA512_BOTH] {
        let (answer, mut controller) = recorded.answer_to(&bytes(recorded.reply));
        assert_eq!(answer, bytes(recorded.answer));
        assert_eq!(controller.outcome(), Outcome::Pending);
        controller.send(&bytes(SUCCESS2));
        assert_eq!(controller.outcome(), Outcome::Authenticated);
    }
    let (answer, controller) = NULL_SHA256.answer_to(&bytes(NULL_SHA256.reply));
    // Where there is no response ours has zeroes, and what Linux transfers has them too.
    assert_eq!(answer, [bytes(NULL_SHA256.answer), vec![0; 32]].concat());
    assert_eq!(controller.outcome(), Outcome::Authenticated);
    let (answer, controller) = WRONG_KEY.answer_to(&bytes(WRONG_KEY.reply));
    assert_eq!(answer, bytes(WRONG_KEY.answer));
    assert_eq!(controller.outcome(), Outcome::Failed(Failure::AUTHENTICATION_FAILED));
}

/// What ends each transaction in which the controller proves itself.
const SUCCESS2: &str = "01040000000000000000000000000000";

#[test]
fn a_host_believes_what_linux_proves_and_ends_as_linux_does() {
    for recorded in [&NULL_SHA256_BOTH, &NULL_SHA384_BOTH, &NULL_SHA512_BOTH] {
        let reply = bytes(recorded.reply);
        let reply = Reply::parse(&reply).expect("whole");
        let host = Host::new(recorded.names(), recorded.keys(), Policy::default(), 0);
        let mut host = host.after_reply(recorded.hash, &reply);
        host.received(&bytes(recorded.answer));
        assert_eq!(host.step(), Step::Send(bytes(SUCCESS2)));
        assert_eq!(host.step(), Step::Authenticated);
    }
    let mut host = Host::new(WRONG_KEY.names(), WRONG_KEY.keys(), Policy::default(), 0);
    host.step();
    host.received(&bytes(WRONG_KEY.answer));
    assert_eq!(host.step(), Step::Failed { failure: Failure::AUTHENTICATION_FAILED, by_controller: true });
}

#[test]
fn a_host_answers_as_linux_does() {
    for recorded in [&NULL_SHA256, &NULL_SHA256_BOTH, &NULL_SHA384_BOTH, &NULL_SHA512_BOTH] {
        let mut host = Host::new(recorded.names(), recorded.keys(), Policy::default(), 0);
        host.step();
        host.received(&bytes(recorded.challenge));
        let Step::Send(ours) = host.step() else { panic!("Reply") };
        let theirs = bytes(recorded.reply);
        let (ours, theirs) = (Reply::parse(&ours).expect("whole"), Reply::parse(&theirs).expect("whole"));
        assert_eq!(ours.response, theirs.response);
        assert_eq!(ours.head.has_challenge, theirs.head.has_challenge);
    }
}
