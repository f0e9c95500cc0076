//! `docs/faults.md` says what the device takes.

use unvme_ssd::parse_faults;

const GUIDE: &str = include_str!("../../../docs/faults.md");

#[test]
fn every_rule_in_the_guide_is_a_rule() {
    let blocks: Vec<&str> = GUIDE
        .split("```json\n")
        .skip(1)
        .filter_map(|rest| rest.split_once("```").map(|(block, _)| block))
        .collect();
    assert_eq!(blocks.len(), 5);
    for block in blocks {
        let rules = parse_faults(block).unwrap_or_else(|e| panic!("{e}: {block}"));
        assert!(!rules.is_empty());
    }
}

#[test]
fn the_guide_has_every_key_that_there_is() {
    for wrong in [
        "{ \"x\": 1 }",
        "{ \"match\": { \"x\": 1 } }",
        "{ \"act\": { \"x\": 1 } }",
        "{ \"act\": { \"corrupt\": { \"x\": 1 } } }",
    ] {
        let message = parse_faults(wrong).expect_err("no such key").to_string();
        let (_, keys) = message.split_once("keys are ").expect("a list of keys");
        for key in keys.split(", ").filter_map(|key| key.split_whitespace().next()) {
            let described = ['`', '"'].iter().any(|quote| GUIDE.contains(&format!("{quote}{key}{quote}")));
            assert!(described, "`{key}` of {message}");
        }
    }
}
