//! Clients behind a socket, as other processes are.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use unvme_bus::vfio_user::{Client, Server};
use unvme_bus::{BusError, Clock, EventFd, Function};
use unvme_driver::{CompletionMode, Controller, ControllerOptions, Error, QueueOptions};
use unvme_spec::Qid;

use crate::rig::{PATIENCE, Rig, block_queue, read, write};

/// A holder that serves others.
struct Served {
    rig: Rig,
    server: Arc<Server>,
    stop: EventFd,
    stopped: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Served {
    fn start() -> Self {
        let rig = Rig::with_clock(Clock::wall());
        let folder = tempfile::tempdir().expect("folder");
        let sharing = rig.sharing.clone();
        let make = move || -> Result<Arc<dyn Function>, BusError> {
            sharing.share().map(|f| f as Arc<dyn Function>).map_err(|e| BusError::Unsupported(e.to_string()))
        };
        let server =
            Arc::new(Server::bind_each(&folder.path().join("s"), None, Box::new(make)).expect("bind"));
        let (stop, stopped) = (EventFd::new().expect("event"), Arc::new(AtomicBool::new(false)));
        let messages = {
            let (server, stop) = (server.clone(), stop.clone());
            std::thread::spawn(move || server.run(&stop).expect("serve"))
        };
        let relay = {
            let (server, stopped) = (server.clone(), stopped.clone());
            std::thread::spawn(move || {
                let clock = Clock::wall();
                let mut driven = server.driven();
                while !stopped.load(Ordering::Relaxed) {
                    server.refresh(&mut driven);
                    let work: usize = driven.iter().map(|function| function.advance(None, &clock)).sum();
                    if driven.iter().any(|function| function.is_gone()) {
                        server.look_after();
                    }
                    if work == 0 {
                        std::thread::sleep(Duration::from_micros(50));
                    }
                }
            })
        };
        let path = server.path().to_path_buf();
        Self { rig, server, stop, stopped, threads: vec![messages, relay], path, _folder: folder }
    }

    fn connect(&self) -> Controller {
        let client = Client::connect(&self.path).expect("connect");
        Controller::open(client, ControllerOptions::default()).expect("open")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.signal();
        self.stopped.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() && !std::thread::panicking() {
                panic!("a thread of the holder has panicked");
            }
        }
    }
}

#[test]
fn a_client_in_another_process_reads_and_writes_in_every_mode() {
    let served = Served::start();
    let client = served.connect();
    for mode in [CompletionMode::Poll, CompletionMode::Interrupt, CompletionMode::Hybrid] {
        let (mut queue, _) = block_queue(&client, &QueueOptions { mode, ..QueueOptions::default() });
        for round in 0..20u8 {
            write(&client, &mut queue, u64::from(round) * 16, round, 8192);
            assert_eq!(read(&client, &mut queue, u64::from(round) * 16, 8192), [round; 8192], "{mode:?}");
        }
    }
}

#[test]
fn two_clients_and_the_holder_work_at_the_same_time() {
    let served = Served::start();
    let work = |controller: &Controller, first: u64, mode: CompletionMode| {
        let (mut queue, _) = block_queue(controller, &QueueOptions { mode, ..QueueOptions::default() });
        for round in 0..100u64 {
            let lba = first + round % 32 * 8;
            write(controller, &mut queue, lba, (first + round) as u8, 4096);
            assert_eq!(read(controller, &mut queue, lba, 4096), [(first + round) as u8; 4096]);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| work(&served.connect(), 0, CompletionMode::Interrupt));
        scope.spawn(|| work(&served.connect(), 1000, CompletionMode::Poll));
        work(&served.rig.holder, 2000, CompletionMode::Poll);
    });
    assert_eq!(served.rig.holder.epoch(), 1);
}

#[test]
fn clients_that_come_and_go_a_hundred_times_leave_no_queue_no_memory_and_no_descriptor() {
    let served = Served::start();
    let (mut own, _) = block_queue(&served.rig.holder, &QueueOptions::default());
    let descriptors = || std::fs::read_dir("/proc/self/fd").expect("descriptors").count();
    let mut before = 0;
    for round in 0..100u8 {
        let client = served.connect();
        let interrupts = QueueOptions { mode: CompletionMode::Interrupt, ..QueueOptions::default() };
        let (mut queue, _) = block_queue(&client, &interrupts);
        write(&client, &mut queue, 64, round, 4096);
        assert_eq!(queue.id(), Qid(2), "the identifier was given back");
        drop((queue, client));
        let started = Instant::now();
        while served.server.is_attached() {
            assert!(started.elapsed() < PATIENCE, "the client is cleaned up after");
            std::thread::sleep(Duration::from_millis(1));
        }
        if round == 9 {
            before = descriptors();
        }
    }
    // Other tests of this program open and close descriptors meanwhile.
    assert!(descriptors() < before + 60, "{before} descriptors became {}", descriptors());
    assert_eq!(read(&served.rig.holder, &mut own, 64, 4096), [99; 4096]);
    assert_eq!(served.rig.holder.epoch(), 1, "the drive was never reset for it");
}

#[test]
fn a_client_notices_at_once_that_the_holder_has_reset_the_drive() {
    let served = Served::start();
    let client = served.connect();
    let (mut queue, _) = block_queue(&client, &QueueOptions::default());
    write(&client, &mut queue, 0, 1, 512);
    served.rig.holder.reset().expect("reset");
    let started = Instant::now();
    let outcome = loop {
        match client.identify_controller() {
            Err(e) => break e,
            Ok(_) => assert!(started.elapsed() < PATIENCE, "noticed in time"),
        }
    };
    assert!(matches!(outcome, Error::Gone { .. } | Error::Bus(BusError::Gone(_))), "{outcome}");
    drop((queue, client));
    let again = served.connect();
    let (mut queue, _) = block_queue(&again, &QueueOptions::default());
    assert_eq!(read(&again, &mut queue, 0, 512), [1; 512]);
}

#[test]
fn when_the_holder_stops_serving_clients_get_errors_in_time() {
    let served = Served::start();
    let client = served.connect();
    let (mut queue, _) = block_queue(&client, &QueueOptions::default());
    write(&client, &mut queue, 0, 1, 512);
    drop(served);
    let started = Instant::now();
    assert!(client.identify_controller().is_err());
    drop((queue, client));
    assert!(started.elapsed() < PATIENCE, "{:?}", started.elapsed());
}
