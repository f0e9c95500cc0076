//! A client that sends anything, with any descriptors. The server neither panics nor keeps anything of it.
//!
//! Input: messages, each after a byte that says what goes along (bits 1:0 how many descriptors, bit 2
//! eventfds instead of memory, bit 3 leave the size in the header as it is) and a 16-bit length.
#![no_main]

use std::os::fd::{AsFd, OwnedFd};
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use unvme_bus::vfio_user::Session;
use unvme_bus::{EventFd, Region};

#[path = "../../crates/bus/tests/toy/function.rs"]
#[allow(dead_code)]
mod toy;

static MEMORY: LazyLock<Region> = LazyLock::new(|| Region::shared("host", 0x4000).unwrap());
static EVENT: LazyLock<EventFd> = LazyLock::new(|| EventFd::new().unwrap());

fn descriptor(event: bool) -> OwnedFd {
    let fd = if event { EVENT.as_fd() } else { MEMORY.backing().unwrap().0 };
    fd.try_clone_to_owned().unwrap()
}

fuzz_target!(|data: &[u8]| {
    let toy = toy::Toy::new();
    let mut session = Session::new(toy.clone()).unwrap();
    let mut data = data;
    while let Some((&[what, low, high], rest)) = data.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes([low, high])).min(rest.len());
        let (message, rest) = rest.split_at(length);
        data = rest;
        let mut message = message.to_vec();
        if what & 8 == 0 && message.len() >= 16 {
            let size = (message.len() as u32).to_le_bytes();
            message[4..8].copy_from_slice(&size);
        }
        let fds = (0..what & 3).map(|_| descriptor(what & 4 != 0)).collect();
        let reply = session.handle(&message, fds);
        if !reply.bytes.is_empty() {
            let size = u32::from_le_bytes(reply.bytes[4..8].try_into().unwrap());
            assert_eq!(size as usize, reply.bytes.len());
            assert_eq!(reply.bytes[..4], message[..4], "the message ID and the command are repeated");
        }
        if reply.hang_up {
            break;
        }
    }
    drop(session);
    assert!(toy.memory.view().is_empty());
    assert!(toy.assigned().is_empty());
});
