//! A drive and its holder.

use std::sync::Arc;
use std::time::Duration;

use unvme_bus::{Clock, Function};
use unvme_driver::{
    Completion, Controller, ControllerOptions, Namespace, Payload, Queue, QueueOptions, Sharing,
};
use unvme_spec::nvm::{AccessFlags, BlockRange};
use unvme_spec::{Lba, Nsid};
use unvme_ssd::{MemoryStore, Ssd, SsdConfig};

/// Bytes of the media.
pub(crate) const MEDIA_BYTES: u64 = 32 << 20;
/// Long enough for anything that works.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A drive, its holder, and what makes clients.
pub(crate) struct Rig {
    pub(crate) holder: Controller,
    pub(crate) sharing: Arc<Sharing>,
    pub(crate) clock: Clock,
}

impl Rig {
    /// Everything happens on the thread of the test, on a clock that moves when somebody waits.
    pub(crate) fn in_one_thread() -> Self {
        Self::with_clock(Clock::manual())
    }

    pub(crate) fn with_clock(clock: Clock) -> Self {
        let config = SsdConfig::block(MEDIA_BYTES, 512);
        let store = MemoryStore::new(config.store_bytes().expect("a geometry")).expect("memory");
        let drive = Ssd::new(config, Box::new(store)).expect("device");
        let options = ControllerOptions { clock: clock.clone(), ..ControllerOptions::default() };
        let holder = Controller::open(drive, options).expect("the holder opens the drive");
        let sharing = Sharing::new(&holder).expect("it can be shared");
        Self { holder, sharing, clock }
    }

    /// One more client.
    pub(crate) fn client(&self) -> Controller {
        self.open(self.sharing.share().expect("a place"))
    }

    pub(crate) fn open(&self, function: Arc<dyn Function>) -> Controller {
        let options = ControllerOptions { clock: self.clock.clone(), ..ControllerOptions::default() };
        Controller::open(function, options).expect("the client opens the drive")
    }
}

/// Waits for the next completion.
pub(crate) fn next(queue: &mut Queue) -> Completion {
    assert!(queue.wait(PATIENCE).expect("wait"), "nothing has completed");
    queue.poll(1).next().expect("wait has seen a completion")
}

/// A queue of its own, and namespace 1.
pub(crate) fn block_queue(controller: &Controller, options: &QueueOptions) -> (Queue, Namespace) {
    let queue = controller.create_queue(options).expect("create a queue");
    (queue, Namespace::open(controller, Nsid(1)).expect("open namespace 1"))
}

/// Writes `bytes` of `value` at block `lba`.
pub(crate) fn write(controller: &Controller, queue: &mut Queue, lba: u64, value: u8, bytes: usize) {
    let namespace = Namespace::open(controller, Nsid(1)).expect("namespace");
    let mut buf = controller.alloc(bytes).expect("buffer");
    buf.fill(value);
    let range = BlockRange::new(Lba(lba), (bytes / 512) as u32);
    let command = namespace.write(range, AccessFlags::default()).expect("command");
    queue.submit(command, Some(Payload::whole(buf)), 1).expect("submit");
    let completion = next(queue);
    assert!(completion.status.is_success(), "{}", completion.status);
}

/// Reads `bytes` at block `lba`.
pub(crate) fn read(controller: &Controller, queue: &mut Queue, lba: u64, bytes: usize) -> Vec<u8> {
    let namespace = Namespace::open(controller, Nsid(1)).expect("namespace");
    let buf = controller.alloc(bytes).expect("buffer");
    let range = BlockRange::new(Lba(lba), (bytes / 512) as u32);
    let command = namespace.read(range, AccessFlags::default()).expect("command");
    queue.submit(command, Some(Payload::whole(buf)), 2).expect("submit");
    let completion = next(queue);
    assert!(completion.status.is_success(), "{}", completion.status);
    completion.buf.expect("it went with the command").to_vec()
}
