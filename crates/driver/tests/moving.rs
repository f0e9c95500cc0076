//! A device that moves to another process while commands are under way: what becomes of each of them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use unvme_bus::{
    BarLayout, BusError, Clock, Dma, DmaAccess, EventFd, Function, Region, function::DmaAddressing, lock,
};
use unvme_driver::{
    Completion, Controller, ControllerOptions, Error, KvKey, KvNamespace, Namespace, Payload, Queue,
    QueueOptions, StoreCondition, StoreOptions,
};
use unvme_spec::identify::csi;
use unvme_spec::nvm::{AccessFlags, BlockRange};
use unvme_spec::{Lba, Nsid, Status};
use unvme_ssd::{MemoryStore, Ssd, SsdConfig};

const MEDIA_BYTES: u64 = 32 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

/// One controller of a device after another, as those of different processes are.
struct Moving {
    ssd: Arc<Ssd>,
    inner: Mutex<Arc<dyn Function>>,
    mapped: Mutex<Vec<(u64, Region, DmaAccess)>>,
    /// The process does not come to work on what it is sent.
    is_stopped: AtomicBool,
    is_gone: AtomicBool,
    /// Nobody has the device any more.
    is_lost: AtomicBool,
}

impl Moving {
    fn new(config: SsdConfig) -> Arc<Self> {
        let store = MemoryStore::new(config.store_bytes().expect("a geometry")).expect("memory");
        let ssd = Ssd::new(config, Box::new(store)).expect("device");
        Arc::new(Self {
            inner: Mutex::new(ssd.add_controller().expect("a controller")),
            ssd,
            mapped: Mutex::default(),
            is_stopped: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            is_lost: AtomicBool::new(false),
        })
    }

    fn inner(&self) -> Arc<dyn Function> {
        Arc::clone(&lock(&self.inner))
    }

    fn stop(&self) {
        self.is_stopped.store(true, Ordering::SeqCst);
    }

    fn end(&self) {
        self.stop();
        self.is_gone.store(true, Ordering::SeqCst);
    }

    fn check(&self) -> Result<Arc<dyn Function>, BusError> {
        match self.is_gone.load(Ordering::SeqCst) {
            false => Ok(self.inner()),
            true => Err(BusError::Gone("its process".to_owned())),
        }
    }
}

impl Dma for Moving {
    fn dma_map(&self, iova: u64, region: &Region, access: DmaAccess) -> Result<(), BusError> {
        lock(&self.mapped).push((iova, region.clone(), access));
        self.inner().dma_map(iova, region, access)
    }

    fn dma_unmap(&self, iova: u64, length: u64) -> Result<(), BusError> {
        self.inner().dma_unmap(iova, length)
    }

    fn dma_addressing(&self) -> DmaAddressing {
        self.inner().dma_addressing()
    }
}

impl Function for Moving {
    fn config_read(&self, offset: usize, out: &mut [u8]) -> Result<(), BusError> {
        self.check()?.config_read(offset, out)
    }

    fn config_write(&self, offset: usize, data: &[u8]) -> Result<(), BusError> {
        self.check()?.config_write(offset, data)
    }

    fn bar(&self, index: usize) -> Result<Option<BarLayout>, BusError> {
        self.inner().bar(index)
    }

    fn bar_read(&self, index: usize, offset: u64, out: &mut [u8]) -> Result<(), BusError> {
        self.check()?.bar_read(index, offset, out)
    }

    fn bar_write(&self, index: usize, offset: u64, data: &[u8]) -> Result<(), BusError> {
        self.check()?.bar_write(index, offset, data)
    }

    fn vectors(&self) -> u16 {
        self.inner().vectors()
    }

    fn set_vector(&self, vector: u16, event: Option<EventFd>) -> Result<(), BusError> {
        self.check()?.set_vector(vector, event)
    }

    fn reset(&self) -> Result<(), BusError> {
        self.check()?.reset()
    }

    fn is_host_driven(&self) -> bool {
        true
    }

    fn advance(&self, lane: Option<u16>, clock: &Clock) -> usize {
        if self.is_stopped.load(Ordering::SeqCst) { 0 } else { self.inner().advance(lane, clock) }
    }

    fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::SeqCst)
    }

    fn is_movable(&self) -> bool {
        true
    }

    fn follow(&self) -> Result<(), BusError> {
        if self.is_lost.load(Ordering::SeqCst) {
            return Err(BusError::Gone("nobody has it".to_owned()));
        }
        let next = self.ssd.add_controller().map_err(|e| BusError::Gone(e.to_string()))?;
        for (iova, region, access) in lock(&self.mapped).iter() {
            next.dma_map(*iova, region, *access)?;
        }
        *lock(&self.inner) = next;
        self.is_stopped.store(false, Ordering::SeqCst);
        self.is_gone.store(false, Ordering::SeqCst);
        Ok(())
    }
}

fn open(device: &Arc<Moving>) -> Controller {
    let options = ControllerOptions { clock: Clock::manual(), ..ControllerOptions::default() };
    Controller::open(Arc::clone(device) as Arc<dyn Function>, options).expect("open the controller")
}

/// All completions there will be, by token.
fn all(queue: &mut Queue) -> Vec<Completion> {
    let mut done = Vec::new();
    while queue.outstanding() > 0 {
        queue.wait(PATIENCE).expect("wait");
        done.extend(queue.poll(16));
    }
    done.sort_by_key(|completion| completion.token);
    done
}

struct Blocks {
    controller: Controller,
    queue: Queue,
    namespace: Namespace,
}

