//! What several controllers of a device share: pairs, time, placement, faults, the end of the device; and
//! what one does while others are at work.

mod host;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use host::blocks::{COMPARE, READ, SOURCE, WRITE, transfer};
use host::pairs::{keys_of, kv_config};
use host::placement::{event_types, fdp_config, set_all_events, update, write_with};
use host::{DATA, Host, config, device, device_on, outcome, sqe};
use unvme_bus::{Clock, Function, Region};
use unvme_flash::timing::TimingConfig;
use unvme_spec::{Sqe, Status};
use unvme_ssd::{FileStore, MemoryStore, NamespaceConfig, Ssd, SsdConfig, SsdError, Store, parse_faults};

/// Enabled, with I/O queue pair 1.
fn host_at(ssd: Arc<Ssd>) -> Host {
    let mut host = Host::attach(ssd);
    host.enable();
    host.create_queue_pair(1, 64);
    host
}

/// Two controllers of a device.
fn two(config: SsdConfig) -> (Host, Host) {
    let first = host::placement::device(config);
    let second = first.add_controller().expect("a controller");
    (host_at(first), host_at(second))
}

fn two_with_pairs() -> (Host, Host) {
    let first = device(kv_config());
    let second = first.add_controller().expect("a controller");
    let start = |ssd| {
        let mut host = Host::attach(ssd);
        host.enable_all();
        host.create_queue_pair(1, 64);
        host
    };
    (start(first), start(second))
}

#[test]
fn pairs_are_everybodys_and_iterators_are_a_controllers_own() {
    let (mut a, mut b) = two_with_pairs();
    assert_eq!(a.store(b"k1", b"one"), Ok(0));
    assert_eq!(b.store(b"k2", b"two"), Ok(0));
    assert_eq!((a.value(b"k2"), b.value(b"k1")), (Ok(b"two".to_vec()), Ok(b"one".to_vec())));
    // Iterators over the same keys: the first of each controller.
    let all = |host: &mut Host| host.iterate_open(0, *b"k\0\0\0", 0xff00_0000, 4);
    let (ours, theirs) = (all(&mut a), all(&mut b));
    assert_eq!((ours, theirs), (Ok(1), Ok(1)));
    assert!(all(&mut a).is_err(), "the same once more");
    assert_eq!(keys_of(&a.iterate_read(1).1), [b"k1".to_vec(), b"k2".to_vec()]);
    // A reset closes those of its controller.
    a.disable();
    a.enable_all();
    a.create_queue_pair(1, 64);
    assert!(a.iterate_close(1).is_err());
    assert_eq!(keys_of(&b.iterate_read(1).1), [b"k1".to_vec(), b"k2".to_vec()]);
    // Log page D0h: of whoever asks.
    let open = |host: &mut Host| host.admin_in(Sqe { cdw10: 0x03ff_00d0, ..sqe(0x02, 1) }, 4096).unwrap()[1];
    assert_eq!((open(&mut a), open(&mut b)), (0, 1));
    // One that deletes goes on while its controller is at work on something else, or another one is.
    (0..500u32).for_each(|n| assert_eq!(a.store(&n.to_be_bytes(), b"x"), Ok(0)));
    assert_eq!(a.iterate_open(0, [0; 4], 0xff00_0000, 0x10), Ok(1));
    let deadline = Instant::now() + Duration::from_secs(20);
    while a.ssd.kv_stats(unvme_spec::Nsid(1)).unwrap().pairs > 2 {
        assert!(Instant::now() < deadline, "nothing is deleted");
        b.advance();
    }
}

/// Both write more than the namespace holds, so that reclaim is at work for each of them in the turns of the
/// other, and to one key that they share.
#[test]
fn two_hosts_store_and_retrieve_pairs_at_once() {
    const ROUNDS: u32 = 4000;
    const KEYS: u32 = 64;
    let (a, b) = two_with_pairs();
    let ssd = a.ssd.clone();
    std::thread::scope(|scope| {
        for (name, mut host) in [(b'a', a), (b'b', b)] {
            scope.spawn(move || {
                let key = |number: u32| [&[name][..], &(number % KEYS).to_be_bytes()].concat();
                let value = |number: u32| [name ^ number as u8; 16 << 10];
                for number in 0..ROUNDS {
                    assert_eq!(host.store(&key(number), &value(number)), Ok(0));
                    assert_eq!(host.store(b"both", &[name; 700]), Ok(0));
                    let shared = host.value(b"both").expect("it is there");
                    assert!(shared == [b'a'; 700] || shared == [b'b'; 700], "half of each");
                    let older = number - number.min(KEYS / 2);
                    assert_eq!(host.value(&key(older)), Ok(value(older).to_vec()), "round {number}");
                }
            });
        }
    });
    let stats = ssd.kv_stats(unvme_spec::Nsid(1)).unwrap();
    assert_eq!(stats.pairs, u64::from(2 * KEYS + 1));
    assert!(stats.reclaimed_bytes > 0 || stats.host_bytes_written > host::MEDIA_BYTES, "{stats:?}");
    assert_eq!(ssd.check().iter().map(|checked| checked.lost.len()).sum::<usize>(), 0);
}

