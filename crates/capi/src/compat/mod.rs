//! The functions of the headers in `include/compat/`, which programs of the original SDK's kind share.

mod art;
mod cache;
mod elapsed;
mod hash;
mod keys;
mod latency;
mod slab;
mod stdio;
