//! What a target sends, without a target: for the fuzz target `tcp_host`.

use std::sync::Arc;

use unvme_bus::{AddressSpace, DmaPool};
use unvme_spec::{Sqe, nvm};

use super::TcpDigests;
use super::link::{Link, LinkConfig, Manner};
use super::pdu::{self, Agreement};
use crate::Error;
use crate::command::Payload;

/// Bytes of the commands that are outstanding: a read and a write of each.
const TRANSFERS: [usize; 4] = [512, 4096, 20_000, 64 << 10];
/// Bytes that arrive at a time, when the input says that they come in pieces.
const PIECE_BYTES: usize = 7;

/// Takes `input` as what a target sends to a queue with reads and writes outstanding. Its first byte says
/// what was agreed on (bit 0 header digests, bit 1 data digests, bits 3:2 alignment) and whether the rest
/// comes in pieces (bit 7). Panics: when a command does not end exactly once.
pub fn tcp_host(input: &[u8]) {
    let Some((&how, rest)) = input.split_first() else { return };
    if let Some(greeting) = rest.first_chunk() {
        let _ = pdu::ic_resp(greeting, TcpDigests { header: how & 1 != 0, data: how & 2 != 0 });
    }
    let agreed = Agreement {
        header_digest: how & 1 != 0,
        data_digest: how & 2 != 0,
        alignment: 4 << (how >> 2 & 3),
        data_bytes_max: 4096,
    };
    let mut link = busy(agreed).expect("memory for a few buffers");
    let mut ended = [0; 2 * TRANSFERS.len()];
    let piece = if how & 0x80 != 0 { PIECE_BYTES } else { rest.len().max(1) };
    let mut parts = rest.chunks(piece);
    while let Some(part) = parts.next()
        && link.pretend_received(part, &mut ended).is_ok()
    {}
    link.close();
    link.abort_all();
    take(&mut link, &mut ended);
    assert_eq!((ended, link.outstanding()), ([1; 2 * TRANSFERS.len()], 0), "every command ends once");
}

fn take(link: &mut Link, ended: &mut [u32]) {
    while let Some(completion) = link.pop() {
        ended[completion.token as usize] += 1;
    }
}

/// A link whose commands the target has.
fn busy(agreed: Agreement) -> Result<Link, Error> {
    let pool = DmaPool::new(Arc::new(AddressSpace::new()));
    let mut link = Link::new(&LinkConfig {
        depth: 2 * TRANSFERS.len() as u16,
        is_admin: false,
        long_keys: false,
        pool: pool.id(),
        transfer_bytes_max: 1 << 20,
    });
    for (at, bytes) in TRANSFERS.into_iter().enumerate() {
        for (token, opcode) in [(2 * at, nvm::opcode::READ), (2 * at + 1, nvm::opcode::WRITE)] {
            let sqe = Sqe { opcode, nsid: 1, ..Sqe::default() };
            let manner = Manner { token: token as u64, ..Manner::default() };
            link.submit(sqe, Some(Payload::whole(pool.alloc(bytes)?)), manner)?;
        }
    }
    link.pretend_sent(agreed);
    Ok(link)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Response Capsules of the first commands, whose identifiers are 1000h and so on, R2Ts and data; in any
    /// order and with any byte wrong.
    fn pdus() -> Vec<Vec<u8>> {
        let response = |cid: u16| {
            let mut pdu = vec![5, 0, 24, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            pdu[20..22].copy_from_slice(&cid.to_le_bytes());
            pdu
        };
        let mut ask = vec![9, 0, 24, 0, 24, 0, 0, 0, 5, 0x10, 1, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0];
        let mut data = vec![7, 12, 24, 24, 24, 2, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0];
        data.extend([0x5a; 512]);
        let mut all = vec![ask.clone(), data, response(0x1001), response(0x1002)];
        ask[8] = 7;
        all.push(ask);
        all
    }

    #[test]
    fn whatever_a_target_sends_every_command_ends_once() {
        let mut seed = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = |below: usize| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed % below as u64) as usize
        };
        let pdus = pdus();
        for _ in 0..400 {
            let mut input = vec![[0, 0, 0x80, 0x83][random(4)]];
            for _ in 0..random(6) {
                input.extend_from_slice(&pdus[random(pdus.len())]);
            }
            for _ in 0..random(3) {
                let at = random(input.len());
                input[at] = random(256) as u8;
            }
            tcp_host(&input);
        }
    }
}
