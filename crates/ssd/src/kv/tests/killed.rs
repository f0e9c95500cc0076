//! A process that is killed, for real.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::*;

const FOLDER: &str = "UNVME_TEST_KILL_FOLDER";
const SEED: &str = "UNVME_TEST_KILL_SEED";
const BYTES: u64 = 32 << 20;
const CHILD: &str = "kv::tests::killed::child_that_stores_until_it_is_killed";

/// Where the child counts the commands that are done.
fn counter(folder: &Path) -> Region {
    let path = folder.join("done");
    let file: File =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap();
    file.set_len(4096).unwrap();
    Region::file(&file, 4096).unwrap()
}

/// The commands of a run: key and value, `None` to delete.
fn commands(seed: u64) -> impl Iterator<Item = (Vec<u8>, Option<Vec<u8>>)> {
    let mut random = Random(seed);
    std::iter::repeat_with(move || {
        let key = format!("key {}", random.below(150)).into_bytes();
        let bytes = match random.below(200) {
            0 => 2_500_000,
            // Cut, whether it is compressed or not.
            1 => 1_200_000,
            2..10 => random.below(100_000),
            _ => random.below(6000),
        };
        let is_packed = random.below(2) == 0;
        let value =
            (random.below(5) > 0).then(|| if is_packed { random.half(bytes) } else { random.bytes(bytes) });
        (key, value)
    })
}

fn apply(pairs: &mut Pairs, key: &[u8], value: &Option<Vec<u8>>) {
    match value {
        // What does not compress is stored as it is.
        Some(value) => pairs.put_packed(key, value).unwrap(),
        None => drop(pairs.delete(key).unwrap()),
    }
}

/// Does nothing by itself; the test below starts it as a process of its own.
#[test]
fn child_that_stores_until_it_is_killed() {
    let Ok(path) = std::env::var(FOLDER) else { return };
    let seed: u64 = std::env::var(SEED).unwrap().parse().unwrap();
    let path = Path::new(&path);
    let done = counter(path);
    let mut pairs = Pairs::new(open(folder(path, BYTES)), 0);
    for (number, (key, value)) in commands(seed).enumerate() {
        apply(&mut pairs, &key, &value);
        done.store_u64(0, number as u64 + 1, Ordering::Release);
        if number % 7 == 0 {
            pairs.store.maintain(50_000);
        }
    }
}

#[test]
fn every_command_that_was_done_before_a_kill_has_been_done() {
    let seed = seed("killed");
    let mut random = Random(seed.value);
    let path = tempfile::tempdir().unwrap();
    drop(create(folder(path.path(), BYTES)));
    let mut model: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
    let mut total = 0;
    for _ in 0..8 {
        let done = counter(path.path());
        done.store_u64(0, 0, Ordering::Relaxed);
        let commands_seed = random.next();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", CHILD, "--nocapture"])
            .env(FOLDER, path.path())
            .env(SEED, commands_seed.to_string())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(100 + random.below(400) as u64));
        child.kill().unwrap();
        child.wait().unwrap();
        let count = done.load_u64(0, Ordering::Acquire) as usize;
        total += count;
        let mut all = commands(commands_seed);
        for (key, value) in all.by_ref().take(count) {
            model.insert(key, value);
        }
        let (last_key, last_value) = all.next().unwrap();
        let mut pairs = Pairs::new(open(folder(path.path(), BYTES)), 0);
        // The command that was under way has been done or has not.
        let found = pairs.get(&last_key).ok();
        if found == last_value {
            model.insert(last_key, last_value);
        }
        for (key, value) in &model {
            let found = pairs.get(key);
            assert!(found.as_ref().ok() == value.as_ref(), "{}", String::from_utf8_lossy(key));
        }
        let live = model.values().flatten().count();
        assert_eq!(pairs.store.stats().pairs, live as u64);
    }
    assert!(total > 100, "{total} commands in all: the machine is too slow for this test to say anything");
}
