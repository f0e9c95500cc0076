//! The same device, in this process and behind a server.

use std::thread::{self, JoinHandle};

use unvme::fabrics::Endpoint;
use unvme::registry::{BlockBytes, DeviceSpec};
use unvme::{
    AnaState, Device, EventFd, ListenOptions, OpenOptions, Registry, Result, ServeOptions, Size,
    TcpServeOptions, open, serve, serve_tcp,
};

const BYTES: u64 = 16 << 20;

/// A device of 16 MiB with blocks of 512 bytes, and who serves it.
pub(crate) struct Rig {
    stop: EventFd,
    server: Option<JoinHandle<Result<()>>>,
    name: String,
    registry: Registry,
    _home: tempfile::TempDir,
}

impl Rig {
    fn new() -> Self {
        let home = tempfile::tempdir().expect("a folder");
        let registry = Registry::at(home.path());
        let name = "0000:01:00.0".to_owned();
        let spec = DeviceSpec::block(Size(BYTES), BlockBytes::B512, "S1");
        registry.create(name.parse().expect("address"), &spec).expect("create");
        Self { stop: EventFd::new().expect("an eventfd"), server: None, name, registry, _home: home }
    }

    pub(crate) fn local() -> Self {
        Self::new()
    }

    pub(crate) fn vfio_user() -> Self {
        let mut rig = Self::new();
        let (stop, name) = (rig.stop.clone(), rig.name.clone());
        let options = ServeOptions { registry: Some(rig.registry.clone()), ..ServeOptions::default() };
        let (ready, started) = std::sync::mpsc::channel();
        let ready = std::sync::Mutex::new(ready);
        rig.server = Some(thread::spawn(move || {
            serve(&name, &options, &stop, |_| {
                let _ = ready.lock().map(|ready| ready.send(()));
            })
        }));
        started.recv().expect("it serves");
        rig
    }

    pub(crate) fn tcp() -> Self {
        let mut rig = Self::new();
        let listen = ListenOptions { endpoint: Endpoint::new("127.0.0.1", 0), ana: AnaState::Optimized };
        let options = TcpServeOptions {
            registry: Some(rig.registry.clone()),
            listen: vec![listen],
            threads: Some(1),
            ..TcpServeOptions::default()
        };
        let (ready, started) = std::sync::mpsc::channel();
        let (stop, devices) = (rig.stop.clone(), vec![rig.name.clone()]);
        rig.server = Some(thread::spawn(move || {
            serve_tcp(&devices, &options, &stop, |served| {
                let _ = ready.send(served[0].names[0].to_string());
            })
        }));
        rig.name = started.recv().expect("it serves");
        rig
    }

    pub(crate) fn open(&self) -> Device {
        let options = OpenOptions { registry: Some(self.registry.clone()), ..OpenOptions::default() };
        open(&self.name, &options).unwrap_or_else(|e| panic!("{e}"))
    }

    pub(crate) fn end(mut self) {
        self.stop.signal();
        if let Some(server) = self.server.take() {
            server.join().expect("no panic").expect("served");
        }
    }
}

/// A test on each of them.
macro_rules! on_each {
    ($(#[$meta:meta])* fn $name:ident($device:ident: &Device) $body:block) => {
        mod $name {
            use super::*;

            $(#[$meta])*
            fn on($device: &Device) $body

            #[test]
            fn in_process() {
                let rig = $crate::rig::Rig::local();
                on(&rig.open());
                rig.end();
            }

            #[test]
            fn by_vfio_user() {
                let rig = $crate::rig::Rig::vfio_user();
                on(&rig.open());
                rig.end();
            }

            #[test]
            fn by_tcp() {
                let rig = $crate::rig::Rig::tcp();
                on(&rig.open());
                rig.end();
            }
        }
    };
}

pub(crate) use on_each;
