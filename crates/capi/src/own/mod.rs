//! The functions of `unvme.h`. What they do is described there.

mod blocks;
mod devices;
mod errors;
mod faults;
mod fdp;
mod io;
mod pairs;
mod queues;
