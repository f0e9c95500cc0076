//! A process that may run on a single CPU. Alone in its process: the first look at the CPUs is remembered.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use unvme_guide::config::{DeviceConfig, SdkConfig, SsdType};
use unvme_guide::session::{Data, Op, QueueChoice, QueueKind, Session, SessionOptions};

#[test]
fn one_cpu_has_queues_of_both_kinds_and_completes() {
    let cpu = rustix::thread::sched_getcpu();
    let mut one = rustix::thread::CpuSet::new();
    one.set(cpu);
    rustix::thread::sched_setaffinity(None, &one).unwrap();

    let ended = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&ended);
    let options = SessionOptions::new(Arc::new(move |finished| {
        assert!(finished.outcome.status.is_success());
        count.fetch_add(1, Ordering::Relaxed);
    }));
    let devices = vec![DeviceConfig::new("mem:block:64M")];
    let config = SdkConfig { ssd_type: SsdType::Lba, devices, ..SdkConfig::default() };
    let session = Session::open(config, options).unwrap();
    let device = &session.members()[0];
    let cpu = cpu as u32;
    assert_eq!(device.cpus(), [cpu]);
    assert!(device.has_queue(cpu, QueueKind::Sync) && device.has_queue(cpu, QueueKind::Async));
    assert_eq!(device.queue_kind(cpu), Some(QueueKind::Sync));

    std::thread::scope(|scope| {
        for thread in 0..32u64 {
            scope.spawn(move || {
                for lba in thread * 100..(thread + 1) * 100 {
                    let queue = if lba.is_multiple_of(2) { QueueChoice::Auto } else { QueueChoice::Cpu(cpu) };
                    if thread.is_multiple_of(2) {
                        device
                            .submit(queue, Op::write(lba, 1), Data::Out(&[thread as u8; 512]), lba)
                            .unwrap();
                    } else {
                        device.call(queue, Op::write(lba, 1), Data::Out(&[thread as u8; 512])).unwrap();
                    }
                }
            });
        }
    });
    session.close().unwrap();
    assert_eq!(ended.load(Ordering::Relaxed), 1600);
}
