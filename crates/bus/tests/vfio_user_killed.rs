//! What is left when the other process is killed: each test plays one side in a second run of its own
//! program.

mod toy;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use toy::{COPY, SOURCE, Served, TARGET, Toy, WINDOW, wait_until};
use unvme_bus::vfio_user::{Client, Server};
use unvme_bus::{BusError, Dma, DmaAccess, EventFd, Function, Region, Registers};

/// Where the child finds its socket.
const SOCKET: &str = "UNVME_TEST_SOCKET";

/// Runs one of the ignored tests below in a process of its own.
fn play(part: &str, socket: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", part, "--ignored"])
        .env(SOCKET, socket)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// `None` when the part is played without its other half.
fn socket() -> Option<std::path::PathBuf> {
    std::env::var_os(SOCKET).map(Into::into)
}

#[test]
#[ignore = "the other half of a_killed_server_is_noticed_and_its_socket_taken_over"]
fn play_a_server() {
    let Some(socket) = socket() else { return };
    let server = Server::bind(&socket, Toy::new()).unwrap();
    server.run(&EventFd::new().unwrap()).unwrap();
}

#[test]
#[ignore = "the other half of a_killed_client_leaves_nothing_behind"]
fn play_a_client() {
    let Some(socket) = socket() else { return };
    let client = Client::connect(&socket).unwrap();
    let memory = Region::shared("host", 1 << 20).unwrap();
    client.dma_map(0x10000, &memory, DmaAccess::READ_WRITE).unwrap();
    client.set_vector(3, Some(EventFd::new().unwrap())).unwrap();
    loop {
        // Mostly in the middle of something.
        client.bar_write(0, 0x200, &[0x55; 256]).unwrap();
    }
}

#[test]
fn a_killed_server_is_noticed_and_its_socket_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let mut server = play("play_a_server", &path);
    let mut client = None;
    wait_until("the server serves", || {
        client = Client::connect(&path).ok();
        client.is_some()
    });
    let client = client.unwrap();
    let registers = Registers::new(client.clone(), 0).unwrap();
    let doorbell = registers.doorbell(WINDOW);
    server.kill().unwrap();
    server.wait().unwrap();

    assert!(matches!(registers.read32(0), Err(BusError::Gone(_))));
    assert!(client.is_gone());
    doorbell.ring(1).unwrap();

    // Nobody removed the socket file.
    assert!(path.exists());
    assert!(Client::connect(&path).is_err());
    drop(Server::bind(&path, Toy::new()).unwrap());
    assert!(!path.exists());
}

#[test]
fn a_killed_client_leaves_nothing_behind() {
    let served = Served::start();
    for round in 1..=3 {
        let mut client = play("play_a_client", &served.path);
        wait_until("the client is at work", || served.toy.assigned() == [3]);
        client.kill().unwrap();
        client.wait().unwrap();
        served.wait_detached();
        assert!(served.toy.memory.view().is_empty());
        assert_eq!(served.toy.assigned(), [0; 0]);
        assert_eq!(served.toy.resets.load(Ordering::SeqCst), round);
    }
    assert!(Client::connect(&served.path).is_ok());
}

#[test]
fn memory_that_a_client_takes_away_ends_its_session_and_nobody_elses() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let make = || -> Result<Arc<dyn Function>, BusError> { Ok(Toy::new()) };
    let server = Arc::new(Server::bind_each(&path, None, Box::new(make)).unwrap());
    let stop = EventFd::new().unwrap();
    let serving = std::thread::spawn({
        let (server, stop) = (Arc::clone(&server), stop.clone());
        move || server.run(&stop)
    });
    let innocent = Client::connect(&path).unwrap();
    let guilty = Client::connect(&path).unwrap();
    // Memory that nobody sealed, as a file on a file system is.
    let file = tempfile::tempfile().unwrap();
    file.set_len(1 << 20).unwrap();
    let memory = Region::file(&file, 1 << 20).unwrap();
    guilty.dma_map(0x10_0000, &memory, DmaAccess::READ_WRITE).unwrap();
    file.set_len(4096).unwrap();
    // The device copies from what is there to what is not there any more.
    guilty.bar_write(0, SOURCE, &0x10_0000u64.to_le_bytes()).unwrap();
    guilty.bar_write(0, TARGET, &0x18_0000u64.to_le_bytes()).unwrap();
    // The answer may be the end of the connection already.
    let _ = guilty.bar_write(0, COPY, &4096u32.to_le_bytes());
    wait_until("the client is sent away", || server.driven().len() == 1);
    assert!(matches!(guilty.bar_write(0, 0x200, &[1]), Err(BusError::Gone(_))));
    innocent.bar_write(0, 0x200, &[1]).unwrap();
    // What was lost is nobody's concern any more.
    wait_until("what was lost is unmapped", || !unvme_bus::mem::any_lost());
    stop.signal();
    serving.join().unwrap().unwrap();
}