#[test]
fn command_sets_are_selected_by_each_controller() {
    let first = device(kv_config());
    let mut plain = host_at(first.add_controller().unwrap());
    let mut all = Host::attach(first);
    all.enable_all();
    all.create_queue_pair(1, 64);
    assert_eq!(all.store(b"key", b"value"), Ok(0));
    assert_eq!(plain.store(b"key", b"value"), Err(Status::INVALID_FIELD));
}

#[test]
fn flash_is_modelled_once_and_each_controller_holds_its_own_completions() {
    let timing = TimingConfig::preset("tlc").unwrap();
    let (mut a, mut b) = two(SsdConfig { timing, ..config(4096) });
    // A read of an idle device takes 80,446 ns; two of one page have its die one after the other.
    b.clock = a.clock.clone();
    for host in [&mut a, &mut b] {
        host.push(1, transfer(host, READ, 0, 1, DATA, 4096));
        host.ring(1);
        host.advance();
    }
    assert_eq!((a.ssd.next_event(), b.ssd.next_event()), (Some(80_446), Some(80_446)));
    a.clock.advance(Duration::from_nanos(80_446));
    assert_eq!((b.advance(), b.poll(1).is_none()), (0, true));
    assert_eq!((a.advance(), a.poll(1).is_some()), (1, true));
    let next = a.ssd.next_event().expect("the other one's");
    assert!(next > 80_446 + 40_000, "{next}: it had to wait for the die");
    a.clock.advance(Duration::from_nanos(next - 80_446));
    assert_eq!((b.advance(), b.poll(1).is_some(), a.ssd.next_event()), (1, true, None));
    // Enabling one does not put the time back for the other.
    b.push(1, transfer(&b, READ, 0, 1, DATA, 4096));
    b.ring(1);
    b.advance();
    a.disable();
    a.enable();
    assert_eq!(b.ssd.next_event(), Some(next + 80_446));
}

#[test]
fn placement_is_everybodys_and_its_events_come_whoever_is_at_work() {
    let (mut a, mut b) = two(fdp_config(0));
    set_all_events(&mut a, 1, 2);
    // Placement handle 2, written by one and closed by the other.
    assert_eq!(write_with(&mut b, 1, 0, 1, 2, 2), Ok(0));
    assert_eq!(update(&mut a, 1, &[2]), Ok(0));
    assert_eq!((event_types(&mut a, true), event_types(&mut b, true)), (vec![0], vec![0]));
    a.disable();
    a.enable();
    a.create_queue_pair(1, 64);
    assert_eq!((write_with(&mut b, 1, 0, 1, 2, 2), update(&mut b, 1, &[2])), (Ok(0), Ok(0)));
    assert_eq!(event_types(&mut a, true), [0, 0], "its reset has not made the other one's handles silent");
}

/// Serves a host's device until told to stop.
fn serve(ssd: &Ssd, stop: &AtomicBool) {
    let clock = Clock::wall();
    while !stop.load(Ordering::Relaxed) {
        if ssd.advance(None, &clock) == 0 {
            std::thread::yield_now();
        }
    }
}

struct StopsAtEnd<'a>(&'a AtomicBool);

impl Drop for StopsAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Executes a command that other threads serve as well.
fn await_answer(host: &mut Host, qid: u16, sqe: Sqe) -> Result<u64, Status> {
    let cid = host.push(qid, sqe);
    host.ring(qid);
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(cqe) = host.poll(qid) {
            assert_eq!(cqe.cid, cid);
            return outcome(cqe);
        }
        assert!(Instant::now() < deadline, "no completion");
        // Others may have stopped to.
        host.ssd.advance(Some(qid), &host.clock);
        std::thread::yield_now();
    }
}

/// 16 blocks of 512 bytes that say from which write they are, at block `lba`.
fn await_write(host: &mut Host, lba: u64, version: u8) -> Result<u64, Status> {
    host.memory.fill(SOURCE, 8192, version);
    let write = transfer(host, WRITE, lba, 16, SOURCE, 8192);
    await_answer(host, 1, write)
}

