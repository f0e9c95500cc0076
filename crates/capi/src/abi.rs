//! The structures of `kv_types.h` and `kvnvme.h`, laid out as C lays them out. Their fields are described
//! there.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::offset_of;

pub(crate) const DEV_ID_LEN: usize = 32;
pub(crate) const NR_MAX_SSD: usize = 64;
pub(crate) const MAX_CPU_CORES: usize = 64;
pub(crate) const LOG_FILE_LEN: usize = 1024;
/// What functions that return a size return when they fail.
pub(crate) const ERR_INVALID_VALUE: u64 = u64::MAX;

/// A callback: `(kv_pair *, unsigned result, unsigned status)`, or with a `kv_iterate *` first.
pub(crate) type Callback = unsafe extern "C" fn(*mut c_void, c_uint, c_uint);

/// `kv_key`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct KvKey {
    pub(crate) key: *mut c_void,
    pub(crate) length: u16,
}

/// `kv_value`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct KvValue {
    pub(crate) value: *mut c_void,
    pub(crate) length: u32,
    pub(crate) actual_value_size: u32,
    pub(crate) offset: u32,
}

/// `kv_param`; the union has one kind of member.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct KvParam {
    pub(crate) async_cb: Option<Callback>,
    pub(crate) private_data: *mut c_void,
    pub(crate) io_option: c_int,
}

/// `kv_pair`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct KvPair {
    pub(crate) keyspace_id: u8,
    pub(crate) key: KvKey,
    pub(crate) value: KvValue,
    pub(crate) param: KvParam,
}

/// `kv_iterate`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct KvIterate {
    pub(crate) iterator: u32,
    pub(crate) kv: KvPair,
}

/// `kv_iterate_handle_info`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct KvIterateHandleInfo {
    pub(crate) handle_id: u8,
    pub(crate) status: u8,
    pub(crate) kind: u8,
    pub(crate) keyspace_id: u8,
    pub(crate) prefix: u32,
    pub(crate) bitmask: u32,
    pub(crate) is_eof: u8,
    pub(crate) reserved: [u8; 3],
}

/// `kv_nvme_io_options`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct KvNvmeIoOptions {
    pub(crate) core_mask: u64,
    pub(crate) sync_mask: u64,
    pub(crate) num_cq_threads: u64,
    pub(crate) cq_thread_mask: u64,
    pub(crate) queue_depth: u32,
    pub(crate) mem_size_mb: u32,
}

/// `kv_sdk`. `use_cache` is a byte here: a `bool` that a program did not initialise may be any.
#[repr(C)]
pub(crate) struct KvSdk {
    pub(crate) use_cache: u8,
    pub(crate) cache_algorithm: c_int,
    pub(crate) cache_reclaim_policy: c_int,
    pub(crate) slab_size: u64,
    pub(crate) slab_alloc_policy: c_int,
    pub(crate) ssd_type: c_int,
    pub(crate) submit_retry_interval: c_int,
    pub(crate) nr_ssd: c_int,
    pub(crate) dev_id: [[c_char; DEV_ID_LEN]; NR_MAX_SSD],
    pub(crate) dd_options: [KvNvmeIoOptions; NR_MAX_SSD],
    pub(crate) dev_handle: [u64; NR_MAX_SSD],
    pub(crate) log_level: c_int,
    pub(crate) log_file: [c_char; LOG_FILE_LEN],
    /// `pthread_mutex_t`, for the program's own use.
    pub(crate) cb_cnt_mutex: [u64; 5],
    pub(crate) app_hugemem_size: u64,
}

/// `kv_nvme_cmd_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct KvNvmeCmd {
    /// `opc` in bits 7:0, `fuse` in 9:8, `psdt` in 15:14.
    pub(crate) opcode_flags: u16,
    pub(crate) cid: u16,
    pub(crate) nsid: u32,
    pub(crate) cdw2: u32,
    pub(crate) cdw3: u32,
    pub(crate) mptr: u64,
    pub(crate) prp1: u64,
    pub(crate) prp2: u64,
    pub(crate) cdw10: u32,
    pub(crate) cdw11: u32,
    pub(crate) cdw12: u32,
    pub(crate) cdw13: u32,
    pub(crate) cdw14: u32,
    pub(crate) cdw15: u32,
}

/// `kv_nvme_cpl_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct KvNvmeCpl {
    pub(crate) result: u32,
    pub(crate) status: u32,
}

macro_rules! layout {
    ($type:ident, $size:literal, { $($field:ident: $offset:literal),* $(,)? }) => {
        const _: () = {
            assert!(size_of::<$type>() == $size);
            $(assert!(offset_of!($type, $field) == $offset);)*
        };
    };
}

layout!(KvKey, 16, { key: 0, length: 8 });
layout!(KvValue, 24, { value: 0, length: 8, actual_value_size: 12, offset: 16 });
layout!(KvParam, 24, { async_cb: 0, private_data: 8, io_option: 16 });
layout!(KvPair, 72, { keyspace_id: 0, key: 8, value: 24, param: 48 });
layout!(KvIterate, 80, { iterator: 0, kv: 8 });
layout!(KvIterateHandleInfo, 16, {
    handle_id: 0, status: 1, kind: 2, keyspace_id: 3, prefix: 4, bitmask: 8, is_eof: 12, reserved: 13,
});
layout!(KvNvmeIoOptions, 40, {
    core_mask: 0, sync_mask: 8, num_cq_threads: 16, cq_thread_mask: 24, queue_depth: 32, mem_size_mb: 36,
});
layout!(KvSdk, 6240, {
    use_cache: 0, cache_algorithm: 4, cache_reclaim_policy: 8, slab_size: 16, slab_alloc_policy: 24, ssd_type: 28,
    submit_retry_interval: 32, nr_ssd: 36, dev_id: 40, dd_options: 2088, dev_handle: 4648, log_level: 5160,
    log_file: 5164, cb_cnt_mutex: 6192, app_hugemem_size: 6232,
});
layout!(KvNvmeCmd, 64, {
    opcode_flags: 0, cid: 2, nsid: 4, cdw2: 8, cdw3: 12, mptr: 16, prp1: 24, prp2: 32, cdw10: 40, cdw15: 60,
});
layout!(KvNvmeCpl, 8, { result: 0, status: 4 });
