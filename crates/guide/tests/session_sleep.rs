//! Completion threads sleep when nothing is to do. In a process of its own: the processor time is the
//! process's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use unvme_guide::config::{DeviceConfig, SdkConfig, SsdType};
use unvme_guide::session::{Data, Op, QueueChoice, Session, SessionOptions};

/// Processor time of this process.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn an_idle_session_takes_no_processor_time_and_wakes_for_each_operation() {
    let ended = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&ended);
    let options = SessionOptions::new(Arc::new(move |_| {
        count.fetch_add(1, Ordering::Release);
    }));
    let device = DeviceConfig { core_mask: 1, cq_thread_mask: 3, ..DeviceConfig::new("mem:block:64M") };
    let config = SdkConfig { ssd_type: SsdType::Lba, devices: vec![device], ..SdkConfig::default() };
    let session = Session::open(config, options).unwrap();
    let device = &session.members()[0];
    for round in 1..=50 {
        let started = Instant::now();
        device.submit(QueueChoice::Auto, Op::write(0, 1), Data::Out(&[1; 512]), round).unwrap();
        while ended.load(Ordering::Acquire) < round {
            assert!(started.elapsed() < Duration::from_secs(60), "the thread did not wake up");
            std::thread::yield_now();
        }
        // Longer than the thread looks for more.
        std::thread::sleep(Duration::from_millis(1));
    }
    let before = processor_time();
    std::thread::sleep(Duration::from_millis(300));
    let used = processor_time() - before;
    assert!(used < Duration::from_millis(10), "{used:?} in 300 ms of nothing");
    session.close().unwrap();
    assert_eq!(ended.load(Ordering::Acquire), 50);
}
