//! A device to try the bus with.
#![allow(dead_code, unused_imports, unreachable_pub)] // Each test file uses a part of it.

mod function;
mod served;

pub use function::*;
pub use served::*;
