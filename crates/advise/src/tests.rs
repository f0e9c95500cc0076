//! The rules on the topologies of published machines, as their kernels list them.

mod machines;
mod placing;
mod planning;
mod reading;
mod tree;
