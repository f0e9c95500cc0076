//! Several clients of one server: each has a function of its own, and none of them notices the others.

mod toy;

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use toy::{COPIED, COPY, FAULT, SOURCE, TARGET, Toy, wait_until};
use unvme_bus::vfio_user::{CLIENTS_MAX, Client, Server};
use unvme_bus::{BusError, Dma, DmaAccess, EventFd, Function, Region, Registers};

/// A server that makes toys, and the toys it has made.
struct Several {
    made: Arc<Mutex<Vec<std::sync::Weak<Toy>>>>,
    /// No toys any more.
    sold_out: Arc<AtomicBool>,
    server: Arc<Server>,
    path: PathBuf,
    stop: EventFd,
    thread: Option<JoinHandle<()>>,
    _folder: tempfile::TempDir,
}

impl Several {
    fn start(first: Option<Arc<Toy>>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let made: Arc<Mutex<Vec<std::sync::Weak<Toy>>>> = Arc::default();
        let sold_out = Arc::new(AtomicBool::new(false));
        let make = {
            let (made, sold_out) = (made.clone(), sold_out.clone());
            move || -> Result<Arc<dyn Function>, BusError> {
                if sold_out.load(Ordering::SeqCst) {
                    return Err(BusError::Unsupported("no toys are left".into()));
                }
                let toy = Toy::new();
                made.lock().unwrap().push(Arc::downgrade(&toy));
                Ok(toy)
            }
        };
        let first = first.map(|toy| toy as Arc<dyn Function>);
        let server = Arc::new(Server::bind_each(&folder.path().join("s"), first, Box::new(make)).unwrap());
        let stop = EventFd::new().unwrap();
        let thread = {
            let (server, stop) = (server.clone(), stop.clone());
            std::thread::spawn(move || server.run(&stop).unwrap())
        };
        let path = server.path().to_path_buf();
        Self { made, sold_out, server, path, stop, thread: Some(thread), _folder: folder }
    }

    fn connect(&self) -> Arc<Client> {
        Client::connect(&self.path).unwrap()
    }

    fn living(&self) -> usize {
        self.made.lock().unwrap().iter().filter(|toy| toy.strong_count() > 0).count()
    }
}

impl Drop for Several {
    fn drop(&mut self) {
        self.stop.signal();
        let outcome = self.thread.take().map(JoinHandle::join);
        assert!(!matches!(outcome, Some(Err(_))) || std::thread::panicking(), "the server must not panic");
    }
}

fn copy(client: &Arc<Client>, from: u64, to: u64) -> u32 {
    let registers = Registers::new(client.clone(), 0).unwrap();
    registers.write64(SOURCE, from).unwrap();
    registers.write64(TARGET, to).unwrap();
    registers.write32(COPY, 16).unwrap();
    registers.read32(COPIED).unwrap()
}

#[test]
fn each_client_has_a_function_of_its_own() {
    let served = Several::start(None);
    let (first, second) = (served.connect(), served.connect());
    let memory = Region::shared("host", 4096).unwrap();
    first.dma_map(0x10000, &memory, DmaAccess::READ_WRITE).unwrap();
    assert_eq!(copy(&first, 0x10000, 0x10100), 16);
    assert_eq!(copy(&second, 0x10000, 0x10100), FAULT, "what one has mapped the other does not reach");
    assert_eq!(served.living(), 2);
    assert_eq!(served.server.driven().len(), 2);
}

#[test]
fn when_one_client_goes_the_others_stay_and_its_function_is_dropped() {
    let served = Several::start(None);
    let stays = served.connect();
    for _ in 0..100 {
        let goes = served.connect();
        assert_eq!(served.server.driven().len(), 2);
        drop(goes);
        wait_until("the client is cleaned up after", || served.server.driven().len() == 1);
        wait_until("its function is dropped", || served.living() == 1);
    }
    stays.bar_write(0, 0x200, &[1]).unwrap();
    assert!(!stays.is_gone());
}

