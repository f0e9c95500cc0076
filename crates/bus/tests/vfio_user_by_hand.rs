//! Our client on a server played by hand, byte by byte.
//!
//! The layouts are those of libvfio-user's docs/vfio-user.rst.

mod toy;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use toy::wait_until;
use unvme_bus::vfio_user::Client;
use unvme_bus::{BusError, Dma, DmaAccess, Function, Region};

/// Answers VERSION and the questions of discovery as a device with one BAR of 4 KiB and no interrupts would,
/// by hand.
fn answer_discovery(stream: &mut UnixStream) {
    // VERSION, DEVICE_GET_INFO, six BARs, configuration space; num_irqs is 0, so nobody asks about
    // interrupts.
    for _ in 0..9 {
        let mut header = [0; 16];
        stream.read_exact(&mut header).unwrap();
        let size = u32::from_le_bytes(header[4..8].try_into().unwrap()) as usize;
        let mut payload = vec![0; size - 16];
        stream.read_exact(&mut payload).unwrap();
        let reply: Vec<u8> = match header[2] {
            1 => [&[0, 0, 1, 0][..], br#"{"capabilities":{}}"#, &[0]].concat(),
            4 => [16_u32, 3, 9, 0].iter().flat_map(|v| v.to_le_bytes()).collect(),
            5 => {
                let size: u64 = if payload[8] == 0 || payload[8] == 7 { 4096 } else { 0 };
                let mut info = [0; 32];
                info[0] = 32;
                info[4] = 3;
                info[16..24].copy_from_slice(&size.to_le_bytes());
                info.to_vec()
            }
            other => panic!("command {other}"),
        };
        let mut message = header.to_vec();
        message[4..8].copy_from_slice(&(16 + reply.len() as u32).to_le_bytes());
        message[8] = 1;
        message.extend(reply);
        stream.write_all(&message).unwrap();
    }
}

fn by_hand() -> (Arc<Client>, UnixStream) {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let server = std::thread::spawn(move || {
        answer_discovery(&mut theirs);
        theirs
    });
    let client = Client::from_stream(ours.into(), Duration::from_secs(1)).unwrap();
    (client, server.join().unwrap())
}

#[test]
fn a_server_may_read_and_write_mapped_memory_by_message() {
    let (client, mut server) = by_hand();
    let memory = Region::shared("host", 8192).unwrap();
    memory.write(0, &[0x5a; 8192]);
    let mut acknowledge = server.try_clone().unwrap();
    let mapper = std::thread::spawn(move || {
        for _ in 0..2 {
            let mut message = [0; 48];
            acknowledge.read_exact(&mut message).unwrap();
            acknowledge.write_all(&[message[0], 0, 2, 0, 16, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]).unwrap();
        }
    });
    client.dma_map(0x10000, &memory.slice(0, 4096), DmaAccess::READ_WRITE).unwrap();
    client.dma_map(0x11000, &memory.slice(4096, 4096), DmaAccess::READ_ONLY).unwrap();
    mapper.join().unwrap();

    // docs/vfio-user.rst, VFIO_USER_DMA_READ: header, address (8), count (8). Across the edge of two ranges.
    let read = [
        0x34, 0x12, 11, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xfc, 0x0f, 1, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0,
        0, 0, 0,
    ];
    // VFIO_USER_DMA_WRITE: the same and the data.
    let write = [
        0x35, 0x12, 12, 0, 36, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x00, 0x00, 1, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0,
        0, 0, 0, 1, 2, 3, 4,
    ];
    // To read-only memory.
    let mut forbidden = write;
    forbidden[17] = 0x10;
    // A count that is not the number of bytes that follow.
    let mut lie = write;
    lie[24] = 5;
    for message in [&read[..], &write, &forbidden, &lie] {
        server.write_all(message).unwrap();
    }
    assert!(!client.is_gone());

    let mut reply = [0; 40];
    server.read_exact(&mut reply).unwrap();
    assert_eq!(reply[..12], [0x34, 0x12, 11, 0, 40, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(reply[32..], [0x5a; 8]);
    let mut reply = [0; 32];
    server.read_exact(&mut reply).unwrap();
    assert_eq!(reply[..12], [0x35, 0x12, 12, 0, 32, 0, 0, 0, 1, 0, 0, 0]);
    let mut four = [0; 4];
    memory.read(0, &mut four);
    assert_eq!(four, [1, 2, 3, 4]);
    for errno in [14, 22] {
        let mut reply = [0; 16];
        server.read_exact(&mut reply).unwrap();
        assert_eq!(reply, [0x35, 0x12, 12, 0, 16, 0, 0, 0, 0x21, 0, 0, 0, errno, 0, 0, 0]);
    }
}

#[test]
fn a_server_that_does_not_answer_is_a_timeout_and_its_late_answer_is_no_answer_to_the_next_question() {
    let (client, mut server) = by_hand();
    let mut data = [0; 4];
    let timeout = client.bar_read(0, 0, &mut data);
    assert!(matches!(timeout, Err(BusError::Timeout { milliseconds: 1000, .. })), "{timeout:?}");
    assert!(!client.is_gone());
    let mut asked = [0; 32];
    server.read_exact(&mut asked).unwrap();
    let answer = |asked: &[u8; 32], value: u8| {
        let mut reply = [0; 36];
        reply[..32].copy_from_slice(asked);
        (reply[4], reply[8]) = (36, 1);
        reply[32..].fill(value);
        reply
    };
    let late = answer(&asked, 0xee);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            server.read_exact(&mut asked).unwrap();
            server.write_all(&late).unwrap();
            server.write_all(&answer(&asked, 0x11)).unwrap();
        });
        client.bar_read(0, 0, &mut data).unwrap();
    });
    assert_eq!(data, [0x11; 4]);
    // The same answer once more belongs to no question.
    server.write_all(&late).unwrap();
    wait_until("the client gives the server up", || client.is_gone());
}