impl Blocks {
    fn new(device: &Arc<Moving>) -> Self {
        let controller = open(device);
        let queue = controller.create_queue(&QueueOptions::default()).expect("a queue");
        let namespace = Namespace::open(&controller, Nsid(1)).expect("namespace 1");
        Self { controller, queue, namespace }
    }

    fn write(&mut self, lba: u64, byte: u8) {
        let mut buf = self.controller.alloc(512).expect("a buffer");
        buf.fill(byte);
        let range = BlockRange::new(Lba(lba), 1);
        let write = self.namespace.write(range, AccessFlags::default()).expect("a command");
        self.queue.submit(write, Some(Payload::whole(buf)), lba).expect("submit");
    }

    fn read(&mut self, lba: u64) {
        let buf = self.controller.alloc(512).expect("a buffer");
        let read = self.namespace.read(BlockRange::new(Lba(lba), 1), AccessFlags::default()).expect("read");
        self.queue.submit(read, Some(Payload::whole(buf)), 100 + lba).expect("submit");
    }
}

#[test]
fn reads_and_writes_that_were_under_way_are_executed_where_the_device_has_moved_to() {
    let device = Moving::new(SsdConfig::block(MEDIA_BYTES, 512));
    let mut blocks = Blocks::new(&device);
    blocks.write(1, 11);
    // Completed, and not taken yet.
    blocks.queue.ring().expect("ring");
    device.advance(None, blocks.controller.clock());
    device.stop();
    for lba in 2..=100 {
        blocks.write(lba, lba as u8);
    }
    blocks.queue.ring().expect("ring");
    device.end();
    let done = all(&mut blocks.queue);
    assert_eq!(done.len(), 100);
    assert!(done.iter().all(|done| done.status.is_success()), "{done:?}");
    for lba in [1, 2, 100] {
        blocks.read(lba);
    }
    let done = all(&mut blocks.queue);
    let bytes: Vec<u8> =
        done.iter().map(|done| done.buf.as_ref().expect("its buffer").to_vec()[511]).collect();
    assert_eq!(bytes, [11, 2, 100]);
}

#[test]
fn a_device_may_move_again_and_again_and_admin_commands_follow_it() {
    let device = Moving::new(SsdConfig::block(MEDIA_BYTES, 512));
    let mut blocks = Blocks::new(&device);
    for round in 0..20 {
        device.stop();
        blocks.write(round, round as u8 + 1);
        blocks.queue.ring().expect("ring");
        device.end();
        if round % 2 == 0 {
            assert_eq!(blocks.controller.active_namespaces().expect("a list"), [Nsid(1)]);
        }
        let done = all(&mut blocks.queue);
        assert!(done[0].status.is_success(), "{}", done[0].status);
    }
}

fn pairs(device: &Arc<Moving>) -> (Controller, Queue, KvNamespace) {
    let controller = open(device);
    let queue = controller.create_queue(&QueueOptions::default()).expect("a queue");
    assert_eq!(controller.namespace_command_set(Nsid(1)).expect("its set"), csi::KEY_VALUE);
    let namespace = KvNamespace::open(&controller, Nsid(1)).expect("namespace 1");
    (controller, queue, namespace)
}

#[test]
fn what_may_not_be_executed_twice_ends_when_it_was_under_way_and_is_executed_when_it_was_not() {
    let device = Moving::new(SsdConfig::kv(MEDIA_BYTES));
    let (controller, mut queue, namespace) = pairs(&device);
    let new = StoreOptions { condition: StoreCondition::IfNotExists, ..StoreOptions::default() };
    let store = |queue: &mut Queue, key: &[u8], options, token| {
        let key = KvKey::new(key);
        let command = namespace.store(key, 5, options).expect("a command");
        queue.submit_kv(command, Some(controller.alloc(5).expect("a buffer")), token).expect("submit");
    };
    device.stop();
    store(&mut queue, b"new", new, 1);
    store(&mut queue, b"any", StoreOptions::default(), 2);
    queue.ring().expect("ring");
    // The device has not been told of this one.
    store(&mut queue, b"unseen", new, 3);
    device.end();
    // Somebody else notices first that it has moved.
    assert_eq!(controller.active_namespaces().expect("a list"), [Nsid(1)]);
    let done = all(&mut queue);
    let statuses: Vec<Status> = done.iter().map(|done| done.status).collect();
    assert_eq!(statuses, [Status::ABORTED_BY_HOST, Status::SUCCESS, Status::SUCCESS]);
    assert!(done.iter().all(|done| done.buf.is_some()), "buffers come back");
    // Nothing is under way when the device moves: nothing is in doubt.
    device.end();
    controller.clock().advance(Duration::from_millis(10));
    store(&mut queue, b"later", new, 4);
    let done = all(&mut queue);
    assert_eq!(done[0].status, Status::SUCCESS);
}

#[test]
fn a_device_that_nobody_has_any_more_is_gone() {
    let device = Moving::new(SsdConfig::block(MEDIA_BYTES, 512));
    let mut blocks = Blocks::new(&device);
    device.stop();
    blocks.write(1, 1);
    blocks.queue.ring().expect("ring");
    device.is_lost.store(true, Ordering::SeqCst);
    device.end();
    let done = loop {
        let waited = blocks.queue.wait(PATIENCE);
        if let Some(done) = blocks.queue.poll(1).next() {
            break done;
        }
        assert!(waited.is_ok(), "{waited:?}");
    };
    assert_eq!(done.status, Status::ABORTED_BY_HOST);
    match blocks.controller.active_namespaces() {
        Err(Error::Gone { reason }) => assert!(reason.contains("nobody has it"), "{reason}"),
        other => panic!("{other:?}"),
    }
}
