//! From a finished operation to the program's callback.
//!
//! The token of an operation is the address of its `kv_pair` (or `kv_iterate`, or [`BlockIo`]), all of which
//! are aligned to 8 bytes, and in the three low bits what is to be done when it has finished. So nothing is
//! allocated or looked up between a submission and its callback.
// UNSAFETY: the way back from a token to what it stands for, and calling the program.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use sdk::DmaBuf;
use unvme_guide::config::SsdType;
use unvme_guide::session::{Finished, Outcome};

use crate::abi::{Callback, KvIterate, KvPair};
use crate::boundary;
use crate::memory;
use crate::pair::{Iteration, Pair};
use crate::result::{Code, Failure};
use crate::session::in_callback;

/// What is to be done with a finished operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Token {
    Store = 0,
    Retrieve = 1,
    Delete = 2,
    Exist = 3,
    IterateRead = 4,
    Block = 5,
}

const KIND_MASK: u64 = 7;

impl Token {
    /// The token of an operation whose structure is at `address`, a multiple of 8.
    pub(crate) fn of(self, address: u64) -> u64 {
        address | self as u64
    }

    fn parse(token: u64) -> Option<(Self, usize)> {
        let kind = match token & KIND_MASK {
            0 => Self::Store,
            1 => Self::Retrieve,
            2 => Self::Delete,
            3 => Self::Exist,
            4 => Self::IterateRead,
            5 => Self::Block,
            _ => return None,
        };
        Some((kind, (token & !KIND_MASK) as usize))
    }
}

/// A callback of `unvme.h`.
pub(crate) type BlockCallback = unsafe extern "C" fn(*mut c_void, c_int);

/// An asynchronous operation of `unvme.h`.
#[repr(align(8))]
pub(crate) struct BlockIo {
    /// Where what is read goes; null for a write.
    pub(crate) buffer: *mut u8,
    pub(crate) bytes: usize,
    pub(crate) callback: BlockCallback,
    pub(crate) arg: *mut c_void,
}

impl BlockIo {
    /// Its token, which owns it until it has finished.
    pub(crate) fn into_token(self) -> u64 {
        Token::Block.of(Box::into_raw(Box::new(self)) as u64)
    }

    /// Takes an operation back that was not accepted.
    ///
    /// # Safety
    /// `token` is of [`BlockIo::into_token`], and nobody else has it.
    pub(crate) unsafe fn take_back(token: u64) -> Box<Self> {
        // SAFETY: the caller's promise: it came from a box, and is turned into one once.
        unsafe { Box::from_raw((token & !KIND_MASK) as usize as *mut Self) }
    }
}

/// The session's handler: gives the outcome of an operation to the program.
pub(crate) fn finish(kind: SsdType, finished: Finished) {
    let Finished { token, outcome, .. } = finished;
    let Some((what, address)) = Token::parse(token) else { return };
    // A panic here must not end the thread that serves everybody else.
    boundary::quietly((), || match what {
        Token::IterateRead => iterate(address, &outcome),
        Token::Block => block(token, &outcome),
        _ => pair(what, kind, address, outcome),
    });
}

/// Remembers how the operation ended, for `unvme_last_status()` in the callback; returns it in
/// `enum kv_result`.
fn remember(outcome: &Outcome) -> Code {
    let code = Code::of_status(outcome.status);
    if code == Code::SUCCESS {
        boundary::succeeded();
    } else {
        boundary::failed(Failure::of_status(outcome.status, code));
    }
    code
}

fn pair(what: Token, kind: SsdType, address: usize, mut outcome: Outcome) {
    // SAFETY: the program leaves the pair and its value alone until its callback, which is called below.
    let mut pair = unsafe { Pair::ended(address as *mut KvPair) };
    let code = remember(&outcome);
    // The value itself went with the command: what was read is where it belongs.
    let is_lent = |buf: &mut DmaBuf| buf.region().as_ptr().cast_const() == pair.value_address();
    let lent = outcome.data.take_if(is_lent);
    let in_place = lent.is_some();
    if let Some(buf) = lent {
        memory::give_back(buf);
    }
    let (result, status) = match kind {
        SsdType::Kv => (outcome.result as u32, code.0 as u32),
        // Type and code apart, so that both arrive.
        SsdType::Lba => (u32::from(outcome.status.kind().raw() >> 8), outcome.status.code().into()),
    };
    match what {
        Token::Retrieve if code == Code::SUCCESS => {
            let skip = if kind == SsdType::Lba { pair.offset() } else { 0 };
            let copied =
                if in_place { outcome.data_bytes } else { outcome.copy_data(pair.buffer(skip)) } as u32;
            let actual = match kind {
                SsdType::Kv => u32::try_from(outcome.value_bytes).unwrap_or(u32::MAX),
                SsdType::Lba => copied,
            };
            pair.answer(copied, actual);
        }
        Token::Retrieve => pair.answer(0, 0),
        Token::Store if code == Code::SUCCESS && kind == SsdType::Kv => pair.answer_actual(pair.length()),
        _ => {}
    }
    // The pair is not touched after this: the callback may free it.
    call(pair.callback(), result, status);
}

fn iterate(address: usize, outcome: &Outcome) {
    // SAFETY: as in `pair`, for the iterate structure.
    let Ok(mut iteration) = (unsafe { Iteration::copy(address as *mut KvIterate) }) else { return };
    let mut code = remember(outcome);
    let mut bytes = 0;
    if matches!(code, Code::SUCCESS | Code::ITERATE_READ_EOF) {
        bytes = iteration.buffer().map_or(0, |buffer| outcome.copy_data(buffer)) as u32;
    } else {
        code = Code::IO;
    }
    iteration.answer(bytes);
    call(iteration.callback(), bytes, code.0 as u32);
}

fn block(token: u64, outcome: &Outcome) {
    // SAFETY: it is a token of `into_token`, and an operation finishes once.
    let io = unsafe { BlockIo::take_back(token) };
    let code = remember(outcome);
    if code == Code::SUCCESS && !io.buffer.is_null() {
        // SAFETY: the program leaves a buffer of so many bytes alone until its callback.
        outcome.copy_data(unsafe { std::slice::from_raw_parts_mut(io.buffer, io.bytes) });
    }
    let BlockIo { callback, arg, .. } = *io;
    // SAFETY: a function of the type that unvme.h declares, with the argument that belongs to it.
    in_callback(|| unsafe { callback(arg, code.0) });
}

/// Calls the program; a missing callback is a program that does not want to know.
fn call(callback: Option<(Callback, *mut c_void)>, result: u32, status: u32) {
    if let Some((callback, argument)) = callback {
        // SAFETY: a function of the type that kv_types.h asks for, with the structure that was submitted.
        in_callback(|| unsafe { callback(argument, result, status) });
    }
}
