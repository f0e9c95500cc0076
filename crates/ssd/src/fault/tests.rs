use std::time::Duration;

use unvme_spec::Status;

use super::judge::Subject;
use super::state::{Faults, SavedFault};
use super::*;

fn rule(text: &str) -> FaultRule {
    match parse_faults(text) {
        Ok(rules) if rules.len() == 1 => rules.into_iter().next().unwrap(),
        other => panic!("{text}: {other:?}"),
    }
}

fn refusal(text: &str) -> String {
    parse_faults(text).unwrap_err().to_string()
}

fn subject(opcode: u8, nsid: u32, blocks: &[(u64, u64)]) -> Subject<'_> {
    Subject { queue: 1, opcode, nsid, blocks, key: None }
}

/// Which of `count` equal commands, numbered from 1, get a fault.
fn hits(faults: &Faults, count: u32) -> Vec<u32> {
    (1..=count).filter(|_| faults.judge(&subject(1, 1, &[(0, 0)])).is_some()).collect()
}

fn with(text: &str) -> Faults {
    Faults::start(Vec::new(), &[rule(text)]).unwrap()
}

#[test]
fn a_rule_with_everything_is_read_and_written_as_it_was() {
    let text = r#"{"id":7,"match":{"opcode":"write","namespace":2,"lba":"100-200","queue":3,"after":2,"every":5,"count":9,"probability":0.25,"seed":42},"act":{"status":"0x4281","more":false,"executed":true,"delay":"50us-2ms","corrupt":{"data":"write","offset":16,"xor":"80ff"},"completion":"duplicate","read_only":true,"event":{"type":1,"info":2,"log_page":3}}}"#;
    let parsed = rule(text);
    assert_eq!(parsed.id, Some(7));
    assert_eq!(parsed.matching.lba, Some(LbaRange { first: 100, last: 200 }));
    assert_eq!((parsed.matching.after, parsed.matching.every, parsed.matching.count), (2, 5, Some(9)));
    let status = parsed.action.status.unwrap();
    assert_eq!((status.kind(), status.do_not_retry()), (Status::UNRECOVERED_READ_ERROR, true));
    let delay = FaultDelay { min: Duration::from_micros(50), max: Duration::from_millis(2) };
    assert_eq!(parsed.action.delay, Some(delay));
    assert_eq!(serde_json::to_string(&parsed).unwrap(), text);
    let text = r#"{"match":{"key_prefix":"0x00ff","opcode":"admin:0x06"},"act":{"drop":true}}"#;
    assert!(refusal(text).contains("expected an I/O command beside lba or key"));
    for text in [
        r#"{"match":{"key":"user:1"},"act":{"drop":true}}"#,
        r#"{"match":{"key_prefix":"0x00ff"},"act":{"corrupt":{"data":"read","bits":3}}}"#,
        r#"{"match":{"opcode":"identify"},"act":{"status":"0x006"}}"#,
        r#"{"match":{"program":1234},"act":{"power_cut":true}}"#,
        r#"{"act":{"unplug":true}}"#,
        r#"{"act":{"fatal":true}}"#,
    ] {
        assert_eq!(serde_json::to_string(&rule(text)).unwrap(), text);
    }
}

#[test]
fn statuses_and_opcodes_have_names() {
    assert_eq!(parse_fault_status("unrecovered-read-error"), Ok(Status::UNRECOVERED_READ_ERROR));
    assert_eq!(parse_fault_status("write-fault"), Ok(Status::WRITE_FAULT));
    assert_eq!(parse_fault_status("0x281"), Ok(Status::UNRECOVERED_READ_ERROR));
    assert_eq!(parse_fault_status("641"), Ok(Status::UNRECOVERED_READ_ERROR));
    for text in ["", "0x8000", "read-error", "-1", "0x"] {
        assert!(parse_fault_status(text).is_err(), "{text}");
    }
    let opcode = |text: &str| text.parse::<FaultOpcode>();
    assert!(opcode("read").unwrap().matches(0x02) && !opcode("read").unwrap().is_admin());
    assert!(opcode("store").unwrap().matches(0x01) && opcode("store").unwrap().matches(0x81));
    assert!(opcode("identify").unwrap().matches(0x06) && opcode("identify").unwrap().is_admin());
    assert_eq!(opcode("0x91").unwrap(), FaultOpcode::io(0x91));
    assert_eq!(opcode("admin:10").unwrap(), FaultOpcode::admin(10));
    for text in ["", "256", "admin:read", "Read", "admin:"] {
        assert!(opcode(text).unwrap_err().contains("identify"), "{text}");
    }
}

