//! A thread that keeps a controller on the network alive while its users have nothing to do there.

use std::thread::{self, JoinHandle};
use std::time::Duration;

use unvme_driver::{Controller, Keeper};

/// The thread looks whether anybody still has the controller open at least this often.
const SLEEP_MAX: Duration = Duration::from_secs(10);

/// The thread. It ends once nobody has the controller open: who has made a [`crate::Block`] of the device may
/// outlive it.
#[derive(Debug)]
pub(crate) struct KeepAlive(JoinHandle<()>);

impl KeepAlive {
    /// Keeps the controller alive, if it is one that needs that.
    pub(crate) fn start(name: &str, controller: &Controller) -> Option<Self> {
        let keeper = controller.keeper()?;
        let device = name.to_owned();
        let spawned =
            thread::Builder::new().name("unvme-keep".to_owned()).spawn(move || keep(&keeper, &device));
        // Without it the controller is alive for as long as it is used.
        spawned
            .inspect_err(|error| tracing::warn!(name, %error, "start the thread unvme-keep"))
            .ok()
            .map(Self)
    }
}

impl Drop for KeepAlive {
    fn drop(&mut self) {
        self.0.thread().unpark();
    }
}

fn keep(keeper: &Keeper, device: &str) {
    loop {
        match keeper.keep_alive() {
            Ok(Some(until_next)) => thread::park_timeout(until_next.min(SLEEP_MAX)),
            Ok(None) => return,
            Err(error) => {
                // Its users are told by their own commands. One of them may reset it, and it is back.
                tracing::debug!(device, %error, "the controller was given up");
                thread::park_timeout(SLEEP_MAX);
            }
        }
    }
}
