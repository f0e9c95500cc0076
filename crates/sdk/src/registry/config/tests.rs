use super::*;
use crate::registry::VictimPolicy;

const GOOD: &str = r#"{
  "version": 1,
  "type": "block",
  "capacity_bytes": 4194304,
  "media": "file",
  "serial": "S1",
  "model": "M",
  "namespaces": [
    { "bytes": 2097152, "block_bytes": 4096 }
  ]
}"#;

fn parse(text: &str) -> Result<DeviceSpec> {
    DeviceSpec::parse(text, Path::new("/s/device.json"))
}

fn refusal(text: &str) -> String {
    match parse(text) {
        Ok(spec) => panic!("accepted: {spec:?}"),
        Err(e) => e.to_string(),
    }
}

#[test]
fn a_description_survives_being_stored_and_loaded() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join("device.json");
    let mut spec = DeviceSpec::block(Size(64 << 20), BlockBytes::B4096, "UNVME-1");
    spec.media = MediaKind::Null;
    spec.store(&path).expect("store");
    assert_eq!(DeviceSpec::load(&path).expect("load"), spec);
    assert!(matches!(spec.store(&path), Err(Error::Io { .. })), "an existing description is not overwritten");
}

#[test]
fn checksums_are_for_blocks_that_have_none() {
    let with = |change: &dyn Fn(&mut DeviceSpec)| {
        let mut spec = DeviceSpec::block(Size(64 << 20), BlockBytes::B4096, "UNVME-1");
        spec.checksum = true;
        change(&mut spec);
        spec.check().map_err(|error| error.to_string())
    };
    assert_eq!(with(&|_| {}), Ok(()));
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join("device.json");
    let spec = DeviceSpec { checksum: true, ..DeviceSpec::block(Size(64 << 20), BlockBytes::B512, "U") };
    spec.store(&path).expect("store");
    assert!(DeviceSpec::load(&path).expect("load").checksum);
    for (change, expected) in [
        (
            &(|s: &mut DeviceSpec| s.ftl = Some(FtlSpec::new(Size(64 << 20)))) as &dyn Fn(&mut DeviceSpec),
            "flash has",
        ),
        (&|s| s.media = MediaKind::Null, "expected media `file`"),
        (&|s| *s = DeviceSpec { checksum: true, ..DeviceSpec::kv(Size(64 << 20), "U") }, "pairs have"),
    ] {
        let refused = with(change).expect_err("it is refused");
        assert!(refused.contains("`checksum`: ") && refused.contains(expected), "{refused}");
    }
}

#[test]
fn a_whole_description_parses() {
    let spec = parse(GOOD).expect("parse");
    assert_eq!(spec.capacity_bytes, 4 << 20);
    assert_eq!(spec.namespaces, [NamespaceSpec::blocks(2 << 20, BlockBytes::B4096)]);
}

#[test]
fn errors_name_file_line_column_and_key() {
    for (from, to, expected) in [
        (
            "\"capacity_bytes\": 4194304",
            "\"capacity_bytes\": \"4M\"",
            "/s/device.json:4:24: `capacity_bytes`: invalid type: string \"4M\", expected u64",
        ),
        (
            "\"capacity_bytes\": 4194304",
            "\"capacity_bytes\": 7",
            "/s/device.json:4:21: `capacity_bytes`: a capacity is 2M to 8T in steps of 2M, not 7",
        ),
        ("\"media\"", "\"medium\"", "/s/device.json:5:10: `medium`: unknown field `medium`, expected one of"),
        (
            "\"file\"",
            "\"tape\"",
            "/s/device.json:5:17: `media`: unknown variant `tape`, expected one of `file`, `null`, `tags`",
        ),
        (
            "\"block\"",
            "\"tape\"",
            "/s/device.json:3:16: `type`: unknown variant `tape`, expected `block` or `kv`",
        ),
        (
            "\"block\"",
            "\"kv\"",
            "/s/device.json:8:3: `namespaces`: a device of type kv has a namespace of type kv",
        ),
        (
            "\"serial\"",
            "\"keyspace_field\": \"nsid\", \"serial\"",
            "/s/device.json:6:3: `keyspace_field`: only a device of type kv has keyspaces",
        ),
        ("4096", "1000", "`block_bytes`: a logical block has 512 or 4096 bytes, not 1000"),
        ("\"version\": 1", "\"version\": 2", "`version`: version 2 of the description is not known"),
        ("\"S1\"", "\"\"", "`serial`: expected 1 to 20 printable ASCII characters"),
        ("\"S1\"", "\"123456789012345678901\"", "`serial`: expected 1 to 20 printable ASCII characters"),
        ("\"M\"", "\"a\\u0007b\"", "`model`: expected 1 to 40 printable ASCII characters"),
        ("\"serial\": \"S1\",", "", "missing field `serial`"),
        ("\"serial\": \"S1\",", "\"serial\": \"S1\", \"serial\": \"S2\",", "duplicate field `serial`"),
        ("2097152", "2097153", "`namespaces`: namespace 1 has 2097153 bytes, which is no positive multiple"),
        ("2097152", "8388608", "/s/device.json:8:3: `namespaces`: they take 4 units of 2M, the device has 2"),
        ("]", "", "/s/device.json:11:1: "),
    ] {
        let message = refusal(&GOOD.replacen(from, to, 1));
        assert!(message.contains(expected), "{from} -> {to}: {message}");
    }
}

