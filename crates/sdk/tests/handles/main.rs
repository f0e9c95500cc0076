//! Handles through the public border: what they hold against a model, how honest a flush is, who is let go
//! first, and what a mistake is answered with; on devices in this process, by shared memory and by network.
#![cfg(feature = "local")]

mod honest;
mod mistakes;
mod model;
mod progress;
mod rig;
mod shared;
mod turns;

use unvme::handle::{Handle, HandleOptions, Policies};
use unvme::{Device, Nsid, OpenOptions, open};

fn device(name: &str) -> Device {
    open(name, &OpenOptions::default()).unwrap_or_else(|e| panic!("{e}"))
}

fn policies(text: &str) -> Policies {
    text.parse().unwrap_or_else(|e| panic!("{e}"))
}

fn options(blocks: std::ops::Range<u64>, text: &str) -> HandleOptions {
    HandleOptions { blocks: Some(blocks), policies: policies(text) }
}

fn handle(device: &Device, text: &str) -> Handle {
    let options = HandleOptions { blocks: None, policies: policies(text) };
    device.handle(Nsid(1), &options).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// A buffer that differs from byte to byte and from `value` to `value`.
fn bytes(value: u8, length: usize) -> Vec<u8> {
    (0..length).map(|i| (i as u8).wrapping_mul(31) ^ (i >> 8) as u8 ^ value).collect()
}