#[test]
fn a_server_that_answers_nonsense_is_given_up() {
    let wrong_size = [9, 0, 9, 0, 3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    let too_long = [9, 0, 9, 0, 0xff, 0xff, 0xff, 0x7f, 1, 0, 0, 0, 0, 0, 0, 0];
    let wrong_id = [8, 0, 9, 0, 16, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    let no_data = [9, 0, 9, 0, 16, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    let no_type = [9, 0, 9, 0, 16, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0];
    for nonsense in [wrong_size, too_long, wrong_id, no_data, no_type] {
        let (client, mut server) = by_hand();
        server.write_all(&nonsense).unwrap();
        let outcome = client.bar_read(0, 0, &mut [0; 4]);
        assert!(matches!(outcome, Err(BusError::Protocol(_))), "{nonsense:?}: {outcome:?}");
        assert!(client.is_gone());
    }
    let (client, mut server) = by_hand();
    // Half a header, then the end.
    server.write_all(&wrong_id[..7]).unwrap();
    drop(server);
    assert!(matches!(client.bar_read(0, 0, &mut [0; 4]), Err(BusError::Gone(_))));
}

#[test]
fn an_error_of_the_server_is_the_errno_it_sent() {
    let (client, mut server) = by_hand();
    server.write_all(&[9, 0, 13, 0, 16, 0, 0, 0, 0x21, 0, 0, 0, 95, 0, 0, 0]).unwrap();
    let Err(BusError::Os { source, what }) = client.reset() else { panic!("an error is expected") };
    assert_eq!(source.raw_os_error(), Some(95));
    assert!(what.contains("DEVICE_RESET"), "{what}");
    assert!(!client.is_gone());

    // A range the server refused is not mapped, and can be offered again.
    let page = Region::shared("page", 4096).unwrap();
    server.write_all(&[10, 0, 2, 0, 16, 0, 0, 0, 0x21, 0, 0, 0, 17, 0, 0, 0]).unwrap();
    let refused = client.dma_map(0x10000, &page, DmaAccess::READ_WRITE);
    assert!(matches!(refused, Err(BusError::Os { .. })), "{refused:?}");
    server.write_all(&[11, 0, 2, 0, 16, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]).unwrap();
    client.dma_map(0x10000, &page, DmaAccess::READ_WRITE).unwrap();
}

#[test]
fn a_server_that_asks_without_a_pause_does_not_keep_a_caller_beyond_its_time() {
    const QUESTIONS: usize = 100;
    const BYTES: usize = 64 << 10;
    let (client, mut server) = by_hand();
    let memory = Region::shared("host", BYTES).unwrap();
    server.write_all(&[9, 0, 2, 0, 16, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]).unwrap();
    client.dma_map(0x10000, &memory, DmaAccess::READ_ONLY).unwrap();
    server.read_exact(&mut [0; 48]).unwrap();
    // DMA_READ of all of it, many times; each answer is taken after 50 ms, all of them after five times
    // the second of a call.
    let question =
        [1, 0, 11, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0];
    server.write_all(&question.repeat(QUESTIONS)).unwrap();
    let reader = std::thread::spawn(move || {
        let mut call = [0; 32];
        server.read_exact(&mut call).unwrap();
        assert_eq!(call[2], 9, "the call that waits is a REGION_READ");
        let mut answer = vec![0; 32 + BYTES];
        (0..)
            .take_while(|_| {
                std::thread::sleep(Duration::from_millis(50));
                server.read_exact(&mut answer).is_ok()
            })
            .count()
    });
    let outcome = client.bar_read(0, 0, &mut [0; 4]);
    assert!(outcome.is_err());
    drop(client);
    let answers = reader.join().unwrap();
    assert!((1..QUESTIONS / 2).contains(&answers), "{answers} answers while a call waited");
}

#[test]
fn a_server_that_wants_ever_more_room_for_an_answer_is_given_up() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let server = std::thread::spawn(move || {
        let mut questions = 0;
        let mut header = [0; 16];
        while theirs.read_exact(&mut header).is_ok() {
            let size = u32::from_le_bytes(header[4..8].try_into().unwrap()) as usize;
            let mut payload = vec![0; size - 16];
            theirs.read_exact(&mut payload).unwrap();
            let reply: Vec<u8> = match header[2] {
                1 => [&[0, 0, 1, 0][..], br#"{"capabilities":{}}"#, &[0]].concat(),
                4 => [16_u32, 3, 9, 0].iter().flat_map(|v| v.to_le_bytes()).collect(),
                _ => {
                    questions += 1;
                    let more = u32::from_le_bytes(payload[..4].try_into().unwrap()) + 1;
                    [&more.to_le_bytes()[..], &[0; 28]].concat()
                }
            };
            let mut message = header.to_vec();
            message[4..8].copy_from_slice(&(16 + reply.len() as u32).to_le_bytes());
            message[8] = 1;
            message.extend(reply);
            theirs.write_all(&message).unwrap();
        }
        questions
    });
    let outcome = Client::from_stream(ours.into(), Duration::from_secs(60));
    assert!(matches!(outcome, Err(BusError::Protocol(_))), "{outcome:?}");
    assert_eq!(server.join().unwrap(), 2, "asked, and asked once more");
}