#[test]
fn what_is_wrong_is_told_with_its_place_and_its_key() {
    for (text, message) in [
        ("", "line 1, column 0: EOF while parsing a value"),
        ("7", "line 1, column 1: invalid type: integer `7`, expected a rule or an array of rules"),
        ("{\n  \"acts\": {} }", "line 2, column 8: `acts` is not known here; keys are id, match, act"),
        (
            "{\"match\": {\n  \"lbas\": 1}}",
            "line 2, column 8: match: `lbas` is not known here; keys are opcode, namespace, lba, key, key_prefix, \
             queue, program, after, every, count, probability, seed",
        ),
        (
            "{\"match\": {\"lba\": \"9-3\"}}",
            "line 1, column 24: match: lba: `9-3`: expected blocks such as 100 or 100-200, in ascending order",
        ),
        (
            "{\"act\": {\"delay\": \"5 minutes\"}}",
            "line 1, column 30: act: delay: `5 minutes`: expected a time such as 50ms or 100us-2ms, with a unit of us, \
             ms or s",
        ),
        (
            "{\"act\": {\"drop\": 1}}",
            "line 1, column 19: act: drop: `1` is not possible; expected true or false",
        ),
        ("{\"id\": 1, \"id\": 2}", "line 1, column 14: `id` is there twice"),
        (
            "{\"act\": {}}",
            "line 1, column 11: act: nothing is not possible; expected one of status, delay, drop, corrupt, \
             completion, fatal, read_only, event, unplug, power_cut",
        ),
    ] {
        assert_eq!(refusal(text), message, "{text}");
    }
}

