//! Planning and doing on copies of the kernel's trees.

mod doing;
mod planning;
mod tree;
mod uses;
