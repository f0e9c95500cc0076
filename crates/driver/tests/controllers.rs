//! Two controllers of one virtual SSD, each driven by a controller of this crate, on threads of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use unvme_bus::{Clock, Function};
use unvme_driver::{
    Completion, Controller, ControllerOptions, EventKind, LogRequest, Namespace, Payload, Queue, QueueOptions,
};
use unvme_spec::feature::{AsyncEventConfiguration, fid};
use unvme_spec::identify::{NamespaceCreate, csi};
use unvme_spec::log_page::lid;
use unvme_spec::nvm::{AccessFlags, BlockRange};
use unvme_spec::{Lba, Nsid, Sqe, Status, admin, fault};
use unvme_ssd::{MemoryStore, NamespaceConfig, Ssd, SsdConfig};

const MEDIA_BYTES: u64 = 32 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

fn device() -> Arc<Ssd> {
    let namespaces = vec![NamespaceConfig { bytes: Some(16 << 20), ..NamespaceConfig::blocks(512) }];
    let config = SsdConfig { namespaces, ..SsdConfig::block(MEDIA_BYTES, 512) };
    Ssd::new(config, Box::new(MemoryStore::new(MEDIA_BYTES).unwrap())).unwrap()
}

fn open(function: Arc<dyn Function>) -> Controller {
    let options = ControllerOptions { clock: Clock::wall(), ..ControllerOptions::default() };
    Controller::open(function, options).expect("open the controller")
}

fn two() -> (Arc<Ssd>, Controller, Controller) {
    let first = device();
    let second = first.add_controller().unwrap();
    (first.clone(), open(first), open(second))
}

fn run(queue: &mut Queue, sqe: Sqe, payload: Option<Payload>) -> Completion {
    queue.submit(sqe, payload, 7).expect("submit");
    assert!(queue.wait(PATIENCE).expect("wait"), "nothing has completed");
    queue.poll(1).next().expect("wait has seen a completion")
}

/// Block 0 to 15 of a stripe, all of them from one write.
struct Stripe<'a> {
    controller: &'a Controller,
    queue: Queue,
    namespace: Namespace,
    range: BlockRange,
}

impl<'a> Stripe<'a> {
    fn new(controller: &'a Controller, number: u64) -> Self {
        let queue = controller.create_queue(&QueueOptions::default()).expect("a queue");
        let namespace = Namespace::open(controller, Nsid(1)).expect("namespace 1");
        Self { controller, queue, namespace, range: BlockRange::new(Lba(number * 16), 16) }
    }

    fn write(&mut self, byte: u8) -> Status {
        let mut buf = self.controller.alloc(8192).unwrap();
        buf.write(0, &[byte; 8192]);
        let write = self.namespace.write(self.range, AccessFlags::default()).unwrap();
        run(&mut self.queue, write, Some(Payload::whole(buf))).status
    }

    fn read(&mut self) -> Result<Vec<u8>, Status> {
        let buf = self.controller.alloc(8192).unwrap();
        let read = self.namespace.read(self.range, AccessFlags::default()).unwrap();
        let completion = run(&mut self.queue, read, Some(Payload::whole(buf)));
        match completion.status.is_success() {
            true => Ok(completion.buf.unwrap().to_vec()),
            false => Err(completion.status),
        }
    }
}

#[test]
fn two_hosts_write_and_verify_while_one_of_them_is_reset_again_and_again() {
    let (_device, first, second) = two();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut ours = Stripe::new(&first, 1);
            let mut rounds = 0u32;
            while !stop.load(Ordering::Relaxed) || rounds < 100 {
                let byte = (rounds % 251) as u8;
                assert_eq!(ours.write(byte), Status::SUCCESS);
                assert_eq!(ours.read(), Ok(vec![byte; 8192]));
                rounds += 1;
            }
        });
        let mut theirs = Stripe::new(&second, 2);
        for round in 0..60u8 {
            if round % 3 == 0 {
                second.reset().expect("a reset");
                // The queue notices, and what is submitted in its middle fails.
                while theirs.write(round) != Status::SUCCESS {}
            }
            assert_eq!(theirs.write(round), Status::SUCCESS);
            assert_eq!(theirs.read(), Ok(vec![round; 8192]));
        }
        stop.store(true, Ordering::Relaxed);
        load.join().expect("the load");
    });
    // Each sees what the other one has written last.
    assert_eq!(Stripe::new(&first, 2).read(), Ok(vec![59; 8192]));
}

#[test]
fn a_host_hears_of_a_namespace_that_another_one_attaches_and_deletes() {
    let (_device, first, second) = two();
    let wanted = AsyncEventConfiguration::new().with_namespace_attributes(true).into_bits();
    let set = admin::SetFeatures { fid: fid::ASYNC_EVENT_CONFIGURATION, cdw11: wanted, ..Default::default() };
    second.set_feature(set, &[]).unwrap();
    second.poll_events().unwrap();
    let hear = |nsid: u32| {
        let event = (0..2000).find_map(|_| second.poll_events().unwrap().first().copied());
        let event = event.expect("an event");
        assert_eq!((event.kind, event.log_page), (EventKind::Notice, lid::CHANGED_NAMESPACES));
        let changed = LogRequest { lid: lid::CHANGED_NAMESPACES, bytes: 4096, ..Default::default() };
        assert_eq!(second.get_log(&changed).unwrap()[..8], [nsid as u8, 0, 0, 0, 0, 0, 0, 0]);
    };
    let mut request = NamespaceCreate::default();
    (request.nsze, request.ncap, request.nmic) = (4096, 4096, 1);
    let nsid = first.create_namespace(&request, csi::NVM).unwrap();
    let all = first.controllers(None).unwrap();
    assert_eq!((nsid, &all[..]), (Nsid(2), &[0, 1][..]));
    first.attach_namespace(nsid, &all).unwrap();
    hear(2);
    assert_eq!(second.active_namespaces().unwrap(), [Nsid(1), Nsid(2)]);
    assert_eq!(second.controllers(Some(nsid)).unwrap(), [0, 1]);
    first.delete_namespace(nsid).unwrap();
    hear(2);
    assert_eq!(second.active_namespaces().unwrap(), [Nsid(1)]);
}

#[test]
fn a_device_that_one_host_unplugs_is_gone_for_the_other_one_at_once() {
    let (device, first, second) = two();
    let mut theirs = Stripe::new(&second, 0);
    assert_eq!(theirs.write(1), Status::SUCCESS);
    // Whether the answer arrives before the device has gone or not: it has gone.
    let _ = first.admin(fault::FaultSend::Unplug.encode(), None);
    assert!(device.is_gone());
    let buf = second.alloc(8192).unwrap();
    let write = theirs.namespace.write(theirs.range, AccessFlags::default()).unwrap();
    let began = std::time::Instant::now();
    let gone = theirs.queue.submit(write, Some(Payload::whole(buf)), 7).is_err()
        || theirs.queue.wait(PATIENCE).is_err()
        || theirs.queue.poll(1).all(|completion| !completion.status.is_success());
    assert!(gone && began.elapsed() < PATIENCE);
}
