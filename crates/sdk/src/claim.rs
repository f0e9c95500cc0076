//! Claims of namespaces: as long as one lives, no other host changes the namespace.

use std::fmt;

use unvme_driver::{ClaimKind, Controller};
use unvme_spec::Nsid;

use crate::block::Block;
use crate::{Error, Result};

/// A namespace that is claimed until this is dropped, or the process ends: see [`Block::claim`].
pub struct Claim {
    controller: Controller,
    nsid: Nsid,
    kind: ClaimKind,
    /// The device keeps others from changing the namespace.
    is_enforced: bool,
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim")
            .field("nsid", &self.nsid)
            .field("kind", &self.kind)
            .field("is_enforced", &self.is_enforced)
            .finish_non_exhaustive()
    }
}

impl Claim {
    /// False when the device knows no claims: a drive, or a target of another maker.
    pub fn is_enforced(&self) -> bool {
        self.is_enforced
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // A device that is gone has forgotten the claim, too.
        if self.is_enforced
            && let Err(e) = self.controller.release(self.nsid, self.kind)
        {
            tracing::debug!(error = %e, nsid = %self.nsid, "release a claim");
        }
    }
}

impl Block {
    /// Claims the namespace: commands of all other controllers of the device that would change its blocks,
    /// its format or its existence are refused, by whatever name and transport they come, and whatever
    /// program sends them. With [`ClaimKind::WithOthers`] those of this controller are refused, too, and
    /// several may claim the namespace so. Reads go on. `holder` says in words who claims it; others are
    /// told.
    ///
    /// Everything that was opened from the same [`crate::Device`] shares its controller.
    ///
    /// # Errors
    /// [`Error::Claimed`] when another claim does not admit this one; as [`crate::Device::admin`].
    pub fn claim(&self, kind: ClaimKind, holder: &str) -> Result<Claim> {
        let (controller, nsid) = (self.controller().clone(), self.nsid());
        let is_enforced = controller
            .claim(nsid, kind, holder)
            .map_err(|e| Error::of_controller(self.name(), e, &controller))?;
        Ok(Claim { controller, nsid, kind, is_enforced })
    }
}
