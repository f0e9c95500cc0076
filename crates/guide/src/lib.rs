//! The SDK of the uNVMe guide: devices of a configuration file that any thread calls.
//!
//! The C library and the guide's tools stand on it. [`session`] has an example.
//!
//! | module | concept |
//! |---|---|
//! | [`config`] | [`SdkConfig`]: the configuration file, and what it means |
//! | [`placement`] | [`Placement`]: which CPUs submit and complete |
//! | [`session`] | [`session::Session`]: devices that any thread calls, completion threads, handlers |
//! | [`cache`] | [`ReadCache`]: complete values of some devices |
//! | [`slab`] | [`Slab`]: a device's buffers, within a budget |
//! | [`latency`] | [`latency::LatencyStat`]: how long operations took |
//! | [`elapsed`] | [`elapsed::Elapsed`]: the blocks that tell it |
//! | [`radix`] | [`RadixTree`]: an ordered map from byte strings |
//!
//! Opening answers with [`unvme::Error`], an operation with [`session::OpError`].
//!
//! What it does not implement: values of more than 2 MiB, vectored buffers, several processes that share one
//! device without a server, a cache of a device that others change.
#![forbid(unsafe_code)]

pub mod cache;
pub mod config;
pub mod elapsed;
pub mod latency;
pub mod placement;
pub mod radix;
pub mod session;
pub mod slab;

pub use cache::ReadCache;
pub use config::{ConfigFile, DeviceConfig, SdkConfig};
pub use placement::{CpuSet, PlacedDevice, Placement};
pub use radix::RadixTree;
pub use slab::{SLAB_BYTES_MIN, Slab, SlabBuf, SlabError, SlabOptions, SlabStats};
