//! The placement identifiers of a namespace, and where each of them writes.

use unvme_driver::Namespace;
use unvme_spec::fdp::{ruh_status_count, ruh_statuses};

use super::{PlacementId, Ruhid, explain};
use crate::{Block, Error, Result};

/// Where a placement identifier writes now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandleStatus {
    /// The placement identifier.
    pub placement: PlacementId,
    /// Its reclaim unit handle.
    pub ruhid: Ruhid,
    /// Logical blocks that still fit in its reclaim unit.
    pub blocks_left: u64,
    /// Estimated seconds until the reclaim unit's time is over; 0 when the device does not say.
    pub seconds_left: u32,
}

/// What the data of a Reclaim Unit Handle Status says.
pub fn statuses_of(data: &[u8]) -> Vec<HandleStatus> {
    let handles = ruh_statuses(data).into_iter().flatten();
    handles
        .map(|handle| HandleStatus {
            placement: handle.placement_id(),
            ruhid: Ruhid(handle.ruhid),
            blocks_left: handle.ruamw,
            seconds_left: handle.earutr,
        })
        .collect()
}

/// What is wrong with `placements` when only those in `there`, which ascend, can be named.
pub fn missing_placement(there: &[PlacementId], placements: &[PlacementId]) -> Option<String> {
    let missing = placements.iter().find(|placement| there.binary_search(placement).is_err())?;
    Some(format!("there is no placement identifier {missing}; the namespace has {}", listed(there)))
}

impl Block {
    /// Reclaim Unit Handle Status: where each placement identifier of the namespace writes now.
    ///
    /// # Errors
    /// [`Error::Device`], with [`unvme_spec::Status::FDP_DISABLED`] when the namespace has none;
    /// [`Error::Driver`].
    pub fn handles(&mut self) -> Result<Vec<HandleStatus>> {
        let handles = ruh_status_count(&self.ruh_status(0)?).unwrap_or(0);
        Ok(statuses_of(&self.ruh_status(handles)?))
    }

    fn ruh_status(&mut self, handles: u16) -> Result<Vec<u8>> {
        let failed = |name: &str, e| Error::driver(name, e);
        let bytes = Namespace::ruh_status_bytes(handles);
        let buf = self.controller().alloc(bytes).map_err(|e| failed(self.name(), e))?;
        let (sqe, payload) = self.namespace().ruh_status(buf).map_err(|e| failed(self.name(), e))?;
        let buf = explain(self.exchange("reclaim unit handle status", sqe, Some(payload)))?;
        Ok(buf.map(|buf| buf.to_vec()).unwrap_or_default())
    }

    /// The placement identifiers a write to this namespace can name, ascending.
    ///
    /// # Errors
    /// As [`Block::handles`].
    pub fn placements(&mut self) -> Result<Vec<PlacementId>> {
        if let Some(known) = self.known_placements() {
            return Ok(known.clone());
        }
        let mut placements: Vec<_> = self.handles()?.iter().map(|handle| handle.placement).collect();
        placements.sort_unstable();
        *self.known_placements() = Some(placements.clone());
        Ok(placements)
    }

    /// Checks that the namespace has each of `placements`.
    ///
    /// # Errors
    /// [`Error::Argument`] with those it has; as [`Block::handles`].
    pub fn check_placements(&mut self, placements: &[PlacementId]) -> Result<()> {
        let there = self.placements()?;
        match missing_placement(&there, placements) {
            None => Ok(()),
            Some(reason) => Err(Error::Argument(format!("{}: {reason}", self.name()))),
        }
    }

    /// Reclaim Unit Handle Update: what is written to `placements` from now on goes to empty reclaim units.
    ///
    /// # Errors
    /// As [`Block::check_placements`]; [`Error::Argument`] for an empty list.
    pub fn update_handles(&mut self, placements: &[PlacementId]) -> Result<()> {
        self.check_placements(placements)?;
        let failed = |name: &str, e| Error::driver(name, e);
        let buf = self
            .controller()
            .alloc((placements.len() * 2).next_multiple_of(4))
            .map_err(|e| failed(self.name(), e))?;
        let (sqe, payload) =
            self.namespace().ruh_update(placements, buf).map_err(|e| failed(self.name(), e))?;
        explain(self.exchange("reclaim unit handle update", sqe, Some(payload))).map(drop)
    }
}

/// How many there are, and which: neighbours as a range.
fn listed(placements: &[PlacementId]) -> String {
    let mut ranges: Vec<(u16, u16)> = Vec::new();
    for placement in placements {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(placement.0) => *last = placement.0,
            _ => ranges.push((placement.0, placement.0)),
        }
    }
    let ranges: Vec<String> = ranges
        .iter()
        .map(|(first, last)| if first == last { first.to_string() } else { format!("{first} to {last}") })
        .collect();
    format!("{}: {}", placements.len(), ranges.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placement_identifiers_are_listed_as_ranges() {
        let list = |ids: &[u16]| listed(&ids.iter().map(|id| PlacementId(*id)).collect::<Vec<_>>());
        assert_eq!(list(&[0]), "1: 0");
        assert_eq!(list(&[0, 1, 2, 3]), "4: 0 to 3");
        assert_eq!(list(&[0, 1, 0x8000, 0x8001, 0xffff]), "5: 0 to 1, 32768 to 32769, 65535");
    }
}