#[test]
fn rubbish_is_an_error_and_never_a_panic() {
    for text in ["", "[", "null", "\"", "{\"a\\", "{\"serial\":\"\\ud800\"}", "\u{0}", "{}}"] {
        refusal(text);
    }
    for end in 0..GOOD.len() {
        refusal(&GOOD[..end]);
    }
}

#[test]
fn a_description_made_in_code_is_checked_like_one_in_a_file() {
    let good = DeviceSpec::block(Size(4 << 20), BlockBytes::B512, "S1");
    good.check().expect("good");
    let small = DeviceSpec::block(Size(4096), BlockBytes::B512, "S1");
    assert_eq!(
        small.check().expect_err("too small").to_string(),
        "`capacity_bytes`: a capacity is 2M to 8T in steps of 2M, not 4K"
    );
    let long = DeviceSpec { model: "m".repeat(41), ..good.clone() };
    assert!(long.check().expect_err("too long").to_string().starts_with("`model`: "));
    let crowded = DeviceSpec { namespaces: vec![good.namespaces[0].clone(); 2], ..good };
    assert!(crowded.check().expect_err("too much").to_string().starts_with("`namespaces`: "));
}

const KV: &str = r#"{
  "version": 1,
  "type": "kv",
  "capacity_bytes": 67108864,
  "serial": "S1",
  "keyspace_field": "nsid",
  "namespaces": [
    { "bytes": 33554432, "type": "kv" },
    { "bytes": 33554432, "type": "block" }
  ]
}"#;

#[test]
fn a_description_of_a_key_value_device_parses_and_survives() {
    let spec = parse(KV).expect("parse");
    assert_eq!((spec.device_type, spec.keyspace_field), (DeviceType::Kv, KeyspaceField::Nsid));
    assert_eq!(spec.namespaces[0], NamespaceSpec::key_value(32 << 20));
    assert_eq!(spec.namespaces[0].logical_block(), None);
    assert_eq!(spec.namespaces[1].logical_block(), Some(BlockBytes::B512));
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join("device.json");
    let made = DeviceSpec::kv(Size(64 << 20), "UNVME-1");
    made.check().expect("good");
    made.store(&path).expect("store");
    assert_eq!(DeviceSpec::load(&path).expect("load"), made);
}

#[test]
fn what_a_key_value_device_cannot_be_is_refused() {
    for (from, to, expected) in [
        (
            "33554432, \"type\": \"kv\"",
            "8388608, \"type\": \"kv\"",
            "`namespaces`: namespace 1 of type kv has 8388608 bytes, expected at least 16M in steps of 2M",
        ),
        ("33554432, \"type\": \"kv\"", "33554433, \"type\": \"kv\"", "expected at least 16M in steps of 2M"),
        (
            "\"type\": \"kv\" }",
            "\"type\": \"kv\", \"block_bytes\": 512 }",
            "namespace 1 is of type kv, which has no block_bytes",
        ),
        (
            "\"type\": \"kv\",\n",
            "\"type\": \"block\",\n",
            "a device of type block has no namespace of type kv",
        ),
        (
            "\"serial\"",
            "\"media\": \"null\", \"serial\"",
            "/s/device.json:5:3: `media`: a device that keeps no data cannot hold pairs",
        ),
        ("\"nsid\"", "\"mptr\"", "unknown variant `mptr`, expected `cdw3` or `nsid`"),
    ] {
        let message = refusal(&KV.replacen(from, to, 1));
        assert!(message.contains(expected), "{from} -> {to}: {message}");
    }
}

