//! Wrong answers to commands.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use unvme_driver::Error;
use unvme_spec::Status;

use crate::target::{Capsule, IN_CAPSULE_BYTES, Next, Peer, Scripted, pattern};
use crate::{all, next, queue, read, write};

#[test]
fn reads_and_writes_of_every_size_arrive_whole() {
    let target = Scripted::start(|peer, capsule| {
        if peer.qid > 0 && capsule.opcode() == 0x01 {
            let data = peer.fetch(capsule).expect("data");
            let is_right = data.len() == capsule.bytes() as usize
                && data.iter().all(|byte| *byte == capsule.dword(10) as u8);
            let answer = peer.response(capsule.cid(), u16::from(!is_right), 0);
            peer.send(&answer);
            return Next::Done;
        }
        Next::Honest
    });
    let controller = target.open();
    let mut queue = queue(&controller);
    for (block, bytes) in
        [512, IN_CAPSULE_BYTES, IN_CAPSULE_BYTES + 4, 16 << 10, 100_000, 1 << 20].into_iter().enumerate()
    {
        write(&controller, &mut queue, block as u32, bytes);
        let (completion, errors) = next(&mut queue);
        assert!(completion.status.is_success() && errors.is_empty(), "write of {bytes}: {errors:?}");
        read(&controller, &mut queue, block as u32, bytes);
        let (completion, errors) = next(&mut queue);
        assert!(completion.status.is_success() && errors.is_empty(), "read of {bytes}: {errors:?}");
        assert_eq!(all(&completion), Some(block as u8 ^ 0xa5), "read of {bytes}");
    }
}

/// A read, or a write of `bytes`, that is answered by `answer`: the queue reports that the target breaks the
/// protocol, no command succeeds, and the next association works.
#[track_caller]
fn breaks(opcode: u8, bytes: usize, answer: fn(&mut Peer, &Capsule)) {
    let target = Scripted::start(move |peer, capsule| {
        if peer.qid > 0 && peer.association == 1 && capsule.opcode() == opcode {
            answer(peer, capsule);
            return Next::Done;
        }
        Next::Honest
    });
    let controller = target.open();
    let mut queue = queue(&controller);
    let submit = if opcode == 2 { read } else { write };
    submit(&controller, &mut queue, 3, bytes);
    let (completion, mut errors) = next(&mut queue);
    assert_eq!(completion.status, Status::ABORTED_BY_HOST, "{errors:?}");
    assert!(completion.buf.is_some(), "nobody else can write it");
    if errors.is_empty() {
        errors.extend(queue.wait(std::time::Duration::ZERO).err());
    }
    assert!(matches!(errors[..], [Error::Protocol(_)]), "{errors:?}");
    submit(&controller, &mut queue, 4, bytes);
    let (completion, errors) = next(&mut queue);
    assert!(completion.status.is_success(), "after a reconnection: {errors:?}");
    assert_eq!(target.associations(), 2);
}

#[test]
fn data_beyond_the_end_is_an_error() {
    breaks(2, 4096, |peer, capsule| {
        let answer = peer.data(capsule.cid(), 4, 0, &[1; 4100]);
        peer.send(&answer);
    });
}

#[test]
fn data_out_of_order_is_an_error() {
    breaks(2, 4096, |peer, capsule| {
        let answer = peer.data(capsule.cid(), 4, 2048, &[1; 2048]);
        peer.send(&answer);
    });
}

#[test]
fn data_that_comes_twice_is_an_error() {
    breaks(2, 4096, |peer, capsule| {
        let answer = [peer.data(capsule.cid(), 0, 0, &[1; 2048]), peer.data(capsule.cid(), 4, 0, &[1; 2048])];
        peer.send(&answer.concat());
    });
}

#[test]
fn a_success_after_half_of_the_data_is_an_error() {
    breaks(2, 4096, |peer, capsule| {
        let answer = [peer.data(capsule.cid(), 4, 0, &[1; 2048]), peer.response(capsule.cid(), 0, 0)];
        peer.send(&answer.concat());
    });
}

#[test]
fn a_success_while_more_data_was_to_come_is_an_error() {
    breaks(2, 4096, |peer, capsule| {
        let answer = [peer.data(capsule.cid(), 0, 0, &[1; 4096]), peer.response(capsule.cid(), 0, 0)];
        peer.send(&answer.concat());
    });
}

#[test]
fn a_success_flag_without_the_last_pdu_is_an_error() {
    breaks(2, 4096, |peer, capsule| {
        let answer = peer.data(capsule.cid(), 8, 0, &[1; 4096]);
        peer.send(&answer);
    });
}

#[test]
fn a_success_without_any_data_is_an_error() {
    breaks(2, 4096, |peer, capsule| {
        let answer = peer.response(capsule.cid(), 0, 0);
        peer.send(&answer);
    });
}

#[test]
fn a_completion_of_a_command_that_is_not_outstanding_is_an_error() {
    breaks(2, 4096, |peer, capsule| {
        let answer = peer.response(capsule.cid() ^ 0x0001, 0, 0);
        peer.send(&answer);
    });
    breaks(2, 4096, |peer, capsule| {
        let answer = peer.response(capsule.cid() ^ 0x1000, 0, 0);
        peer.send(&answer);
    });
    breaks(2, 4096, |peer, _| {
        let answer = peer.response(0xffff, 0, 0);
        peer.send(&answer);
    });
}

#[test]
fn data_for_a_command_that_is_not_outstanding_is_an_error() {
    breaks(2, 4096, |peer, capsule| {
        let answer = peer.data(capsule.cid() ^ 0x1000, 4, 0, &[1; 4096]);
        peer.send(&answer);
    });
}