fn await_read(host: &mut Host, lba: u64) -> Result<Vec<u8>, Status> {
    let read = transfer(host, READ, lba, 16, DATA, 8192);
    await_answer(host, 1, read)?;
    Ok(host.bytes(DATA, 8192))
}

/// What one host does to the namespaces is refused to others for a moment, and never seen half done.
#[test]
fn formats_and_deletions_wait_for_the_commands_of_all_controllers() {
    let namespaces = vec![NamespaceConfig { bytes: Some(4 << 20), ..NamespaceConfig::blocks(512) }];
    let first = device(SsdConfig { namespaces, ..config(512) });
    let others = [first.add_controller().unwrap(), first.add_controller().unwrap()];
    let mut admin = host_at(first);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stops = StopsAtEnd(&stop);
        for ssd in others {
            let mut host = host_at(ssd.clone());
            let stop = &stop;
            scope.spawn(move || serve(&ssd, stop));
            scope.spawn(move || {
                let (mut done, mut refused) = (0, 0);
                while !stop.load(Ordering::Relaxed) {
                    match await_write(&mut host, 64, 0xab) {
                        Ok(_) => done += 1,
                        Err(Status::FORMAT_IN_PROGRESS | Status::INVALID_FIELD) => refused += 1,
                        Err(other) => panic!("{other}"),
                    }
                    // 0 is a namespace that has been erased; there is nothing else. Each block is whole.
                    if let Ok(data) = await_read(&mut host, 64) {
                        assert!(data.chunks(512).all(|block| block == [0; 512] || block == [0xab; 512]));
                    }
                }
                assert!(done > 0, "{refused} were refused and nothing was done");
            });
        }
        for round in 0..30 {
            // LBA format 0, the same again.
            assert_eq!(admin.admin(sqe(0x80, 1)), Ok(0));
            std::thread::sleep(Duration::from_millis(2));
            if round % 10 == 9 {
                assert_eq!(admin.admin(Sqe { cdw10: 1, ..sqe(0x0d, 1) }), Ok(0));
                let mut data = [0; 31];
                (data[1], data[9], data[30]) = (0x20, 0x20, 1);
                admin.memory.fill(DATA, 4096, 0);
                admin.memory.write(DATA, &data);
                let mut create = sqe(0x0d, 0);
                admin.set_prps(&mut create, DATA, 4096);
                assert_eq!(admin.admin(create), Ok(1));
                admin.memory.fill(DATA, 4096, 0);
                admin.memory.write(DATA, &[3, 0, 0, 0, 1, 0, 2, 0]);
                let mut attach = sqe(0x15, 1);
                admin.set_prps(&mut attach, DATA, 4096);
                assert_eq!(admin.admin(attach), Ok(0));
            }
        }
    });
    // Nothing that was written before a format comes after it.
    assert_eq!(admin.admin(sqe(0x80, 1)), Ok(0));
    assert_eq!(host::blocks::read(&mut admin, 64, 8192, 512), [0; 8192]);
}

