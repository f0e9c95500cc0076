//! The functions of `kv_apis.h`. What they do is described there.

mod information;
mod iterate;
mod lifecycle;
mod pairs;

pub(crate) use information::{device_info, log_page, queue_type};
pub(crate) use iterate::{info as iterate_info, open as iterate_open};
pub(crate) use lifecycle::{about, tell};
pub(crate) use pairs::process_completions;
