//! Sessions: devices that any thread calls.

mod blocks;
mod cached;
mod closing;
mod handlers;
mod logging;
mod lost;
#[path = "../../../sdk/tests/mortal/mod.rs"]
mod mortal;
mod pairs;
mod rig;
mod served;
mod standard;
mod threads;
mod verbs;
