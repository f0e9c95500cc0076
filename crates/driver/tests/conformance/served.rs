//! A small server of one device over NVMe/TCP: a thread that looks at all its connections in turn.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use unvme_bus::Clock;
use unvme_driver::{HostIdentity, TcpTarget};
use unvme_fabric::Stream;
use unvme_ssd::Ssd;
use unvme_ssd::fabrics::{Access, FabricsQueue, Peer, PortId, PortOptions, Target, TargetOptions};
use unvme_ssd::tcp::{Connection, Limits};

pub(crate) const HOST: &str = "nqn.2026-01.example:host";
pub(crate) const NQN: &str = "nqn.2026-01.example:conformance";

pub(crate) struct Served {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    pub(crate) fn start(device: Arc<Ssd>, access: Access) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("non-blocking");
        let address = listener.local_addr().expect("bound");
        let target = Target::new(TargetOptions::default());
        let service = address.port().to_string();
        let port =
            PortOptions { id: PortId(1), address: "127.0.0.1".to_owned(), service, ..PortOptions::default() };
        target.add_port(port).expect("a port");
        target.add_subsystem(NQN, device, access).expect("a subsystem");
        let stop = Arc::new(AtomicBool::new(false));
        let thread = {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || serve(&listener, &target, &stop))
        };
        Self { address, stop, thread: Some(thread) }
    }

    pub(crate) fn target(&self) -> TcpTarget {
        let host = HostIdentity { nqn: HOST.to_owned(), id: [9; 16] };
        TcpTarget::new("127.0.0.1", self.address.port(), NQN, host)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the server's thread has panicked");
        }
    }
}

fn serve(listener: &TcpListener, target: &Arc<Target>, stop: &AtomicBool) {
    let clock = Clock::wall();
    let mut connections: Vec<(Stream, Connection)> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let mut done = 0;
        while let Ok((socket, peer)) = listener.accept() {
            let peer = Peer { address: peer.to_string(), ..Peer::default() };
            let queue = FabricsQueue::new(target, PortId(1), peer);
            let stream = Stream::accepted(socket).expect("a stream");
            connections.push((stream, Connection::new(queue, Limits::default())));
            done += 1;
        }
        for (stream, connection) in &mut connections {
            done += connection.receive(|rooms| stream.receive(rooms));
            done += connection.advance(&clock);
            done += connection.send(|pieces| stream.send(pieces));
        }
        connections.retain(|(_, connection)| connection.ending().is_none());
        if done == 0 {
            // The machine may have fewer processors than there are tests.
            std::thread::yield_now();
        }
    }
}
