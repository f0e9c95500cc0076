//! A server that answers anything. The client neither panics nor hangs, and what it takes for a window is
//! one.
//!
//! Input: messages, each after a byte that says what it is (bit 0 a reply to the next question, bit 1 with a
//! descriptor of memory, bit 2 bytes as they are without a header) and a 16-bit length.
#![no_main]

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::LazyLock;
use std::sync::atomic::Ordering;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use unvme_bus::vfio_user::Client;
use unvme_bus::{Dma, DmaAccess, EventFd, Function, Region};

static WINDOW: LazyLock<Region> = LazyLock::new(|| Region::shared("bar", 0x4000).unwrap());
static MEMORY: LazyLock<Region> = LazyLock::new(|| Region::shared("host", 0x4000).unwrap());
static EVENT: LazyLock<EventFd> = LazyLock::new(|| EventFd::new().unwrap());

/// Says everything at once, and that there is nothing more: the client never waits.
fn speak(server: &UnixStream, data: &[u8]) {
    let (mut data, mut id) = (data, 0_u16);
    while let Some((&[what, low, high], rest)) = data.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes([low, high])).min(rest.len());
        let (payload, rest) = rest.split_at(length);
        data = rest;
        let mut message = Vec::new();
        if what & 4 == 0 {
            let reply = what & 1 != 0;
            let [id_low, id_high] = id.to_le_bytes();
            id = id.wrapping_add(u16::from(reply));
            message.extend([id_low, id_high, 11, 0]);
            message.extend((16 + payload.len() as u32).to_le_bytes());
            message.extend([u8::from(reply), 0, 0, 0, 0, 0, 0, 0]);
        }
        message.extend(payload);
        let fds = [WINDOW.backing().unwrap().0];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if what & 2 != 0 {
            control.push(SendAncillaryMessage::ScmRights(&fds));
        }
        if !message.is_empty()
            && sendmsg(server, &[IoSlice::new(&message)], &mut control, SendFlags::DONTWAIT).is_err()
        {
            break;
        }
    }
    server.shutdown(Shutdown::Write).unwrap();
}

fuzz_target!(|data: &[u8]| {
    let (ours, theirs) = UnixStream::pair().unwrap();
    speak(&theirs, data);
    let Ok(client) = Client::from_stream(ours.into(), Duration::from_secs(5)) else { return };
    for index in 0..6 {
        let Some(layout) = client.bar(index).unwrap() else { continue };
        let mut end = 0;
        for window in &layout.windows {
            assert!(window.offset >= end);
            end = window.offset + window.region.len() as u64;
            window.region.store_u32(window.region.len() - 4, 1, Ordering::Release);
        }
        assert!(end <= layout.bytes);
        let mut word = [0; 4];
        let _ = client.bar_read(index, layout.bytes.saturating_sub(4), &mut word);
    }
    let _ = client.config_read(0, &mut [0; 64]);
    let _ = client.dma_map(0x10000, &MEMORY, DmaAccess::READ_WRITE);
    let _ = client.set_vector(0, Some(EVENT.clone()));
    let _ = client.is_gone();
    let _ = client.bar_write(0, 0, &[0; 8]);
    let _ = client.dma_unmap(0, 1 << 32);
    let _ = client.reset();
});
