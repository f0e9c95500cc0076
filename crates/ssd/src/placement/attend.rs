//! What is done before and after a turn: the translation layer's notes and expired time limits become events,
//! and events get their time and are saved.
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use unvme_bus::Clock;
use unvme_flash::PAGE_BYTES;
use unvme_flash::ftl::{Isolation, Placement};
use unvme_flash::timing::OpList;
use unvme_spec::fdp::{Event, EventType, MediaReallocated, PlacementId, ReclaimGroup, Ruhid};
use unvme_spec::feature::Timestamp;
use unvme_spec::{Lba, Nsid};

use crate::Ssd;
use crate::flash::Note;
use crate::namespace::{Contents, NamespaceTable};
use crate::store::CHUNK_BYTES;

impl Ssd {
    /// Looks after FDP: told before and after each turn. A load while FDP is disabled, and some while nothing
    /// has happened.
    #[inline]
    pub(crate) fn attend_placement(&self, clock: &Clock) {
        if self.fdp.is_active() {
            self.attend(clock);
        }
    }

    fn attend(&self, clock: &Clock) {
        let (fdp, Some(flash)) = (&self.fdp, self.media.flash()) else { return };
        if fdp.is_due(clock) || flash.watch().has_notes() || fdp.has_unstamped() {
            self.attend_now(clock);
        }
    }

    /// Collects notes, and gives events their time.
    #[cold]
    pub(crate) fn attend_now(&self, clock: &Clock) {
        // Whoever is at it already does it for all; notes are taken in one order.
        let Some(_attending) = self.fdp.try_attend() else { return };
        if self.collect_events(clock) {
            self.subsystem.saving.changed();
            if self.subsystem.save_state().is_err() {
                tracing::error!("the device could not save its FDP events");
            }
        }
    }

    /// A host's Flush: the events that have happened are saved with what is saved next. May be called with
    /// I/O queues locked: whoever is at it already waits for none.
    pub(crate) fn keep_placement_events(&self, clock: &Clock) {
        if !self.fdp.is_active() {
            return;
        }
        let _attending = self.fdp.attending();
        if self.collect_events(clock) | self.fdp.take_unsaved() {
            self.subsystem.saving.changed();
        }
    }

    /// Makes notes events, and gives those their time. True when they are to be saved now. The caller is the
    /// one who is attending.
    fn collect_events(&self, clock: &Clock) -> bool {
        let (fdp, Some(flash)) = (&self.fdp, self.media.flash()) else { return false };
        if self.faults.is_gone() {
            // The flash may be somebody else's by now.
            return false;
        }
        let now = clock.now();
        fdp.note_time(now);
        let notes = flash.watch().collect();
        if !notes.is_empty() {
            let table = self.namespaces.get();
            for note in notes {
                self.digest(note, &table, now);
            }
        }
        self.expire(now);
        let timestamp = self.subsystem.timestamp(clock);
        fdp.settle(now, timestamp)
    }

    fn digest(&self, note: Note, table: &NamespaceTable, now: u64) {
        let fdp = &self.fdp;
        match note {
            Note::Opened { at, unit } => fdp.opened(at, unit, now),
            Note::Closed { at, is_early } => {
                fdp.closed(at);
                if is_early {
                    self.record_at(EventType::RUH_IMPLICITLY_MODIFIED, at, table);
                }
            }
            Note::Moved { at, lpn, pages, .. } => self.moved(at, lpn, pages, table),
        }
    }

    /// Reclaim units that have been open for too long: their handles get others.
    fn expire(&self, now: u64) {
        let expired = self.fdp.take_expired(now);
        if expired.is_empty() {
            return;
        }
        let table = self.namespaces.get();
        for (at, unit) in expired {
            // Not the next one, should somebody have filled this one meanwhile.
            if self.close_unit(at, Some(unit)).is_some() {
                self.record_at(EventType::RU_TIME_LIMIT_EXCEEDED, at, &table);
            }
        }
    }

    /// Makes a reclaim unit handle reference another reclaim unit, if it references `unit` or none is given.
    /// Returns how many pages of the old one had been written; `None` when it was empty and has stayed.
    pub(super) fn close_unit(&self, at: Placement, unit: Option<u32>) -> Option<u32> {
        let flash = self.media.flash()?;
        flash.watch().expect(at);
        let written = flash.with(&mut OpList::default(), |ftl, chip| {
            let open = ftl.open_unit(at)?;
            if unit.is_none_or(|unit| unit == open.unit) { ftl.close(at, chip) } else { None }
        });
        flash.watch().unexpect(at);
        written
    }

    /// NVM Subsystem Reset: power has been away from the flash, and units that were open are not written any
    /// further.
    pub(crate) fn close_units_at_reset(&self) {
        let fdp = &self.fdp;
        let Some(configuration) = fdp.configuration() else { return };
        for handle in 0..configuration.handles() {
            for group in 0..configuration.geometry.groups {
                let at = Placement { handle, group };
                if self.close_unit(at, None).is_some() {
                    let event = Event::new(EventType::RESET_MODIFIED_RUHS, Timestamp::default());
                    fdp.record(handle, event.with_location(ReclaimGroup(group), Ruhid(handle)));
                }
            }
        }
    }