#[test]
fn compare_and_write_is_one_step_for_all_controllers() {
    const ROUNDS: u64 = 400;
    let first = device(config(512));
    let stop = AtomicBool::new(false);
    let controllers = [first.clone(), first.add_controller().unwrap(), first.add_controller().unwrap()];
    std::thread::scope(|scope| {
        let _stops = StopsAtEnd(&stop);
        let workers: Vec<_> = controllers
            .into_iter()
            .map(|ssd| {
                let mut host = host_at(ssd.clone());
                let stop = &stop;
                scope.spawn(move || serve(&ssd, stop));
                scope.spawn(move || {
                    let mut counted = 0;
                    while counted < ROUNDS {
                        let read = transfer(&host, READ, 0, 1, DATA, 512);
                        await_answer(&mut host, 1, read).unwrap();
                        let old = u64::from_le_bytes(host.bytes(DATA, 8).try_into().unwrap());
                        host.memory.write(SOURCE, &host.bytes(DATA, 512));
                        host.memory.write(SOURCE + 512, &host.bytes(DATA, 512));
                        host.memory.write(SOURCE + 512, &(old + 1).to_le_bytes());
                        let compare = Sqe { flags: 1, ..transfer(&host, COMPARE, 0, 1, SOURCE, 512) };
                        let write = Sqe { flags: 2, ..transfer(&host, WRITE, 0, 1, SOURCE + 512, 512) };
                        host.push(1, compare);
                        counted += u64::from(await_second(&mut host, write).is_ok());
                    }
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
    let data = host::blocks::read(&mut host_at(first.add_controller().unwrap()), 0, 512, 512);
    assert_eq!(data[..8], (3 * ROUNDS).to_le_bytes());
}

/// The answer to the second command of a fused pair, whose first is in the queue.
fn await_second(host: &mut Host, second: Sqe) -> Result<u64, Status> {
    host.push(1, second);
    host.ring(1);
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut next = || loop {
        if let Some(cqe) = host.poll(1) {
            return outcome(cqe);
        }
        assert!(Instant::now() < deadline, "no completion");
        std::thread::yield_now();
    };
    let _comparison = next();
    next()
}

#[test]
fn resets_and_departures_of_one_do_not_disturb_the_load_of_another() {
    let first = device(config(512));
    let stop = AtomicBool::new(false);
    let written = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let _stops = StopsAtEnd(&stop);
        let mut host = host_at(first.clone());
        let (loaded, stop, written) = (first.clone(), &stop, &written);
        scope.spawn(move || serve(&loaded, stop));
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let version = (written.load(Ordering::Relaxed) % 250) as u8;
                await_write(&mut host, 0, version).unwrap();
                assert_eq!(await_read(&mut host, 0).unwrap(), [version; 8192]);
                written.fetch_add(1, Ordering::Relaxed);
            }
        });
        let began = Instant::now();
        // The threads share two cores or fewer: rounds go on until the load had its turn among them.
        for round in 0.. {
            if round >= 100 && written.load(Ordering::Relaxed) > 10 {
                break;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "the load has stood still");
            let other = first.add_controller().unwrap();
            let mut host = host_at(other.clone());
            for command in 0..8 {
                host.push(1, transfer(&host, WRITE, 1024 + command * 16, 16, SOURCE, 8192));
            }
            host.ring(1);
            let serving = scope.spawn({
                let other = other.clone();
                move || (0..50).for_each(|_| _ = other.advance(None, &Clock::wall()))
            });
            match round % 3 {
                0 => host.disable(),
                1 => other.reset().unwrap(),
                _ => {}
            }
            drop((host, other));
            serving.join().unwrap();
        }
    });
}

/// A store in memory that says when it is closed, and whether anything is written after that.
struct Lent {
    store: MemoryStore,
    log: Arc<Mutex<Vec<&'static str>>>,
}

impl Store for Lent {
    fn bytes(&self) -> u64 {
        self.store.bytes()
    }
    fn memory(&self) -> Option<&Region> {
        self.store.memory()
    }
    fn holds_data(&self, _chunk: u64) -> bool {
        false
    }
    fn reserve(&self, chunk: u64) -> Result<(), SsdError> {
        self.store.reserve(chunk)
    }
    fn release(&self, chunk: u64) -> Result<(), SsdError> {
        self.store.release(chunk)
    }
    fn sync(&self) -> Result<(), SsdError> {
        self.log.lock().unwrap().push("sync");
        Ok(())
    }
    fn load_state(&self) -> Result<Option<Vec<u8>>, SsdError> {
        Ok(None)
    }
    fn save_state(&self, state: &[u8]) -> Result<(), SsdError> {
        let is_clean = String::from_utf8_lossy(state).contains("\"shut_down\": true");
        self.log.lock().unwrap().push(if is_clean { "save clean" } else { "save" });
        Ok(())
    }
    fn close(&self) {
        self.log.lock().unwrap().push("close");
    }
}

type Log = Arc<Mutex<Vec<&'static str>>>;

/// Two controllers of a device with both kinds of namespaces, on a store that tells what is done with it.
fn lent(configuration: SsdConfig) -> (Host, Host, Log) {
    let log = Log::default();
    let bytes = configuration.store_bytes().unwrap();
    let store = Lent { store: MemoryStore::new(bytes).unwrap(), log: Arc::clone(&log) };
    let first = device_on(configuration, Box::new(store));
    let second = first.add_controller().unwrap();
    let [a, b] = [first, second].map(|ssd| {
        let mut host = Host::attach(ssd);
        host.enable_all();
        host.create_queue_pair(1, 64);
        host
    });
    (a, b, log)
}

fn with_pairs_on_flash() -> SsdConfig {
    let namespaces = vec![
        NamespaceConfig { bytes: Some(20 << 20), ..NamespaceConfig::key_value() },
        NamespaceConfig { bytes: Some(8 << 20), ..NamespaceConfig::blocks(4096) },
    ];
    SsdConfig { namespaces, ..fdp_config(0) }
}

fn expect_gone(host: &mut Host) {
    assert!(host.ssd.is_gone());
    assert_eq!(host.read32(0x1c), 0xffff_ffff);
    host.push(1, sqe(READ, 2));
    host.ring(1);
    assert_eq!((host.advance(), host.poll(1).is_none()), (0, true));
    host.write32(0x14, 0x0046_0000);
    host.write32(0x14, 0x0046_0001);
    assert_eq!((host.read32(0x1c), host.ssd.reset().is_ok()), (0xffff_ffff, true));
}

/// Nothing is written once the store is closed, whatever is done with handles that are left.
fn expect_closed(mut a: Host, mut b: Host, log: &Log, last: &[&str]) {
    expect_gone(&mut a);
    expect_gone(&mut b);
    assert!(log.lock().unwrap().ends_with(last), "{log:?}");
    let (count, image) = (log.lock().unwrap().len(), a.ssd.kv_stats(unvme_spec::Nsid(1)).is_some());
    assert!(image, "what was there can be asked for");
    a.ssd.clear_faults(None);
    let refused = b.ssd.add_controller().err().unwrap().to_string();
    assert!(refused.contains("gone"), "{refused}");
    a.ssd.unplug();
    drop((a, b));
    assert_eq!(log.lock().unwrap().len(), count, "{log:?}");
}

#[test]
fn an_unplugged_device_is_gone_for_everybody_and_gives_its_store_back_at_once() {
    let (mut a, mut b, log) = lent(with_pairs_on_flash());
    assert_eq!((a.store(b"key", b"value"), b.store(b"other", b"value")), (Ok(0), Ok(0)));
    b.push(1, sqe(READ, 2));
    b.ring(1);
    a.ssd.unplug();
    expect_closed(a, b, &log, &["sync", "save clean", "close"]);
}

#[test]
fn a_host_unplugs_the_device_by_a_command_that_is_answered() {
    let (mut a, b, log) = lent(with_pairs_on_flash());
    // Fault Send with operation 4.
    assert_eq!(a.admin(Sqe { cdw11: 4, ..sqe(0xc1, 0) }), Ok(0));
    expect_closed(a, b, &log, &["save clean", "close"]);
}

#[test]
fn a_rule_that_unplugs_or_cuts_the_power_does_so_for_all_controllers() {
    for (act, last) in [("unplug", &["save clean", "close"][..]), ("power_cut", &["close"])] {
        let (a, mut b, log) = lent(with_pairs_on_flash());
        let rule = format!(r#"{{ "match": {{ "opcode": "flush" }}, "act": {{ "{act}": true }} }}"#);
        a.ssd.add_passing_faults(parse_faults(&rule).unwrap()).unwrap();
        b.push(1, sqe(0x00, 2));
        b.ring(1);
        b.advance();
        assert!(b.poll(1).is_none());
        let clean = log.lock().unwrap().contains(&"save clean");
        assert_eq!(clean, act == "unplug", "{act}: {log:?}");
        expect_closed(a, b, &log, last);
    }
}

#[test]
fn another_device_on_the_same_folder_finds_everything_while_handles_of_the_old_one_are_left() {
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let store = FileStore::open(folder.path(), config(512).bytes).unwrap();
        device_on(config(512), Box::new(store))
    };
    let first = open();
    let (mut a, mut b) = (host_at(first.clone()), host_at(first.add_controller().unwrap()));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stops = StopsAtEnd(&stop);
        let (ssd, stop) = (b.ssd.clone(), &stop);
        scope.spawn(move || serve(&ssd, stop));
        let load = scope.spawn(move || {
            let mut acknowledged = 0u8;
            while acknowledged < 255 {
                b.memory.fill(SOURCE, 8192, acknowledged + 1);
                b.push(1, transfer(&b, WRITE, 0, 16, SOURCE, 8192));
                b.ring(1);
                while b.poll(1).is_none() {
                    if b.ssd.is_gone() {
                        return acknowledged;
                    }
                    std::thread::yield_now();
                }
                acknowledged += 1;
            }
            acknowledged
        });
        host::blocks::write(&mut a, 100, &[7; 512], 512);
        std::thread::sleep(Duration::from_millis(1));
        a.ssd.unplug();
        let acknowledged = load.join().unwrap();
        let mut again = host_at(open());
        assert_eq!(host::blocks::read(&mut again, 100, 512, 512), [7; 512]);
        let found = host::blocks::read(&mut again, 0, 8192, 512);
        // The command after the last one that was answered may have been executed.
        assert!(
            found[0] == acknowledged || found[0] == acknowledged.wrapping_add(1),
            "{acknowledged}: {}",
            found[0]
        );
        assert!(found.iter().all(|&byte| byte == found[0]));
    });
}