#[test]
fn the_first_function_is_used_again_once_it_has_been_left() {
    let toy = Toy::new();
    let served = Several::start(Some(toy.clone()));
    let first = served.connect();
    first.set_vector(2, Some(EventFd::new().unwrap())).unwrap();
    assert_eq!(toy.assigned(), [2]);
    let second = served.connect();
    assert_eq!(served.living(), 1);
    drop(first);
    wait_until("the first has gone", || served.server.driven().len() == 1);
    assert_eq!((toy.resets.load(Ordering::SeqCst), toy.assigned()), (1, vec![]));
    let third = served.connect();
    third.set_vector(1, Some(EventFd::new().unwrap())).unwrap();
    assert_eq!(toy.assigned(), [1]);
    assert_eq!(served.living(), 1);
    second.bar_write(0, 0x200, &[1]).unwrap();
}

#[test]
fn one_client_more_than_there_is_room_for_is_told_at_once_and_gets_the_next_place() {
    let served = Several::start(None);
    let mut clients: Vec<_> = (0..CLIENTS_MAX).map(|_| served.connect()).collect();
    let refused = Client::connect(&served.path).unwrap_err();
    let BusError::Os { source, .. } = &refused else { panic!("{refused}") };
    assert_eq!(source.raw_os_error(), Some(16), "EBUSY");
    drop(clients.pop());
    // The server hears of the one that went before it hears of this one.
    clients.push(served.connect());
    for client in &clients {
        client.bar_write(0, 0x200, &[1]).unwrap();
    }
}

#[test]
fn a_client_that_no_function_can_be_made_for_is_told_that_the_device_is_busy() {
    let served = Several::start(None);
    let stays = served.connect();
    served.sold_out.store(true, Ordering::SeqCst);
    let refused = Client::connect(&served.path).unwrap_err();
    let BusError::Os { source, .. } = &refused else { panic!("{refused}") };
    assert_eq!(source.raw_os_error(), Some(16), "EBUSY");
    stays.bar_write(0, 0x200, &[1]).unwrap();
    served.sold_out.store(false, Ordering::SeqCst);
    drop(served.connect());
}

#[test]
fn rubbish_from_one_client_ends_that_client_only() {
    let served = Several::start(None);
    let stays = served.connect();
    for rubbish in [&[0xff; 16][..], &[0; 16], b"GET / HTTP/1.1\r\n\r\n"] {
        let mut stream = UnixStream::connect(&served.path).unwrap();
        stream.write_all(rubbish).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut answer = Vec::new();
        // An error reply or nothing, and then the end, or a reset when it had not read everything.
        if let Err(e) = std::io::Read::read_to_end(&mut stream, &mut answer) {
            assert_eq!(e.kind(), std::io::ErrorKind::ConnectionReset, "{e}");
        }
        stays.bar_write(0, 0x200, &[1]).unwrap();
    }
    wait_until("nothing of them is left", || served.living() == 1);
}

#[test]
fn a_client_that_stops_in_the_middle_of_a_message_keeps_nobody_waiting() {
    let served = Several::start(None);
    let mut half = UnixStream::connect(&served.path).unwrap();
    half.write_all(&[0; 7]).unwrap();
    let start = Instant::now();
    for _ in 0..10 {
        served.connect().bar_write(0, 0x200, &[1]).unwrap();
    }
    assert!(start.elapsed() < Duration::from_secs(60));
}

#[test]
fn those_who_connect_and_say_nothing_cost_no_function() {
    let served = Several::start(None);
    let silent: Vec<_> = (0..4).map(|_| UnixStream::connect(&served.path).unwrap()).collect();
    let client = served.connect();
    assert_eq!(served.living(), 1);
    drop((silent, client));
}

#[test]
fn when_the_server_ends_all_clients_see_that_it_is_gone() {
    let served = Several::start(None);
    let clients: Vec<_> = (0..3).map(|_| served.connect()).collect();
    drop(served);
    for client in clients {
        assert!(client.is_gone());
        assert!(matches!(client.bar_write(0, 0x200, &[1]), Err(BusError::Gone(_))));
    }
}
