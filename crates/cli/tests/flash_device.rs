//! Virtual devices with flash: created, shown, used, refused.

mod home;

use home::{DEVICE, Home, pattern};

#[test]
fn a_device_with_flash_says_what_its_flash_means() {
    let home = Home::new();
    let create = ["device", "create", DEVICE, "--size", "64M", "--block", "4096", "--op", "28%", "--fdp"];
    let text = home.ok(&[&create[..], &["--ru-size", "256K", "--handles", "4", "--timing", "none"]].concat());
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("created 0000:02:00.0: 64M in "), "{text}");
    // 64 MiB are 256 units, 28 % of them 71.68.
    assert_eq!(
        lines[1],
        "flash          : 328 reclaim units of 256K in 1 group: 28.1% beyond the 64M that hosts see; greedy"
    );
    assert_eq!(
        lines[2],
        "reserve        : 7 units in use at any time: 4 open for handles, 1 for what reclaim moves, 2 free"
    );
    // An eighth of the 64 that are not needed.
    assert_eq!(
        lines[3],
        "pool           : 8 units more kept free, so that one sync of the file makes several ready"
    );
    // (328 - 7 - 8) / 256 - 1, and the formula's value there.
    assert_eq!(
        lines[4],
        "reclaim        : 22.3% left to work with; random writes to all of it are written 2.94 times in theory"
    );
    assert_eq!(lines[5], "fdp            : enabled when new, configuration 0");

    let show = home.ok(&["device", "show", DEVICE]);
    assert!(show.ends_with(&text.split_once('\n').expect("lines").1), "{show}");
    let json = home.json(&["device", "show", DEVICE]);
    assert_eq!(json["ftl"]["units"], 328);
    assert_eq!((&json["ftl"]["reserve_units"], &json["ftl"]["pool_units"]), (&7.into(), &8.into()));
    assert_eq!(json["ftl"]["overprovisioning"], 0.28);
    assert_eq!((&json["ftl"]["policy"], &json["ftl"]["fdp_configuration"]), (&"greedy".into(), &0.into()));
    assert_eq!((&json["media"], &json["timing"]), (&"file".into(), &"none".into()));
}

#[test]
fn parameters_of_the_timing_are_kept_with_the_device() {
    let home = Home::new();
    let kept = |timing: &str| {
        let create = ["device", "create", DEVICE, "--size", "16M", "--timing", timing];
        let created = home.json(&create);
        home.ok_with(&["write", DEVICE, "-z", "4096"], &[7; 4096]);
        let shown = home.json(&["device", "show", DEVICE]);
        let listed = home.json(&["device", "list"])["devices"][0]["timing"].clone();
        home.ok(&["device", "remove", DEVICE]);
        assert_eq!((&created["timing"], &listed), (&shown["timing"], &shown["timing"]));
        shown["timing"].as_str().expect("text").to_owned()
    };
    let file = home.path("drive.timing");
    std::fs::write(&file, "preset = tlc\nprog = 700us # slow\ndies = 16\n").expect("write");
    assert_eq!(kept("tlc"), "tlc");
    for timing in ["tlc,dies=16,prog=0.7ms", "tlc:prog=700us:dies=16", &format!("@{}", file.display())] {
        assert_eq!(kept(timing), "tlc,prog=700us,dies=16", "{timing}");
    }
    // A name in memory has colons, as its options have commas.
    home.ok(&["id-ctrl", "mem:block:16M,timing=tlc:prog=700us:dies=16,block=4096"]);
    for (name, part) in [
        ("mem:block:16M,timing=tlc:prog=2h", "timing: prog: expected 0ns to 1s, not `2h`"),
        ("mem:block:16M,timing=tlc,prog=1us", "`prog=1us` is a parameter of the timing: timing=tlc:prog=1us"),
    ] {
        home.run(&["id-ctrl", name]).fails_with(2, &[part]);
    }
}

#[test]
fn data_on_flash_is_there_for_the_next_process() {
    let home = Home::new();
    home.ok(&["device", "create", DEVICE, "--size", "16M", "--ftl", "page"]);
    let data = pattern(7, 1 << 20);
    for start in ["0", "2048", "0"] {
        home.ok_with(&["write", DEVICE, "-s", start], &data);
    }
    assert_eq!(home.run(&["read", DEVICE, "-z", "1M"]).stdout, data);
    assert_eq!(home.run(&["read", DEVICE, "-s", "2048", "-z", "1M"]).stdout, data);
    home.ok(&["dsm", DEVICE, "-d", "-s", "0", "-b", "2048"]);
    assert_eq!(home.run(&["read", DEVICE, "-z", "1M"]).stdout, vec![0; 1 << 20]);
    assert_eq!(home.run(&["read", DEVICE, "-s", "2048", "-z", "1M"]).stdout, data);
}