const FLASH: &str = r#"{
  "version": 1,
  "capacity_bytes": 1073741824,
  "serial": "S1",
  "ftl": {
    "type": "page",
    "overprovisioning": 0.28,
    "unit_bytes": 4194304,
    "groups": 2,
    "handles": 4,
    "policy": "cost-benefit",
    "fdp": 1
  },
  "timing": "tlc",
  "namespaces": [ { "bytes": 1073741824 } ]
}"#;

#[test]
fn a_description_of_a_device_with_flash_parses_and_survives() {
    let spec = parse(FLASH).expect("parse");
    let ftl = spec.ftl.expect("an ftl");
    assert_eq!((ftl.overprovisioning.to_string().as_str(), ftl.unit_bytes), ("28%", 4 << 20));
    assert_eq!((ftl.groups, ftl.handles, ftl.fdp), (2, 4, Some(1)));
    assert_eq!((ftl.policy, &spec.timing), (VictimPolicy::CostBenefit, &preset("tlc")));
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join("device.json");
    spec.store(&path).expect("store");
    assert_eq!(DeviceSpec::load(&path).expect("load"), spec);
    let least = parse(&FLASH.replace(
        "\"overprovisioning\": 0.28,\n    \"unit_bytes\": 4194304,\n    \"groups\": 2,\n    \"handles\": 4,\n    \"policy\": \"cost-benefit\",\n    \"fdp\": 1",
        "\"unit_bytes\": 1048576",
    ));
    assert_eq!(least.expect("parse").ftl, Some(FtlSpec::new(Size(1 << 30))));
}

fn preset(text: &str) -> TimingSpec {
    text.parse().expect(text)
}

#[test]
fn parameters_of_the_timing_are_kept_in_the_description() {
    let changed = parse(&FLASH.replace("\"tlc\"", "\"tlc,dies=16,prog=700us\"")).expect("parse");
    assert_eq!(changed.timing.to_string(), "tlc,prog=700us,dies=16");
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join("device.json");
    changed.store(&path).expect("store");
    assert_eq!(DeviceSpec::load(&path).expect("load"), changed);
    assert!(std::fs::read_to_string(path).expect("read").contains(r#""timing": "tlc,prog=700us,dies=16""#));
}

#[test]
fn what_has_no_flash_says_nothing_of_it() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join("device.json");
    DeviceSpec::block(Size(4 << 20), BlockBytes::B512, "S1").store(&path).expect("store");
    let text = std::fs::read_to_string(path).expect("read");
    assert!(!text.contains("ftl") && !text.contains("timing"), "{text}");
}

#[test]
fn what_flash_cannot_be_is_refused() {
    for (from, to, expected) in [
        ("\"page\"", "\"block\"", "/s/device.json:6:19: `type`: unknown variant `block`, expected `page`"),
        ("0.28", "0", "`overprovisioning`: overprovisioning is 0.1% to 400% (0.001 to 4), not 0"),
        ("0.28", "\"28%\"", "`overprovisioning`: invalid type: string \"28%\", expected f64"),
        ("\"unit_bytes\": 4194304,", "", "missing field `unit_bytes`"),
        (
            "4194304",
            "4194305",
            "/s/device.json:5:3: `ftl`: a reclaim unit (unit_bytes) has 64K to 16G in steps of 4K",
        ),
        ("\"groups\": 2", "\"groups\": 0", "`ftl`: a device has 1 to 64 reclaim groups (groups), not 0"),
        ("\"handles\": 4", "\"handles\": 129", "has 1 to 128 reclaim unit handles (handles), not 129"),
        ("cost-benefit", "lru", "`policy`: expected greedy, cost-benefit, fifo, d-choice or "),
        ("\"fdp\"", "\"pdf\"", "`pdf`: unknown field `pdf`, expected one of "),
        (
            "\"tlc\"",
            "\"mlc\"",
            "/s/device.json:14:17: `timing`: expected none, dram, optane, tlc, qlc, not `mlc`",
        ),
        ("\"tlc\"", "\"tlc,prog=2h\"", "`timing`: prog: expected 0ns to 1s, not `2h`"),
        ("\"tlc\"", "\"tlc,buffer=4K\"", "`timing`: timing.buffer_pages: 1 is not possible"),
        ("\"serial\"", "\"media\": \"null\", \"serial\"", "`media`: a device with an ftl keeps its data"),
    ] {
        let message = refusal(&FLASH.replacen(from, to, 1));
        assert!(message.contains(expected), "{from} -> {to}: {message}");
    }
    let tags = GOOD.replace("\"file\"", "\"tags\"");
    assert!(refusal(&tags).contains("`media`: only a device with an ftl keeps tags of its pages"));
    parse(&FLASH.replace("\"serial\"", "\"media\": \"tags\", \"serial\"")).expect("tags");
}
