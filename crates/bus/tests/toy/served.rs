//! The toy behind a socket.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use unvme_bus::EventFd;
use unvme_bus::vfio_user::Server;

use super::Toy;

/// A server on a thread of its own, stopped when dropped.
pub struct Served {
    pub toy: Arc<Toy>,
    pub path: PathBuf,
    server: Arc<Server>,
    stop: EventFd,
    thread: Option<JoinHandle<()>>,
    _folder: tempfile::TempDir,
}

impl Served {
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let toy = Toy::new();
        let server = Arc::new(Server::bind(&folder.path().join("socket"), toy.clone()).unwrap());
        let stop = EventFd::new().unwrap();
        let thread = {
            let (server, stop) = (server.clone(), stop.clone());
            std::thread::spawn(move || server.run(&stop).unwrap())
        };
        let path = server.path().to_path_buf();
        Self { toy, path, server, stop, thread: Some(thread), _folder: folder }
    }

    pub fn is_attached(&self) -> bool {
        self.server.is_attached()
    }

    /// Waits until the last client has been cleaned up after.
    pub fn wait_detached(&self) {
        wait_until("the client is cleaned up after", || !self.is_attached());
    }

    /// Stops serving and waits for the thread, which fails the test when the server panicked.
    pub fn stop(&mut self) {
        self.stop.signal();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the server must not panic");
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.signal();
        if let Some(thread) = self.thread.take() {
            let outcome = thread.join();
            assert!(outcome.is_ok() || std::thread::panicking(), "the server must not panic");
        }
    }
}

/// Polls for up to ten seconds.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !condition() {
        assert!(start.elapsed().as_secs() < 10, "waited ten seconds until {what}");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}