#[test]
fn data_for_a_write_is_an_error() {
    breaks(1, 4096, |peer, capsule| {
        let answer = peer.data(capsule.cid(), 12, 0, &[1; 4096]);
        peer.send(&answer);
    });
}

#[test]
fn an_r2t_that_asks_for_too_much_is_an_error() {
    breaks(1, 8192, |peer, capsule| {
        let answer = peer.r2t(capsule.cid(), 1, 0, 8196);
        peer.send(&answer);
    });
    breaks(1, 8192, |peer, capsule| {
        let answer = peer.r2t(capsule.cid(), 1, u32::MAX, 8192);
        peer.send(&answer);
    });
    breaks(1, 8192, |peer, capsule| {
        let answer = peer.r2t(capsule.cid(), 1, 0, 0);
        peer.send(&answer);
    });
}

#[test]
fn an_r2t_for_a_read_or_for_data_in_the_capsule_is_an_error() {
    breaks(2, 8192, |peer, capsule| {
        let answer = peer.r2t(capsule.cid(), 1, 0, 8192);
        peer.send(&answer);
    });
    breaks(1, 4096, |peer, capsule| {
        let answer = peer.r2t(capsule.cid(), 1, 0, 4096);
        peer.send(&answer);
    });
}

#[test]
fn an_r2t_that_asks_for_the_same_again_is_an_error() {
    breaks(1, 8192, |peer, capsule| {
        let answer = [peer.r2t(capsule.cid(), 1, 0, 4096), peer.r2t(capsule.cid(), 2, 2048, 4096)];
        peer.send(&answer.concat());
    });
}

#[test]
fn more_r2ts_at_a_time_than_were_allowed_are_an_error() {
    // So much data that none of it can have been sent when the last of them is read.
    breaks(1, 64 << 20, |peer, capsule| {
        let each = 8 << 20;
        let answer: Vec<u8> = (0..8u32).flat_map(|i| peer.r2t(capsule.cid(), 1, i * each, each)).collect();
        peer.send(&answer);
        std::thread::sleep(std::time::Duration::from_millis(300));
    });
}

#[test]
fn a_success_without_the_data_of_a_write_is_an_error() {
    breaks(1, 8192, |peer, capsule| {
        let answer = peer.response(capsule.cid(), 0, 0);
        peer.send(&answer);
    });
}

#[test]
fn headers_that_make_no_sense_are_errors() {
    breaks(2, 4096, |peer, _| peer.send(&[0x08; 8]));
    // A Response Capsule with a header of 32 bytes, one of 28 in all, and data that begins within its header.
    breaks(2, 4096, |peer, _| peer.send(&[5, 0, 32, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
    breaks(2, 4096, |peer, capsule| {
        let mut answer = peer.response(capsule.cid(), 0, 0);
        answer[4] = 28;
        peer.send(&answer);
    });
    breaks(2, 4096, |peer, capsule| {
        let mut answer = peer.data(capsule.cid(), 4, 0, &[1; 4096]);
        answer[3] = 23;
        peer.send(&answer);
    });
    breaks(2, 4096, |peer, capsule| {
        let mut answer = peer.data(capsule.cid(), 4, 0, &[1; 4096]);
        answer[5] += 1;
        peer.send(&answer);
    });
    // Digests nobody has agreed to.
    breaks(2, 4096, |peer, capsule| {
        let mut answer = peer.response(capsule.cid(), 0, 0);
        answer[1] = 1;
        peer.send(&answer);
    });
}

#[test]
fn a_command_that_fails_early_gives_its_buffer_back_once() {
    let count = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&count);
    let target = Scripted::start(move |peer, capsule| {
        if peer.qid > 0 && capsule.opcode() == 0x01 && seen.fetch_add(1, Ordering::SeqCst) == 0 {
            // It is asked for a part of the data, and before that is sent the command has ended.
            let answer =
                [peer.r2t(capsule.cid(), 1, 0, 4096), peer.response(capsule.cid(), 0x80, 0)].concat();
            peer.send(&answer);
            return Next::Done;
        }
        Next::Honest
    });
    let controller = target.open();
    let mut queue = queue(&controller);
    write(&controller, &mut queue, 1, 8192);
    let (completion, errors) = next(&mut queue);
    assert_eq!((completion.status, errors.len()), (Status::LBA_OUT_OF_RANGE, 0));
    assert_eq!(all(&completion), Some(1));
    assert_eq!(queue.outstanding(), 0);
    read(&controller, &mut queue, 9, 4096);
    assert_eq!(all(&next(&mut queue).0), Some(9 ^ 0xa5), "the connection goes on");
    assert_eq!(target.associations(), 1);
}

#[test]
fn answers_byte_by_byte_and_all_at_once_are_the_same() {
    let target = Scripted::start(|peer, capsule| {
        if peer.qid > 0 && capsule.opcode() == 0x02 {
            let data = pattern(capsule);
            let half = data.len() / 2;
            let answer = [
                peer.data(capsule.cid(), 0, 0, &data[..half]),
                peer.data(capsule.cid(), 12, half as u32, &data[half..]),
            ]
            .concat();
            if capsule.dword(10) == 0 {
                for byte in answer.chunks(1) {
                    peer.send(byte);
                }
            } else {
                peer.send(&answer);
            }
            return Next::Done;
        }
        Next::Honest
    });
    let controller = target.open();
    let mut queue = queue(&controller);
    for block in [0, 1] {
        read(&controller, &mut queue, block, 1024);
        let (completion, errors) = next(&mut queue);
        assert!(completion.status.is_success() && errors.is_empty(), "{errors:?}");
        assert_eq!(all(&completion), Some(block as u8 ^ 0xa5));
    }
}
