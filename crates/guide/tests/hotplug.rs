//! A slot that is unplugged while a session uses it: every operation ends, and the slot opens again at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use unvme::registry::{DeviceSpec, Plugged};
use unvme::{OpenOptions, PciAddress, Registry, Size};
use unvme_guide::config::{DeviceConfig, SdkConfig, SsdType};
use unvme_guide::session::{Data, Finished, KvKey, Op, OpError, QueueChoice, Session, SessionOptions};

const NAME: &str = "0000:01:00.0";
/// Within this time every process has noticed.
const NOTICE: Duration = Duration::from_secs(60);

/// A session as C programs have it: a synchronous queue, and an asynchronous one with a completion thread.
fn session(registry: &Registry, finished: &Arc<AtomicU64>, failed: &Arc<AtomicU64>) -> Session {
    let device = DeviceConfig {
        core_mask: 3,
        sync_mask: 1,
        cq_thread_mask: 2,
        queue_depth: 32,
        ..DeviceConfig::new(NAME)
    };
    let config = SdkConfig { ssd_type: SsdType::Kv, devices: vec![device], ..SdkConfig::default() };
    let (finished, failed) = (Arc::clone(finished), Arc::clone(failed));
    let handler = move |done: Finished| {
        finished.fetch_add(1, Ordering::Relaxed);
        if !done.outcome.status.is_success() {
            failed.fetch_add(1, Ordering::Relaxed);
        }
    };
    let mut options = SessionOptions::new(Arc::new(handler));
    options.open = OpenOptions { registry: Some(registry.clone()), ..OpenOptions::default() };
    Session::open(config, options).unwrap()
}

#[test]
fn a_session_gets_every_operation_back_closes_and_opens_again_after_the_replug() {
    let folder = tempfile::tempdir().unwrap();
    let registry = Registry::at(folder.path().join("home"));
    let address: PciAddress = NAME.parse().unwrap();
    registry.create(address, &DeviceSpec::kv(Size(64 << 20), "S1")).unwrap();
    for round in 0..3u64 {
        let (finished, failed) = (Arc::default(), Arc::default());
        let session = session(&registry, &finished, &failed);
        let device = &session.members()[0];
        let key = KvKey::new(b"kept through it all");
        if round > 0 {
            let mut value = [0; 8];
            device.call(QueueChoice::Auto, Op::retrieve(key, 8), Data::In(&mut value)).unwrap();
            assert_eq!(value, (round - 1).to_le_bytes());
        }
        device.call(QueueChoice::Auto, Op::store(key, 8), Data::Out(&round.to_le_bytes())).unwrap();
        let submitted = thread::scope(|scope| {
            let storing = scope.spawn(|| {
                let mut token = 0u64;
                loop {
                    let name = (token % 1000).to_be_bytes();
                    let key = KvKey::new(&name);
                    let answer =
                        device.submit(QueueChoice::Auto, Op::store(key, 512), Data::Out(&[1; 512]), token);
                    match answer.map_err(OpError::from) {
                        Ok(()) => token += 1,
                        Err(OpError::Status(_) | OpError::Driver(_)) => return token,
                        Err(e) => panic!("{e}"),
                    }
                }
            });
            thread::sleep(Duration::from_millis(50));
            let started = Instant::now();
            assert_eq!(registry.unplug(address).unwrap(), Plugged::Changed);
            assert!(started.elapsed() < NOTICE, "{:?}", started.elapsed());
            storing.join().unwrap()
        });
        let unplugged = Instant::now();
        let refused = device.call(QueueChoice::Auto, Op::store(key, 8), Data::Out(&[0; 8])).unwrap_err();
        assert!(matches!(refused.error, OpError::Driver(_)), "{refused}");
        while finished.load(Ordering::Relaxed) < submitted {
            assert!(unplugged.elapsed() < NOTICE, "{} of {submitted}", finished.load(Ordering::Relaxed));
            device.process_completions(None);
        }
        session.close().unwrap();
        assert_eq!(finished.load(Ordering::Relaxed), submitted, "each operation ends once");
        assert_eq!(registry.plug(address).unwrap(), Plugged::Changed);
    }
}
