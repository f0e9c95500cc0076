//! The list of claims, and when it changes.

use unvme_bus::lock;
use unvme_spec::{Nsid, Status};

use super::Subsystem;
use crate::claims::{CONFLICT, Claim};
use crate::namespace::NamespaceTable;

impl Subsystem {
    /// Changes the list, and shows it to every controller.
    pub(crate) fn change_claims<T>(&self, change: impl FnOnce(&mut Vec<Claim>) -> T) -> T {
        let mut list = lock(&self.claims.0);
        let changed = change(&mut list);
        let controllers = self.controllers();
        controllers.iter().for_each(|controller| controller.excluded.set(&list, controller.cntlid));
        // The last owner of a controller releases its claims: the list is unlocked by then.
        drop(list);
        changed
    }

    /// A controller has been added: it is kept out of what others have claimed.
    pub(crate) fn show_claims(&self) {
        self.change_claims(|_| ());
    }

    /// A controller is reset, or removed: its claims end.
    pub(crate) fn release_claims(&self, cntlid: u16) {
        let has_some = lock(&self.claims.0).iter().any(|claim| claim.cntlid == cntlid);
        if has_some {
            self.change_claims(|list| list.retain(|claim| claim.cntlid != cntlid));
        }
    }

    /// Refuses what changes the format, the existence or the attachment of namespaces, if one of them is
    /// claimed, by whichever controller: who has claimed it relies on finding it as it is.
    pub(crate) fn check_unclaimed(&self, nsids: impl IntoIterator<Item = Nsid>) -> Result<(), Status> {
        let list = lock(&self.claims.0);
        let is_claimed = |nsid: Nsid| list.iter().any(|claim| claim.nsid == nsid.0);
        match nsids.into_iter().any(is_claimed) {
            true => Err(CONFLICT),
            false => Ok(()),
        }
    }

    /// One line for each claim on a namespace, or on all of those that a controller has in `seen`.
    pub(crate) fn claims_text(&self, nsid: u32, seen: &NamespaceTable) -> String {
        let list = lock(&self.claims.0);
        let is_asked = |claim: &&Claim| Nsid(nsid) == Nsid::ALL || claim.nsid == nsid;
        let of_it = |claim: &&Claim| {
            is_asked(claim) && seen.get(Nsid(claim.nsid)).is_some_and(|it| seen.is_active(it))
        };
        list.iter()
            .filter(of_it)
            .map(|claim| format!("namespace {}: {}\n", claim.nsid, claim.holder))
            .collect()
    }
}
