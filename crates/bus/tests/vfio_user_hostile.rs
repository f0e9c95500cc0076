//! Messages byte by byte, right ones and wrong ones.
//!
//! The layouts are those of libvfio-user's docs/vfio-user.rst and include/vfio-user.h; the messages of QEMU
//! and SPDK are written down from QEMU's hw/vfio-user/{proxy,device,container}.c and SPDK's
//! lib/vfio_user/host/vfio_user.c.

mod toy;

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use toy::{Served, Toy, VECTORS, WINDOW};
use unvme_bus::vfio_user::{DATA_BYTES_MAX, Reply, Session};
use unvme_bus::{BarLayout, BusError, Dma, DmaAccess, EventFd, Function, Region};

const EINVAL: u32 = 22;
const ENOENT: u32 = 2;
const EEXIST: u32 = 17;
const ENOSYS: u32 = 38;
const ENOTSUP: u32 = 95;

/// SPDK's VERSION: 0.1 and no capabilities.
const SPDK_VERSION: [u8; 20] = [0, 0, 1, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];

fn message(command: u16, payload: &[u8]) -> Vec<u8> {
    let mut message = vec![0x07, 0x00];
    message.extend(command.to_le_bytes());
    message.extend((16 + payload.len() as u32).to_le_bytes());
    message.extend([0; 8]);
    message.extend(payload);
    message
}

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn longs(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn fds<const N: usize>(fds: [&Region; N]) -> Vec<OwnedFd> {
    fds.iter().map(|r| r.backing().unwrap().0.try_clone_to_owned().unwrap()).collect()
}

fn negotiated() -> (Arc<Toy>, Session) {
    let toy = Toy::new();
    let mut session = Session::new(toy.clone()).unwrap();
    let reply = session.handle(&SPDK_VERSION, Vec::new());
    assert!(!reply.hang_up);
    (toy, session)
}

fn errno(reply: &Reply) -> Option<u32> {
    let word = |at: usize| u32::from_le_bytes(reply.bytes[at..at + 4].try_into().unwrap());
    assert_eq!(word(4) as usize, reply.bytes.len(), "the size is that of the message");
    assert_eq!(word(8) & 0xf, 1, "a reply");
    if word(8) & 0x20 == 0 {
        return None;
    }
    assert_eq!(reply.bytes.len(), 16, "an error is a header alone: SPDK reads nothing else");
    Some(word(12))
}

/// Sends a message and returns the errno of the answer; the connection must go on.
fn ask(session: &mut Session, command: u16, payload: &[u8], fds: Vec<OwnedFd>) -> Option<u32> {
    let reply = session.handle(&message(command, payload), fds);
    assert!(!reply.hang_up);
    errno(&reply)
}

#[test]
fn spdks_version_without_capabilities_is_answered_with_ours() {
    let mut session = Session::new(Toy::new()).unwrap();
    let reply = session.handle(&SPDK_VERSION, Vec::new());
    let text = br#"{"capabilities":{"max_msg_fds":16,"max_data_xfer_size":1048576}}"#;
    let size = 20 + text.len() as u8 + 1;
    let mut expected = vec![0, 0, 1, 0, size, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    expected.extend(text);
    expected.push(0);
    assert_eq!(reply.bytes, expected);
    assert!(session.is_negotiated());
}

#[test]
fn qemus_version_is_answered_with_its_minor_and_no_more_bytes_than_it_sent() {
    // hw/vfio-user/proxy.c, caps_json(): 0.0, and the reply must fit into the request's buffer.
    let text = concat!(
        r#"{"capabilities": {"max_data_xfer_size": 1048576, "max_msg_fds": 16, "pgsizes": 4096, "#,
        r#""max_dma_maps": 65535, "migration": {"max_bitmap_size": 268435456, "pgsize": 4096}, "#,
        r#""write_multiple": true}}"#,
    );
    let mut payload = vec![0, 0, 0, 0];
    payload.extend(text.as_bytes());
    payload.push(0);
    let request = message(1, &payload);
    let mut session = Session::new(Toy::new()).unwrap();
    let reply = session.handle(&request, Vec::new());
    assert!(reply.bytes.len() <= request.len());
    assert_eq!(reply.bytes[16..20], [0, 0, 0, 0]);
    let ours = std::str::from_utf8(&reply.bytes[20..]).unwrap();
    assert_eq!(
        ours,
        concat!(
            r#"{"capabilities":{"max_msg_fds":16,"max_data_xfer_size":1048576,"pgsizes":4096,"#,
            r#""max_dma_maps":65535,"write_multiple":true}}"#,
            "\0"
        )
    );
}

#[test]
fn a_session_that_does_not_start_with_a_version_we_speak_is_over() {
    let other_major = message(1, &[1, 0, 0, 0]);
    let no_nul = message(1, b"\0\0\x01\0{}");
    let no_json = message(1, b"\0\0\x01\0{\"capabilities\":\0");
    let wrong_type = message(1, b"\0\0\x01\0{\"capabilities\":{\"max_msg_fds\":\"many\"}}\0");
    let mut deep = b"\0\0\x01\0".to_vec();
    deep.extend([b'['; 8000]);
    deep.push(0);
    let deep = message(1, &deep);
    let too_short = message(1, &[0]);
    let not_version = message(4, &words(&[16, 0, 0, 0]));
    for (bytes, code) in [
        (other_major, ENOTSUP),
        (no_nul, EINVAL),
        (no_json, EINVAL),
        (wrong_type, EINVAL),
        (deep, EINVAL),
        (too_short, EINVAL),
        (not_version, EINVAL),
    ] {
        let toy = Toy::new();
        let mut session = Session::new(toy.clone()).unwrap();
        let reply = session.handle(&bytes, Vec::new());
        assert_eq!(errno(&reply), Some(code), "{bytes:?}");
        assert!(reply.hang_up, "{bytes:?}");
        drop(session);
        assert_eq!(toy.resets.load(Ordering::SeqCst), 0);
    }
    let (_, mut session) = negotiated();
    assert_eq!(ask(&mut session, 1, &[0, 0, 1, 0], Vec::new()), Some(EINVAL), "once is enough");
}

#[test]
fn a_message_that_lies_about_its_size_or_is_no_command_ends_the_session() {
    let mut long = message(13, &[]);
    long[4] = 17;
    let mut short = message(9, &longs(&[0, 4 << 32]));
    short[4] = 16;
    let mut reply = message(13, &[]);
    reply[8] = 1;
    for bytes in [long, short, reply, vec![], vec![0; 15], vec![0; 16]] {
        let (_, mut session) = negotiated();
        let outcome = session.handle(&bytes, Vec::new());
        assert!(outcome.hang_up && outcome.bytes.is_empty(), "{bytes:?}");
    }
}

#[test]
fn device_region_and_interrupt_information_has_the_bytes_of_linux_vfio_h() {
    let (_, mut session) = negotiated();
    let mut info = |command, payload: &[u8]| session.handle(&message(command, payload), Vec::new());
    // SPDK refuses more than 16 bytes; rust-vmm's client counts the header in argsz.
    assert_eq!(info(4, &words(&[32, 0, 0, 0])).bytes[16..], words(&[16, 3, 9, 5]));
    // QEMU asks with room for the structure alone first: no windows yet, only how much room they take.
    let first = info(5, &words(&[32, 0, 0, 0, 0, 0, 0, 0]));
    assert_eq!(first.bytes[16..], words(&[64, 3, 0, 0, 0x4000, 0, 0, 0]));
    assert!(first.window.is_none());
    let second = info(5, &words(&[64, 0, 0, 0, 0, 0, 0, 0]));
    let mut expected = words(&[64, 0xf, 0, 32, 0x4000, 0, 0, 0]);
    // Sparse mmap capability: id 1, version 1, no next; one area of 0x1000 at 0x1000.
    expected.extend(words(&[0x0001_0001, 0, 1, 0, 0x1000, 0, 0x1000, 0]));
    assert_eq!(second.bytes[16..], expected);
    assert!(second.fds().is_some());
    // SPDK sends 4064 bytes, and wants nothing about regions that do not exist but their size.
    let mut spdk = words(&[4064, 0, 8, 0, 0, 0, 0, 0]);
    spdk.resize(4064, 0);
    assert_eq!(info(5, &spdk).bytes[16..], words(&[32, 0, 8, 0, 0, 0, 0, 0]));
    assert_eq!(info(5, &words(&[32, 0, 7, 0, 0, 0, 0, 0])).bytes[16..], words(&[32, 3, 7, 0, 4096, 0, 0, 0]));
    assert_eq!(info(7, &words(&[16, 0, 2, 0])).bytes[16..], words(&[16, 1, 2, u32::from(VECTORS)]));
    assert_eq!(info(7, &words(&[16, 0, 0, 0])).bytes[16..], words(&[16, 0, 0, 0]));
    for (command, payload) in [
        (4, words(&[15, 0, 0, 0])),
        (4, words(&[16, 0, 0])),
        (5, words(&[32, 0, 9, 0, 0, 0, 0, 0])),
        (5, words(&[31, 0, 0, 0, 0, 0, 0, 0])),
        (5, words(&[32, 0, 0, 0])),
        (7, words(&[16, 0, 5, 0])),
    ] {
        assert_eq!(errno(&info(command, &payload)), Some(EINVAL), "{command} {payload:?}");
    }
}

#[test]
fn a_client_that_takes_no_descriptors_is_not_told_about_windows() {
    let mut session = Session::new(Toy::new()).unwrap();
    session.handle(&message(1, b"\0\0\x01\0{\"capabilities\":{\"max_msg_fds\":0}}\0"), Vec::new());
    let reply = session.handle(&message(5, &words(&[4096, 0, 0, 0, 0, 0, 0, 0])), Vec::new());
    assert_eq!(reply.bytes[16..], words(&[32, 3, 0, 0, 0x4000, 0, 0, 0]));
    assert!(reply.window.is_none());
}

#[test]
fn dma_ranges_are_mapped_and_taken_back_as_the_clients_of_others_do() {
    let (toy, mut session) = negotiated();
    let memory = Region::shared("host", 1 << 16).unwrap();
    let map = |flags: u32, offset: u64, iova: u64, length: u64| {
        [words(&[32, flags]), longs(&[offset, iova, length])].concat()
    };
    let unmap = |flags: u32, iova: u64, length: u64| [words(&[24, flags]), longs(&[iova, length])].concat();
    assert_eq!(ask(&mut session, 2, &map(3, 0, 0x10000, 0x1000), fds([&memory])), None);
    assert_eq!(ask(&mut session, 2, &map(1, 0x1000, 0x20000, 0x2000), fds([&memory])), None);
    // QEMU maps its firmware without a descriptor: remembered, and not for the device.
    assert_eq!(ask(&mut session, 2, &map(1, 0, 0xc0000, 0x1000), Vec::new()), None);
    assert_eq!(toy.memory.view().len(), 2);

    for (payload, with, code) in [
        (map(3, 0, 0x10000, 0x1000), 1, EEXIST),
        (map(3, 0, 0x1f000, 0x2000), 1, EEXIST),
        (map(3, 0, 0xc0000, 0x1000), 1, EEXIST),
        (map(3, 0, 0xb0000, 0x100000), 0, EEXIST),
        (map(3, 0, 0x40001, 0x1000), 1, EINVAL),
        (map(3, 0, 0x40000, 0x1001), 1, EINVAL),
        (map(3, 8, 0x40000, 0x1000), 1, EINVAL),
        (map(3, 0, 0x40000, 0), 1, EINVAL),
        (map(0, 0, 0x40000, 0x1000), 1, EINVAL),
        (map(0x80, 0, 0x40000, 0x1000), 1, EINVAL),
        (map(3, 0, 0xffff_ffff_ffff_f000, 0x1000), 1, EINVAL),
        (map(3, u64::MAX - 0xfff, 0x40000, 0x1000), 1, EINVAL),
        // Beyond the end of the object: touching it would be a SIGBUS.
        (map(3, 0, 0x40000, 0x20000), 1, EINVAL),
        (map(3, 0xf000, 0x40000, 0x2000), 1, EINVAL),
        (map(3, 0, 0x40000, 0x1000), 2, EINVAL),
        (map(3, 0, 0x40000, 0x1000)[..24].to_vec(), 1, EINVAL),
    ] {
        let with = fds([&memory, &memory]).into_iter().take(with).collect();
        assert_eq!(ask(&mut session, 2, &payload, with), Some(code), "{payload:?}");
    }
    // Not memory at all.
    let (socket, _other) = UnixStream::pair().unwrap();
    assert_eq!(ask(&mut session, 2, &map(3, 0, 0x40000, 0x1000), vec![socket.into()]), Some(EINVAL));
    assert_eq!(toy.memory.view().len(), 2);

    for (payload, code) in [
        (unmap(0, 0x20000, 0x1000), EINVAL),
        (unmap(0, 0x21000, 0x1000), EINVAL),
        (unmap(0, 0x30000, 0x1000), ENOENT),
        (unmap(0, 0x20000, 0), EINVAL),
        (unmap(0, u64::MAX, 2), EINVAL),
        (unmap(1, 0x20000, 0x2000), ENOTSUP),
        (unmap(2, 0x20000, 0x2000), EINVAL),
    ] {
        assert_eq!(ask(&mut session, 3, &payload, Vec::new()), Some(code), "{payload:?}");
    }
    // SPDK sends the descriptor along here too; rust-vmm's client reads the structure back.
    let reply = session.handle(&message(3, &unmap(0, 0x20000, 0x2000)), fds([&memory]));
    assert_eq!(reply.bytes[16..], unmap(0, 0x20000, 0x2000));
    assert_eq!(toy.memory.view().len(), 1);
    assert_eq!(ask(&mut session, 3, &unmap(2, 0, 0), Vec::new()), None);
    assert!(toy.memory.view().is_empty());
    assert_eq!(ask(&mut session, 2, &map(3, 0, 0xc0000, 0x1000), fds([&memory])), None, "all means all");
}

#[test]
fn interrupts_are_assigned_within_the_table_only() {
    let (toy, mut session) = negotiated();
    let set = |flags: u32, index: u32, start: u32, count: u32| words(&[20, flags, index, start, count]);
    let (eventfd, trigger) = (4, 0x20);
    let events = |n: usize| -> Vec<OwnedFd> {
        use std::os::fd::AsFd;
        (0..n).map(|_| EventFd::new().unwrap().as_fd().try_clone_to_owned().unwrap()).collect()
    };
    for (payload, with, code) in [
        (set(eventfd | trigger, 2, 4, 1), 1, EINVAL),
        (set(eventfd | trigger, 2, 3, 2), 2, EINVAL),
        (set(eventfd | trigger, 2, u32::MAX, 2), 2, EINVAL),
        (set(eventfd | trigger, 2, 0, u32::MAX), 0, EINVAL),
        (set(eventfd | trigger, 2, 0, 2), 1, EINVAL),
        (set(eventfd | trigger, 2, 0, 0), 0, EINVAL),
        (set(eventfd | trigger, 0, 0, 1), 1, EINVAL),
        (set(eventfd | trigger, 9, 0, 1), 1, EINVAL),
        (set(eventfd | trigger | 1, 2, 0, 1), 1, EINVAL),
        (set(eventfd, 2, 0, 1), 1, EINVAL),
        (set(eventfd | trigger | 0x100, 2, 0, 1), 1, EINVAL),
        (set(2 | trigger, 2, 0, 4), 0, EINVAL),
        (set(1 | 8, 2, 0, 1), 0, ENOTSUP),
        (set(eventfd | trigger, 2, 0, 1)[..16].to_vec(), 1, EINVAL),
    ] {
        assert_eq!(ask(&mut session, 8, &payload, events(with)), Some(code), "{payload:?}");
    }
    // A pipe or a file is not an eventfd: writing to it could hang the device, or spoil the file.
    let not_an_event = fds([&toy.window]);
    assert_eq!(ask(&mut session, 8, &set(eventfd | trigger, 2, 0, 1), not_an_event), Some(EINVAL));
    assert_eq!(toy.assigned(), [0; 0]);

    assert_eq!(ask(&mut session, 8, &set(eventfd | trigger, 2, 1, 3), events(3)), None);
    assert_eq!(toy.assigned(), [1, 2, 3]);
    // QEMU takes interrupts back like this, of indices that have none as well.
    assert_eq!(ask(&mut session, 8, &set(1 | trigger, 0, 0, 0), Vec::new()), None);
    assert_eq!(toy.assigned(), [1, 2, 3]);
    assert_eq!(ask(&mut session, 8, &set(1 | trigger, 2, 0, 0), Vec::new()), None);
    assert_eq!(toy.assigned(), [0; 0]);
}

#[test]
fn triggering_some_interrupts_signals_those_and_a_full_counter_blocks_nobody() {
    use std::os::fd::AsFd;
    let (toy, mut session) = negotiated();
    let events: Vec<EventFd> = (0..4).map(|_| EventFd::new().unwrap()).collect();
    let with = events.iter().map(|e| e.as_fd().try_clone_to_owned().unwrap()).collect();
    assert_eq!(ask(&mut session, 8, &words(&[20, 0x24, 2, 0, 4]), with), None);
    let mut some = words(&[24, 0x22, 2, 0, 4]);
    some.extend([0, 1, 0, 0xff]);
    assert_eq!(ask(&mut session, 8, &some, Vec::new()), None);
    assert_eq!(events.iter().map(EventFd::drain).collect::<Vec<_>>(), [false, true, false, true]);

    // The client fills the counter, makes writing to it block, and never reads it.
    let full = events[0].as_fd();
    rustix::io::write(full, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    rustix::io::ioctl_fionbio(full, false).unwrap();
    toy.interrupt(0);
}

#[test]
fn region_accesses_stay_within_their_region_and_the_agreed_size() {
    let (toy, mut session) = negotiated();
    let access = |offset: u64, region: u32, count: u32| [longs(&[offset]), words(&[region, count])].concat();
    for (payload, command) in [
        (access(0x4000, 0, 1), 9),
        (access(0x3fff, 0, 2), 9),
        (access(u64::MAX, 0, 2), 9),
        (access(0, 0, u32::MAX), 9),
        (access(0, 0, 0), 9),
        (access(4096, 7, 1), 9),
        (access(u64::MAX - 3, 7, 4), 9),
        (access(0, 1, 4), 9),
        (access(0, 6, 4), 9),
        (access(0, 8, 4), 9),
        (access(0, u32::MAX, 4), 9),
        (access(0, 0, DATA_BYTES_MAX as u32 + 1), 9),
        (access(0, 0, 4), 10),
        ([access(0, 0, 4), vec![0; 3]].concat(), 10),
        ([access(0, 0, 4), vec![0; 5]].concat(), 10),
        ([access(0x3ffe, 0, 4), vec![0; 4]].concat(), 10),
        ([access(4094, 7, 4), vec![0; 4]].concat(), 10),
        (access(0, 0, 4)[..12].to_vec(), 9),
    ] {
        assert_eq!(ask(&mut session, command, &payload, Vec::new()), Some(EINVAL), "{command} {payload:?}");
    }
    let reply = session.handle(&message(10, &[access(0x104, 0, 4), vec![1, 2, 3, 4]].concat()), Vec::new());
    assert_eq!(reply.bytes[16..], access(0x104, 0, 4));
    let reply = session.handle(&message(9, &access(0x102, 0, 8)), Vec::new());
    assert_eq!(reply.bytes[16..], [access(0x102, 0, 8), vec![0, 0, 1, 2, 3, 4, 0, 0]].concat());
    // QEMU's posted write to a doorbell, before it has mapped the page: no reply.
    let mut posted = message(10, &[access(WINDOW, 0, 4), vec![5, 0, 0, 0]].concat());
    posted[8] = 0x10;
    let reply = session.handle(&posted, Vec::new());
    assert!(reply.bytes.is_empty() && !reply.hang_up);
    assert_eq!(toy.window.load_u32(0, Ordering::Acquire), 5);
    // The same, and wrong: no reply either.
    posted[17] = 0xff;
    assert!(session.handle(&posted, Vec::new()).bytes.is_empty());
}

#[test]
fn qemus_many_writes_in_one_message_are_carried_out_in_order() {
    let (toy, mut session) = negotiated();
    let write = |offset: u64, region: u32, count: u32, data: u64| {
        [longs(&[offset]), words(&[region, count]), longs(&[data])].concat()
    };
    let two = [longs(&[2]), write(0x200, 0, 4, 0x1111_1111), write(0x202, 0, 2, 0x2222)].concat();
    let reply = session.handle(&message(15, &two), Vec::new());
    assert_eq!(reply.bytes[16..], longs(&[2]));
    let mut out = [0; 4];
    toy.bar_read(0, 0x200, &mut out).unwrap();
    assert_eq!(out, [0x11, 0x11, 0x22, 0x22]);
    for payload in [
        [longs(&[3]), write(0x200, 0, 4, 0)].concat(),
        [longs(&[u64::MAX]), write(0x200, 0, 4, 0)].concat(),
        [longs(&[1]), write(0x200, 0, 9, 0)].concat(),
        [longs(&[1]), write(0x200, 0, 0, 0)].concat(),
        [longs(&[1]), write(0x3fff, 0, 8, 0)].concat(),
        [longs(&[1]), write(0x200, 0, 4, 0)[..23].to_vec()].concat(),
        vec![0; 7],
    ] {
        assert_eq!(ask(&mut session, 15, &payload, Vec::new()), Some(EINVAL), "{payload:?}");
    }
}

#[test]
fn commands_we_do_not_have_are_refused_and_the_session_goes_on() {
    let (toy, mut session) = negotiated();
    for (command, code) in
        [(0, ENOSYS), (6, ENOTSUP), (11, ENOSYS), (12, ENOSYS), (14, ENOTSUP), (16, ENOSYS)]
    {
        assert_eq!(ask(&mut session, command, &[0; 64], Vec::new()), Some(code), "command {command}");
    }
    assert_eq!(ask(&mut session, 13, &[0], Vec::new()), Some(EINVAL));
    assert_eq!(ask(&mut session, 13, &[], Vec::new()), None);
    assert_eq!(toy.resets.load(Ordering::SeqCst), 1);
}

/// A session that does a bit of everything; the second part says how many descriptors go along.
fn valid_session() -> Vec<(Vec<u8>, usize)> {
    let access = |offset: u64, region: u32, count: u32| [longs(&[offset]), words(&[region, count])].concat();
    vec![
        (message(1, b"\0\0\x01\0{\"capabilities\":{\"max_msg_fds\":8,\"write_multiple\":true}}\0"), 0),
        (message(4, &words(&[16, 0, 0, 0])), 0),
        (message(5, &words(&[4096, 0, 0, 0, 0, 0, 0, 0])), 0),
        (message(7, &words(&[16, 0, 2, 0])), 0),
        (message(2, &[words(&[32, 3]), longs(&[0, 0x10000, 0x4000])].concat()), 1),
        (message(8, &words(&[20, 0x24, 2, 0, 2])), 2),
        (message(9, &access(0, 7, 64)), 0),
        (message(10, &[access(0x10, 0, 8), longs(&[0x10000])].concat()), 0),
        (message(10, &[access(0x18, 0, 8), longs(&[0x11000])].concat()), 0),
        (message(10, &[access(0x20, 0, 4), words(&[64])].concat()), 0),
        (message(15, &[longs(&[1, 0x1000]), words(&[0, 4]), longs(&[1])].concat()), 0),
        (message(3, &[words(&[24, 0]), longs(&[0x10000, 0x4000])].concat()), 0),
        (message(13, &[]), 0),
    ]
}

/// xorshift64*: the same mutations every time.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit
    }
}

#[test]
fn ten_thousand_mutations_of_a_valid_session_neither_panic_nor_leave_anything_behind() {
    use std::os::fd::AsFd;
    let memory = Region::shared("host", 0x4000).unwrap();
    let event = EventFd::new().unwrap();
    let mut random = Random(0x5eed_0000_0000_0001);
    let (mut refused, mut ended) = (0, 0);
    for _ in 0..10_000 {
        let toy = Toy::new();
        let mut session = Session::new(toy.clone()).unwrap();
        let mut messages = valid_session();
        for _ in 0..1 + random.below(4) {
            let nth = random.below(messages.len());
            let (bytes, with) = &mut messages[nth];
            match random.below(6) {
                0 => *with = random.below(4),
                1 => bytes.truncate(random.below(bytes.len() + 1)),
                2 => bytes.extend(std::iter::repeat_n(0xff, random.below(64))),
                _ if bytes.is_empty() => {}
                3 => {
                    let at = random.below(bytes.len());
                    bytes[at] = [0, 0x7f, 0x80, 0xff][random.below(4)];
                }
                _ => {
                    let at = random.below(bytes.len());
                    bytes[at] ^= 1 << random.below(8);
                }
            }
            // Mostly honest about the size, so that what is behind it is reached.
            if bytes.len() >= 16 && random.below(8) > 0 {
                let size = (bytes.len() as u32).to_le_bytes();
                bytes[4..8].copy_from_slice(&size);
            }
        }
        for (bytes, with) in messages {
            let fds = (0..with)
                .map(|_| match bytes.get(2) {
                    Some(8) => event.as_fd().try_clone_to_owned().unwrap(),
                    _ => memory.backing().unwrap().0.try_clone_to_owned().unwrap(),
                })
                .collect();
            let reply = session.handle(&bytes, fds);
            if !reply.bytes.is_empty() && errno(&reply).is_some() {
                refused += 1;
            }
            if reply.hang_up {
                ended += 1;
                break;
            }
        }
        drop(session);
        assert!(toy.memory.view().is_empty());
        assert_eq!(toy.assigned(), [0; 0]);
    }
    // The mutations do reach what they are meant to reach.
    assert!(refused > 1000 && ended > 500, "{refused} refused, {ended} ended");
}

#[test]
fn clients_that_stop_in_the_middle_of_a_message_leave_the_server_working() {
    let served = Served::start();
    let mut lie = SPDK_VERSION.to_vec();
    lie[4] = 255;
    let mut huge = SPDK_VERSION.to_vec();
    huge[4..8].copy_from_slice(&[0xff; 4]);
    let mut tiny = SPDK_VERSION.to_vec();
    tiny[4] = 15;
    for bytes in [&SPDK_VERSION[..1], &SPDK_VERSION[..15], &SPDK_VERSION[..19], &lie, &huge, &tiny] {
        let mut stream = UnixStream::connect(&served.path).unwrap();
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        // The end, or a reset where something was left unread: no answer in either case.
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.is_empty(), "{bytes:?}");
    }
    // In three pieces it is a message like any other.
    let mut stream = UnixStream::connect(&served.path).unwrap();
    for piece in [&SPDK_VERSION[..7], &SPDK_VERSION[7..17], &SPDK_VERSION[17..]] {
        stream.write_all(piece).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let mut header = [0; 16];
    stream.read_exact(&mut header).unwrap();
    assert_eq!(header[..4], [0, 0, 1, 0]);
    // It goes without a word and without having read the answer.
    drop(stream);
    served.wait_detached();
    assert_eq!(served.toy.resets.load(Ordering::SeqCst), 1);
    assert!(unvme_bus::vfio_user::Client::connect(&served.path).is_ok());
}

#[test]
fn clients_that_say_nothing_or_not_all_of_it_do_not_keep_others_away_for_ever() {
    // One never introduces itself, one says a little now and then, one stops after its introduction.
    let introduced = [&SPDK_VERSION[..], &SPDK_VERSION[..4]].concat();
    std::thread::scope(|scope| {
        for (said, goes_on) in [(&[][..], false), (&SPDK_VERSION[..4], true), (&introduced, false)] {
            scope.spawn(move || {
                let served = Served::start();
                let mut first = UnixStream::connect(&served.path).unwrap();
                first.write_all(said).unwrap();
                toy::wait_until("the server takes another client", || {
                    // Five seconds bring fewer bytes than the header still needs.
                    if goes_on {
                        let _ = first.write_all(&[0]);
                    }
                    std::thread::sleep(std::time::Duration::from_millis(700));
                    unvme_bus::vfio_user::Client::connect(&served.path).is_ok()
                });
            });
        }
    });
}

#[test]
fn what_a_client_leaves_mapped_is_taken_back_at_once() {
    /// Counts how often mappings are taken back; everything else is the toy's.
    struct Counting(Arc<Toy>, AtomicUsize);
    impl Dma for Counting {
        fn dma_map(&self, iova: u64, region: &Region, access: DmaAccess) -> Result<(), BusError> {
            self.0.dma_map(iova, region, access)
        }

        fn dma_unmap(&self, iova: u64, length: u64) -> Result<(), BusError> {
            self.1.fetch_add(1, Ordering::SeqCst);
            self.0.dma_unmap(iova, length)
        }
    }

    impl Function for Counting {
        fn config_read(&self, offset: usize, out: &mut [u8]) -> Result<(), BusError> {
            self.0.config_read(offset, out)
        }

        fn config_write(&self, offset: usize, data: &[u8]) -> Result<(), BusError> {
            self.0.config_write(offset, data)
        }

        fn bar(&self, index: usize) -> Result<Option<BarLayout>, BusError> {
            self.0.bar(index)
        }

        fn bar_read(&self, index: usize, offset: u64, out: &mut [u8]) -> Result<(), BusError> {
            self.0.bar_read(index, offset, out)
        }

        fn bar_write(&self, index: usize, offset: u64, data: &[u8]) -> Result<(), BusError> {
            self.0.bar_write(index, offset, data)
        }

        fn vectors(&self) -> u16 {
            self.0.vectors()
        }

        fn set_vector(&self, vector: u16, event: Option<EventFd>) -> Result<(), BusError> {
            self.0.set_vector(vector, event)
        }

        fn reset(&self) -> Result<(), BusError> {
            self.0.reset()
        }
    }

    let page = Region::shared("page", 4096).unwrap();
    let map = |iova: u64| message(2, &[words(&[32, 3]), longs(&[0, iova, 4096])].concat());
    // The first and the last address there are, some between, and memory without a descriptor around them.
    for (with, without) in
        [(&[0, 0x5000, 0x7000, u64::MAX - 0x1fff][..], &[0x1000, 0x6000][..]), (&[0x3000], &[0]), (&[], &[0])]
    {
        let function = Arc::new(Counting(Toy::new(), AtomicUsize::new(0)));
        let mut session = Session::new(function.clone()).unwrap();
        session.handle(&SPDK_VERSION, Vec::new());
        for &iova in with {
            assert_eq!(errno(&session.handle(&map(iova), fds([&page]))), None);
        }
        for &iova in without {
            assert_eq!(errno(&session.handle(&map(iova), Vec::new())), None);
        }
        assert_eq!(function.0.memory.view().len(), with.len());
        drop(session);
        assert!(function.0.memory.view().is_empty());
        assert_eq!(function.1.load(Ordering::SeqCst), with.len().min(1));
    }
}

#[test]
fn surplus_descriptors_are_closed() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (_, mut session) = negotiated();
    let with = vec![theirs.into()];
    assert_eq!(ask(&mut session, 13, &[], with), None);
    let mut ours = ours;
    assert_eq!(ours.read(&mut [0; 1]).unwrap(), 0, "the other end is closed");
}
