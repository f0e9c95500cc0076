//! The C libraries, `libunvme.so` and `libunvme.a`: the interface of the uNVMe 2.0 SDK, and one of our own
//! beside it.
//!
//! | module | concept |
//! |---|---|
//! | [`abi`] | the structures of `kv_types.h` and `kvnvme.h`, with their sizes and offsets asserted |
//! | [`boundary`] | every way in: panics end here, failures become results, and the last one is remembered |
//! | [`result`] | `enum kv_result`, and what a status of a device is in it |
//! | [`handle`] | handles: numbers that are checked, never pointers |
//! | [`session`] | opening and closing devices, for the SDK, for the driver level and by name |
//! | [`pair`] | a `kv_pair` taken apart once: checks in the order the original SDK makes them |
//! | [`operation`] | what is done with a pair, on a key-value device and on a block device |
//! | [`completion`] | from a finished operation to the program's callback |
//! | [`memory`] | what `kv_alloc` returns |
//! | [`queue`] | what `unvme_queue` is: submit and poll, by one thread |
//! | `sdk_level`, `driver_level`, `own` | the functions of `kv_apis.h`, `kvnvme.h` and `unvme.h` |
//! | `fs` | the functions of `unvme_fs.h` |
//! | `compat` | the functions of the headers in `include/compat/` |
//!
//! Raw arguments are converted in the functions that C calls; everything behind them is safe code on
//! [`unvme_guide::session`]. The headers are written by hand; `cargo xtask capi` compares them with the
//! symbols.
//!
//! What it does not implement: `KV_KEY_ITERATE_WITH_RETRIEVE`, appending through `kv_append` (as the original
//! SDK), and any function of SPDK.

mod abi;
mod boundary;
mod compat;
mod completion;
mod configuration;
mod driver_level;
mod fs;
mod handle;
mod memory;
mod operation;
mod own;
mod pair;
mod queue;
mod result;
mod sdk_level;
mod session;
mod twins;
