//! A device in another process's place: over vfio-user, where it runs by itself and interrupts.

use std::time::{Duration, Instant};

use unvme::{EventFd, ServeOptions, Status, serve};
use unvme_guide::config::SsdType;
use unvme_guide::session::{KvKey as Key, QueueChoice, StoreOptions};

use crate::rig::{BOTH, Masks, config, start};
use crate::verbs::Verbs;

const AUTO: QueueChoice = QueueChoice::Auto;

/// Runs `client` while the device `name` is served at the socket it is given.
fn served(name: &str, client: impl FnOnce(&str) + Send) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let options = ServeOptions {
        socket: Some(socket.clone()),
        // Pauses soon: the machine has few processors.
        spin: Some(Duration::from_micros(100)),
        ..ServeOptions::default()
    };
    let stop = EventFd::new().unwrap();
    let (ready, is_ready) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let server = scope.spawn(|| serve(name, &options, &stop, |_| ready.send(()).unwrap()));
        is_ready.recv_timeout(Duration::from_secs(60)).expect("the device is served");
        // Also when the client panics.
        struct Stop<'a>(&'a EventFd);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.signal();
            }
        }
        let stopping = Stop(&stop);
        client(&format!("vfio-user:{}", socket.display()));
        drop(stopping);
        server.join().unwrap().unwrap();
    });
}

#[test]
fn completion_threads_sleep_on_interrupts_and_wake_for_each_operation() {
    // With a completion thread on each CPU, with one, and with one for several queues.
    for masks in [Masks(3, 1, 2, 32), Masks(3, 0, 3, 8), Masks(7, 1, 1, 8)] {
        served("mem:block:64M", |name| {
            let (session, device, books) = start(config(name, SsdType::Lba, masks));
            for token in 0..200 {
                let submitted = Instant::now();
                device.write_async(AUTO, token, &[token as u8; 512], token).unwrap();
                if token % 10 == 0 {
                    // Long enough for the thread to sleep.
                    std::thread::sleep(Duration::from_millis(2));
                    books.wait_for(token as usize + 1);
                    assert!(submitted.elapsed() < Duration::from_secs(60), "token {token}");
                }
            }
            books.wait_for(200);
            books.assert_all_succeeded(0..200);
            for lba in 0..200 {
                let mut data = [0; 512];
                device.read(AUTO, lba, &mut data).unwrap();
                assert_eq!(data, [lba as u8; 512], "block {lba}");
            }
            session.close().unwrap();
        });
    }
}

#[test]
fn threads_share_a_served_device_as_they_share_one_of_their_own() {
    served("mem:kv:64M", |name| {
        let mut config = config(name, SsdType::Kv, BOTH);
        config.cache = true;
        let (session, device, books) = start(config);
        std::thread::scope(|scope| {
            for thread in 0..8u64 {
                let device = &device;
                scope.spawn(move || {
                    for number in thread * 100..(thread + 1) * 100 {
                        let name = number.to_be_bytes();
                        let key = Key { keyspace: 0, bytes: &name };
                        let value = [number as u8; 1000];
                        if thread % 2 == 0 {
                            let options = StoreOptions::default();
                            device.store_async(AUTO, key, &value, options, number).unwrap();
                        } else {
                            device.store(AUTO, key, &value, StoreOptions::default()).unwrap();
                            let mut out = [0; 1000];
                            assert_eq!(device.retrieve(AUTO, key, 0, &mut out).unwrap().copied, 1000);
                            assert_eq!(out, value);
                        }
                    }
                });
            }
        });
        session.close().unwrap();
        let own = |thread: u64| thread * 100..(thread + 1) * 100;
        books.assert_all_succeeded((0..8).step_by(2).flat_map(own));
    });
}

#[test]
fn a_server_that_goes_away_ends_what_is_outstanding_with_errors() {
    let folder = tempfile::tempdir().unwrap();
    let options = ServeOptions { socket: Some(folder.path().join("s")), ..ServeOptions::default() };
    let name = format!("vfio-user:{}", folder.path().join("s").display());
    let stop = EventFd::new().unwrap();
    let (ready, is_ready) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let server = scope.spawn(|| serve("mem:block:64M", &options, &stop, |_| ready.send(()).unwrap()));
        is_ready.recv_timeout(Duration::from_secs(60)).expect("the device is served");
        let (session, device, books) = start(config(&name, SsdType::Lba, BOTH));
        device.write(AUTO, 0, &[1; 512]).unwrap();
        stop.signal();
        server.join().unwrap().unwrap();
        let started = Instant::now();
        let mut taken = 0;
        while device.write_async(AUTO, 0, &[1; 512], taken).is_ok() {
            taken += 1;
            assert!(started.elapsed() < Duration::from_secs(60), "the loss goes unnoticed");
            std::thread::sleep(Duration::from_millis(1));
        }
        books.wait_for(taken as usize);
        for token in 0..taken {
            assert_eq!(books.take(token).status, Status::ABORTED_BY_HOST, "token {token}");
        }
        assert!(device.read(AUTO, 0, &mut [0; 512]).is_err());
        session.close().unwrap();
    });
}