#[test]
fn values_out_of_their_bounds_and_things_that_do_not_go_together_are_refused() {
    for (text, expected) in [
        (r#"{"match":{"namespace":0},"act":{"drop":true}}"#, "match.namespace: 0"),
        (r#"{"match":{"namespace":129},"act":{"drop":true}}"#, "match.namespace: 129"),
        (r#"{"match":{"queue":65},"act":{"drop":true}}"#, "match.queue: 65"),
        (r#"{"match":{"every":0},"act":{"drop":true}}"#, "match.every: 0"),
        (r#"{"match":{"count":0},"act":{"drop":true}}"#, "match.count: 0"),
        (r#"{"match":{"after":281474976710657},"act":{"drop":true}}"#, "match.after: 281474976710657"),
        (r#"{"match":{"probability":0},"act":{"drop":true}}"#, "match.probability: 0"),
        (r#"{"match":{"probability":1.01},"act":{"drop":true}}"#, "match.probability: 1.01"),
        (r#"{"match":{"key":""},"act":{"drop":true}}"#, "match.key: 0 bytes"),
        (r#"{"match":{"program":1},"act":{"drop":true}}"#, "match.program: with this action"),
        (
            r#"{"match":{"program":1,"queue":1},"act":{"unplug":true}}"#,
            "match.program: with other conditions",
        ),
        (r#"{"act":{"drop":true,"status":6}}"#, "act: drop and status"),
        (r#"{"act":{"drop":true,"fatal":true}}"#, "act: drop and fatal"),
        (r#"{"act":{"status":6,"corrupt":{"data":"read"}}}"#, "act.corrupt: with status or drop"),
        (r#"{"act":{"delay":"601s"}}"#, "act.delay"),
        (r#"{"act":{"delay":"0us"}}"#, "act.delay"),
        (r#"{"act":{"corrupt":{"data":"read","bits":0}}}"#, "act.corrupt.bits: 0"),
        (r#"{"act":{"corrupt":{"data":"read","bits":4097}}}"#, "act.corrupt.bits: 4097"),
        (r#"{"act":{"corrupt":{"data":"read","xor":"00"}}}"#, "act.corrupt.xor: zeroes"),
        (r#"{"act":{"corrupt":{"data":"read","xor":"0"}}}"#, "act: corrupt: xor: `0`"),
        (r#"{"act":{"corrupt":{"bits":1}}}"#, "act: corrupt: data is missing"),
        (r#"{"act":{"corrupt":{"data":"read","offset":1}}}"#, "act: corrupt: xor is missing"),
        (r#"{"act":{"dnr":true}}"#, "act: dnr: there is no status"),
        (r#"{"act":{"executed":true,"delay":"1ms"}}"#, "act.executed: without status or drop"),
        (r#"{"act":{"more":false,"delay":"1ms"}}"#, "act.more: without status"),
        (r#"{"act":{"event":{"type":8}}}"#, "act: event: type: 8"),
        (
            r#"{"match":{"queue":0},"act":{"corrupt":{"data":"read"}}}"#,
            "act.corrupt: data of an admin command",
        ),
        (r#"{"id":0,"act":{"drop":true}}"#, "id: 0"),
        (
            r#"{"match":{"opcode":"read","key":"a","key_prefix":"b"},"act":{"drop":true}}"#,
            "match: key_prefix",
        ),
    ] {
        let message = refusal(text);
        assert!(message.contains(expected), "{text}\n{message}");
    }
    let many = format!("[{}]", vec![r#"{"act":{"drop":true}}"#; FAULTS_MAX + 1].join(","));
    assert!(refusal(&many).ends_with("more than 64 rules"));
    assert!(refusal(&" ".repeat(FAULT_TEXT_BYTES_MAX + 1)).contains("expected at most 1048576"));
    assert!(refusal(&"[".repeat(100_000)).contains("invalid type"));
    assert!(refusal(&format!("{{\"act\":{}", "[".repeat(100_000))).contains("line 1"));
}

#[test]
fn after_every_and_count_choose_among_commands_that_match() {
    assert_eq!(hits(&with(r#"{"act":{"drop":true}}"#), 4), [1, 2, 3, 4]);
    assert_eq!(hits(&with(r#"{"match":{"after":2,"count":1},"act":{"drop":true}}"#), 9), [3]);
    assert_eq!(hits(&with(r#"{"match":{"every":3},"act":{"drop":true}}"#), 10), [3, 6, 9]);
    assert_eq!(hits(&with(r#"{"match":{"after":4,"every":2,"count":2},"act":{"drop":true}}"#), 12), [6, 8]);
    let faults = with(r#"{"match":{"opcode":"write","namespace":1,"lba":"100-200"},"act":{"drop":true}}"#);
    for (subject, is_hit) in [
        (subject(1, 1, &[(100, 100)]), true),
        (subject(1, 1, &[(90, 100)]), true),
        (subject(1, 1, &[(200, 300)]), true),
        (subject(1, 1, &[(0, u64::MAX)]), true),
        (subject(1, 1, &[(0, 99)]), false),
        (subject(1, 1, &[(201, 201)]), false),
        (subject(1, 2, &[(100, 100)]), false),
        (subject(2, 1, &[(100, 100)]), false),
        (subject(1, 1, &[]), false),
        (subject(1, 1, &[(0, 0), (300, 400), (150, 150)]), true),
        (subject(1, 1, &[(0, 99), (201, 400)]), false),
        (Subject { queue: 0, ..subject(1, 1, &[(100, 100)]) }, false),
    ] {
        assert_eq!(faults.judge(&subject).is_some(), is_hit, "{:?}", (subject.opcode, subject.blocks));
    }
    let faults = with(r#"{"match":{"key_prefix":"ab"},"act":{"drop":true}}"#);
    let of = |key| faults.judge(&Subject { key: Some(key), ..subject(1, 1, &[]) }).is_some();
    assert_eq!([&b"abc"[..], b"ab", b"a", b"xab"].map(of), [true, true, false, false]);
    let faults = with(r#"{"match":{"queue":0,"count":1},"act":{"drop":true}}"#);
    assert!(faults.judge(&subject(6, 0, &[])).is_none());
    assert!(faults.judge(&Subject { queue: 0, ..subject(6, 0, &[]) }).is_some());
    assert!(!faults.is_armed(), "its count is used up");
}

#[test]
fn chance_is_as_likely_as_it_says_and_the_same_for_the_same_seed() {
    let text = |seed| format!(r#"{{"match":{{"probability":0.01,"seed":{seed}}},"act":{{"drop":true}}}}"#);
    let of = |seed| hits(&with(&text(seed)), 100_000);
    let (seven, eight) = (of(7), of(8));
    assert_eq!(seven, of(7));
    assert_ne!(seven, eight);
    // 1000 expected, with a standard deviation of 31.
    for found in [seven, eight] {
        assert!((850..1150).contains(&found.len()), "{}", found.len());
    }
    let faults = with(r#"{"match":{"seed":3},"act":{"delay":"1ms-2ms"}}"#);
    let mut delays: Vec<u64> =
        (0..1000).map(|_| faults.judge(&subject(1, 1, &[])).unwrap().delay_ns).collect();
    delays.sort_unstable();
    assert!(delays[0] >= 1_000_000 && delays[999] <= 2_000_000);
    assert!((1_450_000..1_550_000).contains(&delays[500]), "{}", delays[500]);
}

#[test]
fn numbers_are_given_in_order_and_used_again() {
    let faults = Faults::default();
    let drop = || rule(r#"{"act":{"drop":true}}"#);
    assert_eq!([(); 3].map(|()| faults.add(drop()).unwrap()), [1, 2, 3]);
    assert_eq!(faults.clear(Some(2)), 1);
    assert_eq!(faults.clear(Some(2)), 0);
    assert_eq!(faults.add(drop()), Ok(2));
    let error = faults.add(FaultRule { id: Some(3), ..drop() }).unwrap_err();
    assert_eq!(error.to_string(), "id: there is a rule 3 already; expected another number, or none");
    let both = [FaultRule { id: Some(9), ..drop() }, FaultRule { id: Some(1), ..drop() }];
    assert!(faults.add_all(both.to_vec(), true).is_err());
    assert_eq!(faults.list().len(), 3, "all of them or none");
    while faults.list().len() < FAULTS_MAX {
        faults.add(drop()).unwrap();
    }
    let error = faults.add(drop()).unwrap_err().to_string();
    assert_eq!(error, "a device has at most 64 rules; clear some");
    assert_eq!(faults.clear(None), FAULTS_MAX);
    assert!(!faults.is_armed());
}

#[test]
fn saved_rules_go_on_where_they_were() {
    let text = r#"{"match":{"probability":0.5,"seed":1},"act":{"drop":true}}"#;
    let whole = hits(&with(text), 200);
    let faults = Faults::default();
    faults.add(rule(text)).unwrap();
    let mut found = hits(&faults, 100);
    let saved = serde_json::to_string(&faults.saved()).unwrap();
    let restored: Vec<SavedFault> = serde_json::from_str(&saved).unwrap();
    let faults = Faults::start(restored, &[]).unwrap();
    found.extend(hits(&faults, 100).into_iter().map(|number| number + 100));
    assert_eq!(found, whole);
    assert!(with(text).saved().is_empty(), "rules of the configuration end with the process");
    for wrong in [
        r#"[{"rule":{"id":1,"act":{"drop":true}},"matched":1,"hits":2}]"#,
        r#"[{"rule":{"id":1,"act":{"drop":true}},"matched":281474976710657,"hits":2}]"#,
        r#"[{"rule":{"act":{"drop":true}},"matched":1,"hits":1}]"#,
    ] {
        let saved: Vec<SavedFault> = serde_json::from_str(wrong).unwrap();
        assert!(Faults::start(saved, &[]).is_err(), "{wrong}");
    }
}

#[test]
fn programs_are_counted_to_the_one_at_which_the_power_is_cut() {
    let faults = with(r#"{"match":{"program":10},"act":{"power_cut":true}}"#);
    assert_eq!([faults.programmed(4), faults.programmed(5)], [4, 5]);
    assert!(!faults.is_off());
    // The tenth is not programmed whole, and nothing after it at all.
    assert_eq!([faults.programmed(3), faults.programmed(1)], [0, 0]);
    assert!(faults.is_off());
    let faults = with(r#"{"match":{"program":2},"act":{"event":{"type":1}}}"#);
    assert_eq!([faults.programmed(5), faults.programmed(1)], [5, 1]);
    assert_eq!(faults.list()[0].hits, 1);
    assert!(!faults.counts_programs());
    assert_eq!(Faults::default().programmed(7), 7);
}

#[test]
fn what_a_program_sets_off_is_seen_to_by_the_next_command_whoever_programs() {
    let faults = with(r#"{"match":{"program":2},"act":{"unplug":true}}"#);
    assert_eq!(faults.programmed(2), 2);
    assert!(!faults.counts_programs());
    assert!(faults.is_armed(), "nobody has seen to it yet");
}
