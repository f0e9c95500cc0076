//! Commands that the program writes itself.
// UNSAFETY: a function that C calls, with the pointers it passes, and memory that it frees.
#![allow(unsafe_code)]

use std::ffi::{c_uint, c_void};
use std::ptr::null_mut;

use sdk::Sqe;
use unvme_guide::session::QueueChoice;

use crate::abi::{KvNvmeCmd, KvNvmeCpl};
use crate::boundary::value;
use crate::handle;
use crate::result::{Code, Failure, Result};

const ADMIN: c_uint = 0;
const IO: c_uint = 1;
/// Longest transfer.
const BYTES_MAX: u32 = 2 << 20;
/// FUSE in bits 1:0 of the byte behind the opcode.
const FUSE_MASK: u8 = 3;

unsafe extern "C" {
    fn malloc(size: usize) -> *mut c_void;
}

/// The entry; identifier and data pointer are the driver's to fill in.
fn entry(cmd: &KvNvmeCmd) -> Sqe {
    let mut sqe = Sqe {
        opcode: cmd.opcode_flags as u8,
        nsid: cmd.nsid,
        cdw2: cmd.cdw2,
        cdw3: cmd.cdw3,
        mptr: cmd.mptr,
        cdw10: cmd.cdw10,
        cdw11: cmd.cdw11,
        cdw12: cmd.cdw12,
        cdw13: cmd.cdw13,
        cdw14: cmd.cdw14,
        cdw15: cmd.cdw15,
        ..Sqe::default()
    };
    sqe.flags = (cmd.opcode_flags >> 8) as u8 & FUSE_MASK;
    sqe
}

fn send(number: u64, cmd: &KvNvmeCmd, data: &mut [u8], kind: c_uint) -> Result<KvNvmeCpl> {
    let open = handle::get(number)?;
    let outcome = match kind {
        ADMIN => open.member().raw_admin(entry(cmd), data)?,
        IO => open.member().raw_io(QueueChoice::Auto, entry(cmd), data)?,
        other => {
            let text = format!("type: expected ADMIN_CMD_TYPE (0) or IO_CMD_TYPE (1), not {other}");
            return Err(Failure::new(Code::DD_INVALID_PARAM, text));
        }
    };
    Ok(KvNvmeCpl { result: outcome.result as u32, status: outcome.status.raw().into() })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kv_nvme_submit_raw_cmd(
    number: u64,
    cmd: KvNvmeCmd,
    buf: *mut c_void,
    buf_len: u32,
    kind: c_uint,
) -> *mut KvNvmeCpl {
    value(null_mut(), || {
        if buf_len > BYTES_MAX || (buf.is_null() && buf_len > 0) {
            let text = "buf is NULL, or longer than 2 MiB";
            return Err(Failure::new(Code::DD_INVALID_PARAM, text));
        }
        let data = if buf_len == 0 {
            &mut []
        } else {
            // SAFETY: what kvnvme.h asks for, and it is not null.
            unsafe { std::slice::from_raw_parts_mut(buf.cast::<u8>(), buf_len as usize) }
        };
        let completion = send(number, &cmd, data, kind)?;
        // SAFETY: the C library's, for the program to free with it.
        let target = unsafe { malloc(size_of::<KvNvmeCpl>()) }.cast::<KvNvmeCpl>();
        if target.is_null() {
            return Err(Failure::new(Code::HEAP_ALLOC_FAILURE, "no memory for the completion"));
        }
        // SAFETY: malloc's memory is aligned for it and large enough.
        unsafe { target.write(completion) };
        Ok(target)
    })
}
