//! One drive for several processes: a holder, and clients that drive it through
//! [`unvme_driver::SharedController`]. The drive is the virtual SSD; clients are in this process, or behind a
//! socket of it.

mod admin;
mod hostile;
mod rig;
mod served;