    /// Controller level reset: events are recorded as it was saved.
    pub(crate) fn reset_placement(&self) {
        self.fdp.reset();
        if let Some(flash) = self.media.flash() {
            flash.watch().want_moves(self.fdp.wants_moves());
        }
    }

    /// Records an event of a reclaim unit handle. When one namespace alone uses the handle, it is that one's.
    fn record_at(&self, event_type: EventType, at: Placement, table: &NamespaceTable) {
        let event = Event::new(event_type, Timestamp::default());
        let event = event.with_location(ReclaimGroup(at.group), Ruhid(at.handle));
        self.fdp.record(
            at.handle,
            match owner(table, at) {
                Some((nsid, id)) => event.with_nsid(nsid).with_placement_id(id),
                None => event,
            },
        );
    }

    /// Data has been moved: that is an event when it was initially isolated (Base 5.1.12.1.31.2.1).
    fn moved(&self, at: Option<Placement>, lpn: u32, pages: u32, table: &NamespaceTable) {
        let fdp = &self.fdp;
        let Some((nsid, lba, per_page)) = block_of(table, lpn) else { return };
        // FFFFh is that many or more (NVM 4.1.4.5).
        let blocks = pages.saturating_mul(per_page).min(u32::from(u16::MAX)) as u16;
        let event = Event::new(EventType::MEDIA_REALLOCATED, Timestamp::default())
            .with_media_reallocated(MediaReallocated::new(blocks, Some(lba)));
        let Some(at) = at else {
            // A unit with data of several handles: which of them the rest was written with is not known any
            // more, nor is that it was all of this namespace.
            return fdp.record_for_any(event);
        };
        let isolation = fdp.geometry().handles.get(usize::from(at.handle)).copied();
        if isolation != Some(Isolation::Initially) {
            return;
        }
        let event = event.with_location(ReclaimGroup(at.group), Ruhid(at.handle)).with_nsid(nsid);
        let id = table.get(nsid).and_then(|namespace| namespace.handles.id_of(at));
        fdp.record(
            at.handle,
            match id {
                Some(id) => event.with_placement_id(id),
                None => event,
            },
        );
    }
}

/// The only namespace that uses a reclaim unit handle, and its placement identifier there.
fn owner(table: &NamespaceTable, at: Placement) -> Option<(Nsid, PlacementId)> {
    let mut users = table.iter().filter_map(|namespace| Some((namespace.nsid, namespace.handles.id_of(at)?)));
    let first = users.next()?;
    users.next().is_none().then_some(first)
}

/// Namespace and first block of a logical page of the device, and how many blocks it has; `None` when it
/// belongs to no namespace of blocks.
fn block_of(table: &NamespaceTable, lpn: u32) -> Option<(Nsid, Lba, u32)> {
    let offset = u64::from(lpn) * PAGE_BYTES;
    let (chunk, within) = (offset / CHUNK_BYTES, offset % CHUNK_BYTES);
    table.iter().find_map(|namespace| {
        let Contents::Blocks(blocks) = &namespace.contents else { return None };
        let index = blocks.chunks.iter().position(|&owned| u64::from(owned) == chunk)?;
        let byte = index as u64 * CHUNK_BYTES + within;
        Some((namespace.nsid, Lba(byte >> blocks.block_shift), (PAGE_BYTES >> blocks.block_shift) as u32))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flash::{FlashConfig, FlashGeometry};
    use crate::{MemoryStore, SsdConfig};

    /// No host action does this: it is what a layer does with a unit that cannot be programmed any further.
    #[test]
    fn a_unit_that_the_controller_gives_up_is_an_event_of_its_own_and_one_that_is_full_is_none() {
        let geometry =
            FlashGeometry { unit_bytes: 64 << 10, groups: 1, handles: vec![Isolation::Initially; 2] };
        let flash = Some(FlashConfig { geometry, ..FlashConfig::default() });
        let config = SsdConfig { flash, fdp: Some(0), ..SsdConfig::block(16 << 20, 4096) };
        let store = MemoryStore::new(config.store_bytes().unwrap()).unwrap();
        let ssd = Ssd::new(config, Box::new(store)).unwrap();
        let clock = Clock::manual();
        assert!(ssd.fdp.set_events(1, &EventType::NAMED, true, false));
        let at = Placement { handle: 1, group: 0 };
        let give_up_after = |pages: u32| {
            ssd.media.flash().unwrap().with(&mut OpList::default(), |ftl, chip| {
                for lpn in 0..pages {
                    ftl.write(lpn, at, chip).unwrap();
                }
                ftl.close(at, chip)
            });
            ssd.attend_now(&clock);
            (ssd.fdp.events_page(true), ssd.fdp.events_page(false))
        };
        // 16 pages are a unit.
        assert_eq!(give_up_after(16), (vec![0; 4096], vec![0; 4096]));
        let (hosts, controllers) = give_up_after(15);
        assert_eq!(hosts, [0; 4096]);
        let mut event = [0; 64];
        // Type 81h; placement identifier 1 of namespace 1, group 0, handle 1.
        (event[0], event[1], event[2], event[12], event[34]) = (0x81, 0b111, 1, 1, 1);
        event[4..12].copy_from_slice(&controllers[68..76]);
        assert_eq!((controllers[0], &controllers[64..128]), (1, &event[..]));
        assert_eq!(controllers[128..], [0; 3968]);
    }
}
