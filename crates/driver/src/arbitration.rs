//! Weighted round robin (Base 3.4.4.2): weights of the classes that queues are of.

use std::sync::MutexGuard;

use unvme_bus::lock;
use unvme_spec::admin::{GetFeatures, SetFeatures};
use unvme_spec::feature::{Arbitration, fid};

use crate::controller::Host;
use crate::{Controller, Error};

/// Weights with which classes differ: commands of high, medium and low priority in a round.
pub const WEIGHTS: [u8; 3] = [16, 4, 1];

impl Controller {
    /// True when queues can have a [`crate::QueueOptions::priority`]: the controller offers weighted round
    /// robin, and it was chosen when it was brought up.
    pub fn is_weighted(&self) -> bool {
        match &self.host {
            Host::Pcie(device) => device.is_weighted(),
            Host::Kernel(_) | Host::Tcp(_) => false,
        }
    }

    /// The Arbitration feature: the weights of the classes, and the arbitration burst. Errors:
    /// [`Error::Status`], and those of [`Controller::admin`].
    pub fn arbitration(&self) -> Result<Arbitration, Error> {
        let get = GetFeatures { fid: fid::ARBITRATION, ..GetFeatures::default() };
        Ok(Arbitration::from_bits(self.get_feature(get, 0)?.value))
    }

    /// Sets the Arbitration feature, for all who use the controller, and again after each reset of one that
    /// is driven here. Errors: as [`Controller::arbitration`].
    pub fn set_arbitration(&self, arbitration: Arbitration) -> Result<(), Error> {
        let _one = self.arbitrating();
        self.change_arbitration(arbitration)
    }

    /// Nobody else changes it meanwhile.
    fn arbitrating(&self) -> Option<MutexGuard<'_, ()>> {
        match &self.host {
            Host::Pcie(device) => Some(lock(&device.arbitrating)),
            Host::Kernel(_) | Host::Tcp(_) => None,
        }
    }

    fn change_arbitration(&self, arbitration: Arbitration) -> Result<(), Error> {
        let cdw11 = arbitration.into_bits();
        self.set_feature(SetFeatures { fid: fid::ARBITRATION, cdw11, ..SetFeatures::default() }, &[])?;
        Ok(())
    }

    /// Arbitration was set to this.
    pub(crate) fn note_arbitration(&self, cdw11: u32) {
        if let Host::Pcie(device) = &self.host {
            device.keep_arbitration(Arbitration::from_bits(cdw11));
        }
    }

    /// For the first queue that is of a class: classes are to differ. Errors: [`Error::Unsupported`] for a
    /// controller without them, and those of [`Controller::arbitration`].
    pub(crate) fn prepare_classes(&self) -> Result<(), Error> {
        let device = match &self.host {
            Host::Pcie(device) => device,
            Host::Kernel(_) => {
                return Err(without_classes("the kernel's driver creates the queues, all alike"));
            }
            Host::Tcp(_) => return Err(without_classes("controllers on the network are not asked for it")),
        };
        if !device.base.options.weighted_round_robin {
            return Err(without_classes("the controller was opened without it"));
        }
        if !device.is_weighted() {
            return Err(without_classes("the controller does not offer it (CAP.AMS)"));
        }
        let _one = self.arbitrating();
        let now = self.arbitration()?;
        let weights = [now.high_weight_z(), now.medium_weight_z(), now.low_weight_z()];
        if weights.iter().all(|weight| *weight == weights[0]) {
            let [high, medium, low] = WEIGHTS;
            self.change_arbitration(
                now.with_high_weight_z(high - 1).with_medium_weight_z(medium - 1).with_low_weight_z(low - 1),
            )?;
        }
        Ok(())
    }
}

fn without_classes(why: &str) -> Error {
    Error::Unsupported(format!("a priority class for a queue needs weighted round robin: {why}"))
}
