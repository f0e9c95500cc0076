//! A virtual SSD on one of the transports, with a saboteur between.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tempfile::NamedTempFile;
use unvme_bus::vfio_user::{Client, Server};
use unvme_bus::{Clock, EventFd, Function};
use unvme_driver::{
    Completion, Controller, ControllerOptions, DmaBuf, Error, Event, Namespace, Payload, Queue, QueueOptions,
};
use unvme_spec::{Nsid, Sqe};
use unvme_ssd::fabrics::Access;
use unvme_ssd::{MemoryStore, Ssd, SsdConfig};

use crate::saboteur::Saboteur;
use crate::served::Served;

/// How a behaviour makes its device.
pub(crate) type Transport = fn(SsdConfig) -> Rig;

/// Bytes of the media of [`small`].
pub(crate) const MEDIA_BYTES: u64 = 32 << 20;

/// A small device with blocks of 512 bytes.
pub(crate) fn small() -> SsdConfig {
    SsdConfig::block(MEDIA_BYTES, 512)
}

pub(crate) struct Rig {
    /// Between the SSD and whoever drives it.
    pub(crate) saboteur: Arc<Saboteur>,
    /// What the driver opens.
    pub(crate) function: Arc<dyn Function>,
    pub(crate) clock: Clock,
    server: Option<Serving>,
    /// In place of the SSD.
    file: Option<NamedTempFile>,
    /// The SSD on the network; the saboteur is not asked.
    network: Option<Served>,
}

impl Rig {
    /// The host drives the device itself, on a virtual clock.
    pub(crate) fn in_process(config: SsdConfig) -> Self {
        let saboteur = device(config);
        Self {
            function: saboteur.clone(),
            saboteur,
            clock: Clock::manual(),
            server: None,
            file: None,
            network: None,
        }
    }

    /// The device is served on a socket by two threads of this process.
    pub(crate) fn vfio_user(config: SsdConfig) -> Self {
        let saboteur = device(config);
        let server = Serving::start(saboteur.clone());
        let function = Client::connect(&server.path).expect("connect");
        Self { function, saboteur, clock: Clock::wall(), server: Some(server), file: None, network: None }
    }

    /// A file as large as the device would be, through the kernel's block layer. The SSD is there, and not
    /// asked.
    pub(crate) fn kernel_file(config: SsdConfig) -> Self {
        // Beside the program and not in /tmp, which may be a file system without direct I/O.
        let file = NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).expect("file");
        file.as_file().set_len(MEDIA_BYTES).expect("size");
        Self { clock: Clock::wall(), file: Some(file), ..Self::in_process(config) }
    }

    /// The device is served by NVMe/TCP, by a thread of this process.
    pub(crate) fn tcp(config: SsdConfig) -> Self {
        let ssd = ssd(config);
        let saboteur = Saboteur::new(ssd.clone());
        let network = Some(Served::start(ssd, Access::Any));
        Self { function: saboteur.clone(), saboteur, clock: Clock::wall(), server: None, file: None, network }
    }

    pub(crate) fn is_on_network(&self) -> bool {
        self.network.is_some()
    }

    /// Queues are on a PCI function, with what the driver asks of it.
    pub(crate) fn has_function(&self) -> bool {
        self.file.is_none() && self.network.is_none()
    }

    pub(crate) fn is_remote(&self) -> bool {
        self.server.is_some() || self.network.is_some()
    }

    pub(crate) fn options(&self) -> ControllerOptions {
        ControllerOptions { clock: self.clock.clone(), ..ControllerOptions::default() }
    }

    pub(crate) fn open(&self) -> Controller {
        self.try_open(self.options()).expect("open the controller")
    }

    pub(crate) fn try_open(&self, options: ControllerOptions) -> Result<Controller, Error> {
        match (&self.file, &self.network) {
            (Some(file), _) => {
                // The longest transfer of the virtual SSD.
                let options = ControllerOptions { transfer_bytes_max: 2 << 20, ..options };
                Controller::open_kernel(file.path(), options)
            }
            (None, Some(network)) => Controller::open_tcp(network.target(), options),
            (None, None) => Controller::open(self.function.clone(), options),
        }
    }

    /// Connects once more after the first client is gone.
    pub(crate) fn attach_again(&mut self) {
        if let Some(server) = &self.server {
            self.function = Client::connect(&server.path).expect("connect again");
        }
    }

    /// Ends the server as a killed process would: the socket closes, nobody moves the device any more.
    pub(crate) fn kill_server(&mut self) {
        self.server = None;
    }
}

fn device(config: SsdConfig) -> Arc<Saboteur> {
    Saboteur::new(ssd(config))
}

pub(crate) fn ssd(config: SsdConfig) -> Arc<Ssd> {
    let store = MemoryStore::new(config.store_bytes().expect("a geometry")).expect("memory");
    Ssd::new(config, Box::new(store)).expect("device")
}

struct Serving {
    stop: EventFd,
    stopped: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Serving {
    fn start(function: Arc<Saboteur>) -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("socket");
        let server = Server::bind(&path, function.clone()).expect("bind");
        let (stop, stopped) = (EventFd::new().expect("eventfd"), Arc::new(AtomicBool::new(false)));
        let messages = {
            let stop = stop.clone();
            std::thread::spawn(move || server.run(&stop).expect("serve"))
        };
        let work = {
            let stopped = stopped.clone();
            std::thread::spawn(move || {
                let clock = Clock::wall();
                while !stopped.load(Ordering::Relaxed) {
                    if function.advance(None, &clock) == 0 {
                        // The machine may have fewer processors than there are tests.
                        std::thread::yield_now();
                    }
                }
            })
        };
        Self { stop, stopped, threads: vec![messages, work], path, _folder: folder }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.signal();
        self.stopped.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() && !std::thread::panicking() {
                panic!("a server thread has panicked");
            }
        }
    }
}

/// Long enough for anything that works.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for the next completion.
pub(crate) fn next(queue: &mut Queue) -> Completion {
    assert!(queue.wait(PATIENCE).expect("wait"), "nothing has completed");
    queue.poll(1).next().expect("wait has seen a completion")
}

/// Submits, rings and waits for one command.
pub(crate) fn run(queue: &mut Queue, sqe: Sqe, payload: Option<Payload>) -> Completion {
    queue.submit(sqe, payload, 7).expect("submit");
    let completion = next(queue);
    assert_eq!(completion.token, 7);
    completion
}

/// Events that are reported; those of a device elsewhere take a while to arrive.
pub(crate) fn events(rig: &Rig, controller: &Controller) -> Vec<Event> {
    for _ in 0..2000 {
        let events = controller.poll_events().expect("poll for events");
        if !events.is_empty() {
            return events;
        }
        if rig.is_remote() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Vec::new()
}

/// A controller, a queue of `options` and namespace 1.
pub(crate) fn block_queue(rig: &Rig, options: &QueueOptions) -> (Controller, Queue, Namespace) {
    let controller = rig.open();
    let queue = controller.create_queue(options).expect("create a queue");
    let namespace = Namespace::open(&controller, Nsid(1)).expect("open namespace 1");
    (controller, queue, namespace)
}

/// A buffer with `data` in it.
pub(crate) fn filled(controller: &Controller, data: &[u8]) -> DmaBuf {
    let mut buf = controller.alloc(data.len()).expect("buffer");
    buf.write(0, data);
    buf
}
