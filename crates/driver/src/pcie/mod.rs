//! Controllers that are driven on a PCI function: their registers and their rings are ours.
//!
//! | module | concept |
//! |---|---|
//! | `device`, `lifecycle` | what all users of a controller share; enable, reset, shut down |
//! | `admin_queue`, `pace` | the admin queue, shared by all threads, and how they wait |
//! | `ring` | an I/O queue, and what is done when its controller misbehaves |
//! | `pair`, `dptr` | mechanics of one submission and one completion queue |
//! | `config_space` | what comes before registers |

mod admin_queue;
mod config_space;
mod device;
mod dptr;
mod lifecycle;
mod pace;
mod pair;
mod ring;

pub(crate) use device::PcieDevice;
pub(crate) use pace::Pace;
pub use ring::{Advancer, Ring};
