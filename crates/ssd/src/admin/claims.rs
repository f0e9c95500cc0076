//! Claim Send and Claim Receive: their layout is in [`unvme_spec::claim`].

use unvme_spec::claim::{self, ClaimSend, HOLDER_BYTES_MAX, TEXT_BYTES_MAX};
use unvme_spec::{Sqe, Status};

use crate::Ssd;
use crate::claims::{CONFLICT, Claim};
use crate::queue::SubmissionQueue;
use crate::reply::Reply;

const INVALID_FIELD: Status = Status::INVALID_FIELD.with_do_not_retry();
/// Most claims of one device: enough for every namespace and some readers of each.
const CLAIMS_MAX: usize = 1024;

impl Ssd {
    /// Refuses an I/O command that would change a namespace which others have claimed.
    #[inline(always)]
    pub(crate) fn check_claims(&self, sq: &SubmissionQueue, sqe: &Sqe) -> Result<(), Status> {
        if self.excluded.is_any() { self.check_excluded(sq, sqe) } else { Ok(()) }
    }

    #[cold]
    fn check_excluded(&self, sq: &SubmissionQueue, sqe: &Sqe) -> Result<(), Status> {
        match self.excluded.covers(sqe.nsid) && self.changes_media(sq, sqe) {
            true => Err(CONFLICT),
            false => Ok(()),
        }
    }

    /// True for the commands of this module.
    pub(crate) fn is_claim_command(sqe: &Sqe) -> bool {
        matches!(sqe.opcode, claim::opcode::SEND | claim::opcode::RECEIVE)
    }

    /// Executes one of them. The caller holds `changing`.
    pub(crate) fn claim_command(&self, sq: &mut SubmissionQueue, sqe: &Sqe) -> Result<Reply, Status> {
        match sqe.opcode {
            claim::opcode::SEND => self.claim_send(sq, sqe).map(|()| Reply::DONE),
            _ => self.claim_receive(sq, sqe),
        }
    }

    fn claim_send(&self, sq: &mut SubmissionQueue, sqe: &Sqe) -> Result<(), Status> {
        let nsid = sqe.nsid;
        let (bytes, is_alone) = match ClaimSend::parse(sqe) {
            ClaimSend::Alone { bytes } => (bytes, true),
            ClaimSend::WithOthers { bytes } => (bytes, false),
            ClaimSend::Release => return self.release_claim(nsid),
            ClaimSend::Unknown(_) => return Err(INVALID_FIELD),
        };
        if bytes == 0 || bytes > HOLDER_BYTES_MAX {
            return Err(INVALID_FIELD);
        }
        let words = String::from_utf8(self.receive(sq, sqe, bytes as usize)?).map_err(|_| INVALID_FIELD)?;
        if words.chars().any(char::is_control) {
            return Err(INVALID_FIELD);
        }
        self.namespaces.get().active(nsid)?;
        let cntlid = self.cntlid;
        self.subsystem.change_claims(|list| {
            // Those who share a claim do not change the namespace; one that is alone admits no other.
            if list.iter().any(|claim| claim.nsid == nsid && (is_alone || claim.is_alone)) {
                return Err(CONFLICT);
            }
            if list.len() >= CLAIMS_MAX {
                return Err(INVALID_FIELD);
            }
            list.push(Claim { nsid, cntlid, is_alone, holder: words });
            Ok(())
        })?;
        self.drain();
        Ok(())
    }

    fn release_claim(&self, nsid: u32) -> Result<(), Status> {
        self.subsystem.change_claims(|list| {
            let its = |claim: &Claim| claim.nsid == nsid && claim.cntlid == self.cntlid;
            let index = list.iter().position(its).ok_or(INVALID_FIELD)?;
            list.remove(index);
            Ok(())
        })
    }

    /// The controller has no host any more: its claims end.
    pub(crate) fn release_claims(&self) {
        self.subsystem.release_claims(self.cntlid);
    }

    fn claim_receive(&self, sq: &mut SubmissionQueue, sqe: &Sqe) -> Result<Reply, Status> {
        if sqe.cdw10 > TEXT_BYTES_MAX {
            return Err(INVALID_FIELD);
        }
        let text = self.subsystem.claims_text(sqe.nsid, &self.namespaces.get());
        let reply = self.send(sq, sqe, text.as_bytes(), sqe.cdw10 as usize)?;
        Ok(Reply { result: text.len() as u64, ..reply })
    }
}
