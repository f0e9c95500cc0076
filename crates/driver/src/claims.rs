//! Claims of namespaces: no other host changes one while a host has claimed it ([`unvme_spec::claim`]).

use unvme_spec::Nsid;
use unvme_spec::claim::{self, ClaimSend, TEXT_BYTES_MAX, is_supported};

use crate::claim::{ClaimKind, command};
use crate::controller::Host;
use crate::{Controller, Error};

/// Bytes of the first buffer for the text of claims; a longer one is asked for again.
const LIST_BYTES: u32 = 4096;

impl Controller {
    /// Claims a namespace until [`Controller::release`], the controller's end or the process's: commands of
    /// other hosts that would change its contents, format or existence are refused with
    /// [`unvme_spec::Status::RESERVATION_CONFLICT`]. `holder` says in words who claims it. A reset ends a
    /// claim, and bringing the controller up again renews it.
    ///
    /// What the kernel drives is claimed among the programs of this machine that use it by this crate, by
    /// locked files: the kernel's controller does not end with this process. False when the device does not
    /// have claims: those of other makers do not.
    ///
    /// Errors: [`Error::Status`] with Reservation Conflict when another claim does not admit this one, and
    /// those of [`Controller::admin`].
    pub fn claim(&self, nsid: Nsid, kind: ClaimKind, holder: &str) -> Result<bool, Error> {
        if let Host::Kernel(device) = &self.host {
            return device.claim(nsid, kind, holder);
        }
        if !is_supported(&self.identify_controller()?) {
            return Ok(false);
        }
        let (sqe, words) = command(nsid, kind, holder);
        // Noted first: a reset that comes between the command and its note would end the claim for good.
        self.claimed().add(nsid, kind, holder);
        if let Err(e) = self.admin_send(sqe, &words) {
            match e {
                Error::Status { .. } => self.claimed().remove(nsid, kind),
                // The device may have it all the same.
                _ => drop(self.release(nsid, kind)),
            }
            return Err(e);
        }
        Ok(true)
    }

    /// Ends a claim that [`Controller::claim`] has made. Errors: as [`Controller::admin`]; the claim is not
    /// renewed by a reset in any case.
    pub fn release(&self, nsid: Nsid, kind: ClaimKind) -> Result<(), Error> {
        if let Host::Kernel(device) = &self.host {
            device.release(nsid, kind);
            return Ok(());
        }
        self.claimed().remove(nsid, kind);
        self.admin_send(ClaimSend::Release.encode(nsid.0), &[])?;
        Ok(())
    }

    /// Who has claimed namespaces of the device, one line for each claim: of one namespace, or of all with
    /// [`Nsid::ALL`]. Empty when no host has, or when the device does not have claims. Errors: those of
    /// [`Controller::admin`].
    pub fn claims(&self, nsid: Nsid) -> Result<String, Error> {
        if let Host::Kernel(device) = &self.host {
            return device.claims(nsid);
        }
        if !is_supported(&self.identify_controller()?) {
            return Ok(String::new());
        }
        let mut room = LIST_BYTES;
        loop {
            let (done, mut text) = self.admin_receive(claim::receive(nsid.0, room), room as usize)?;
            let bytes = (done.result as u32).min(TEXT_BYTES_MAX);
            if bytes > room {
                room = bytes;
                continue;
            }
            text.truncate(bytes as usize);
            return String::from_utf8(text)
                .map_err(|_| Error::Protocol("Claim Receive: the text is not UTF-8".to_owned()));
        }
    }
}