#[test]
fn options_of_the_flash_that_cannot_be_say_what_can() {
    let home = Home::new();
    for (args, parts) in [
        (
            &["--size", "64M", "--ru-size", "8M", "--fdp"][..],
            &["18% of 64M in reclaim units of 8M is too little", "overprovisioning of at least 137.6%"][..],
        ),
        (&["--size", "64M", "--ru-size", "1000"], &["`ftl`: a reclaim unit (unit_bytes) has 64K to 16G"]),
        (
            &["--size", "64M", "--groups", "0"],
            &["`ftl`: a device has 1 to 64 reclaim groups (groups), not 0"],
        ),
        (&["--size", "64M", "--handles", "129"], &["1 to 128 reclaim unit handles (handles), not 129"]),
        (&["--size", "64M", "--fdp=99"], &["`ftl`: fdp: "]),
        (&["--size", "64M", "--ftl", "none", "--op", "7%"], &["--ftl none: the other options ask for"]),
        (&["--size", "64M", "--media", "tags"], &["`media`: only a device with an ftl keeps tags"]),
        (&["--size", "64M", "--media", "null", "--ftl", "page"], &["`media`: a device with an ftl keeps"]),
        (
            &["--size", "64M", "--type", "kv", "--media", "tags", "--ftl", "page"],
            &["`media`: a device that keeps no data cannot hold pairs"],
        ),
    ] {
        home.run(&[&["device", "create", DEVICE], args].concat()).fails_with(2, parts);
    }
    for (args, part) in [
        (&["--op", "lots"][..], "`lots` is no share, expected one such as 18% or 0.18"),
        (&["--op", "500%"], "overprovisioning is 0.1% to 400%"),
        (&["--policy", "lru"], "expected greedy, cost-benefit, fifo, d-choice"),
        (&["--timing", "mlc"], "expected none, dram, optane, tlc, qlc, not `mlc`"),
        (&["--timing", "tlc,dies=12"], "dies: 12 are not possible; expected a multiple of the 8 channels"),
        (&["--timing", "none,prog=1us"], "`prog=1us`: without a model there are no parameters"),
        (&["--timing", "@missing.timing"], "read missing.timing: No such file"),
        (&["--ftl", "block"], "possible values: none, page"),
        (&["--fdp=256"], "256 is not in 0..=255"),
    ] {
        home.run(&[&["device", "create", DEVICE, "--size", "64M"], args].concat()).fails_with_usage(part);
    }
    assert!(!home.slot().exists(), "nothing of the failures is left");
    home.run(&["id-ctrl", "mem:block:64M,ru=8M,fdp"]).fails_with(2, &["overprovisioning of at least 137.6%"]);
}

#[test]
fn a_device_of_tags_is_larger_than_any_disk() {
    let home = Home::new();
    home.ok(&["device", "create", DEVICE, "--size", "256G", "--media", "tags", "--ftl", "page"]);
    home.ok_with(&["write", DEVICE, "-z", "4K", "-s", "500000000"], &[7; 4096]);
    assert!(!home.slot().join("media.img").exists());
    // The tags are gone with the process; what it has counted is not.
    let smart = |key: &str| home.json(&["smart-log", DEVICE])[key].clone();
    let number = |key: &str| smart(key).as_str().and_then(|text| text.parse::<u64>().ok()).expect("a number");
    assert_eq!((number("host_write_commands"), number("data_units_written")), (1, 1));
    let cycles = number("power_cycles");
    home.ok_with(&["write", DEVICE, "-z", "4K"], &[7; 4096]);
    assert!(number("host_write_commands") == 2 && number("power_cycles") > cycles);
    let list = home.ok(&["device", "list"]);
    assert!(list.contains(" tags "), "{list}");
}

#[test]
fn bytes_that_a_device_of_tags_has_written_are_counted_over_all_its_lives() {
    let home = Home::new();
    let create =
        ["device", "create", DEVICE, "--size", "64M", "--block", "4096", "--media", "tags", "--op", "28%"];
    home.ok(&[&create[..], &["--ru-size", "256K", "--handles", "4", "--fdp"]].concat());
    for count in 1..4_u64 {
        home.ok_with(&["write", DEVICE, "-z", "1M"], &pattern(3, 1 << 20));
        let stats = home.json(&["fdp", "stats", DEVICE, "-e", "1"]);
        for key in ["hbmw", "mbmw"] {
            assert_eq!(stats[key].as_u64(), Some(count << 20), "{stats}");
        }
    }
}

#[test]
fn a_check_of_flash_says_that_all_is_well_and_names_what_is_not() {
    let home = Home::new();
    home.ok(&["device", "create", DEVICE, "--size", "16M", "--block", "4096", "--ftl", "page"]);
    home.ok_with(&["write", DEVICE], &pattern(3, 64 << 10));
    let good = home.json(&["device", "check", DEVICE]);
    assert_eq!(good["lost"], 0, "{good}");
    let text = home.ok(&["device", "check", DEVICE]);
    assert!(text.starts_with("flash: "), "{text}");

    // A bit of a page that holds data flips.
    let path = home.slot().join("media.img");
    let mut media = std::fs::read(&path).expect("media");
    let needle = &pattern(3, 64 << 10)[..64];
    let at = media.windows(needle.len()).position(|bytes| bytes == needle).expect("the data is on the media");
    media[at] ^= 1;
    std::fs::write(&path, media).expect("media");
    let done = home.run(&["device", "check", DEVICE, "--output", "json"]);
    done.fails_with(1, &["1 of what was stored cannot be read"]);
    let json: serde_json::Value = serde_json::from_slice(&done.stdout).expect("JSON");
    assert_eq!(json["lost"], 1, "{json}");
}
