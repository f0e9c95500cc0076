//! Which reclaim unit handles a new namespace gets (NVM 4.1.6.3), and who uses which (log page 21h).
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use std::sync::Arc;

use unvme_spec::Status;
use unvme_spec::fdp::{RUH_MAX, RuhUsage, RuhUsageHeader, RuhUse};
use zerocopy::IntoBytes;

use super::{Contents, Namespace, NamespaceTable};
use crate::fdp::{ChosenBy, Configuration, Handles};

const INVALID_LIST: Status = Status::INVALID_PLACEMENT_HANDLE_LIST.with_do_not_retry();

/// Placement handles for a new namespace. `list` is what the host asks for, nothing or a reclaim unit handle
/// each; `block_shift` says which blocks the namespace has, `None` that it has pairs.
///
/// Namespaces without a list share one reclaim unit handle that the controller has chosen and that no list
/// names. Errors: invalid Placement Handle List for a handle that does not exist, is named twice, or is the
/// controller's, for a list that is too long, and when there is none left for the controller to choose.
/// Invalid Format when a handle is shared with a namespace of another format.
pub(crate) fn assign(
    table: &NamespaceTable,
    configuration: &Configuration,
    list: &[u16],
    block_shift: Option<u8>,
) -> Result<Arc<Handles>, Status> {
    let handles = configuration.handles();
    let uses = uses(table, handles);
    if list.is_empty() {
        // From the end: hosts begin to name them from the start.
        let of = |wanted: RuhUse| uses.iter().rposition(|&used| used == wanted);
        let chosen = of(RuhUse::CONTROLLER_SPECIFIED).or_else(|| of(RuhUse::UNUSED)).ok_or(INVALID_LIST)?;
        return Ok(Handles::new([chosen as u16].into(), ChosenBy::Controller, configuration, true));
    }
    if list.len() > usize::from(handles) || list.len() > RUH_MAX {
        return Err(INVALID_LIST);
    }
    for (index, ruh) in list.iter().enumerate() {
        let is_free = uses.get(usize::from(*ruh)).is_some_and(|&used| used != RuhUse::CONTROLLER_SPECIFIED);
        if !is_free || list.iter().take(index).any(|before| before == ruh) {
            return Err(INVALID_LIST);
        }
    }
    check_format(table.iter().map(|namespace| &**namespace), list, block_shift)?;
    Ok(Handles::new(list.into(), ChosenBy::Host, configuration, true))
}

/// Checks that namespaces which share a reclaim unit handle with `list` have the same blocks. Errors: invalid
/// Format when one has not.
pub(crate) fn check_format<'a>(
    mut others: impl Iterator<Item = &'a Namespace>,
    list: &[u16],
    block_shift: Option<u8>,
) -> Result<(), Status> {
    let differs = |other: &Namespace| {
        let shift = match &other.contents {
            Contents::Blocks(blocks) => Some(blocks.block_shift),
            Contents::KeyValue(_) => None,
        };
        shift != block_shift && other.handles.ruhs().iter().any(|ruh| list.contains(ruh))
    };
    if others.any(differs) { Err(Status::INVALID_FORMAT.with_do_not_retry()) } else { Ok(()) }
}

/// Who uses each of so many reclaim unit handles.
fn uses(table: &NamespaceTable, handles: u16) -> Vec<RuhUse> {
    let mut uses = vec![RuhUse::UNUSED; handles.into()];
    for namespace in table.iter() {
        let used = match namespace.handles.chosen_by() {
            ChosenBy::Host => RuhUse::HOST_SPECIFIED,
            ChosenBy::Controller => RuhUse::CONTROLLER_SPECIFIED,
        };
        for &ruh in namespace.handles.ruhs() {
            if let Some(entry) = uses.get_mut(usize::from(ruh)) {
                *entry = used;
            }
        }
    }
    uses
}

/// Log page 21h.
pub(crate) fn usage_page(table: &NamespaceTable, configuration: &Configuration) -> Vec<u8> {
    let handles = configuration.handles();
    let mut page = RuhUsageHeader::new(handles).as_bytes().to_vec();
    for used in uses(table, handles) {
        page.extend_from_slice(RuhUsage::new(used).as_bytes());
    }
    page
}

/// Lists for the namespaces of a device's first day, of which nobody has asked for one: those with the blocks
/// of the first one share all reclaim unit handles, but for one that is left to the controller when there are
/// others.
pub(crate) fn first_list(configuration: &Configuration, shifts: &[Option<u8>], index: usize) -> Vec<u16> {
    let first = shifts.iter().flatten().next();
    let others = shifts.iter().any(|shift| shift.as_ref() != first);
    let is_like_first = shifts.get(index).is_some_and(|shift| shift.is_some() && shift.as_ref() == first);
    let count = configuration.handles() - u16::from(others);
    if is_like_first { (0..count).collect() } else { Vec::new() }
}
