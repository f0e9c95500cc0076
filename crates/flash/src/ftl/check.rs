//! The sums that have to agree.

use super::layer::Ftl;
use super::units::State;

/// Units of a layer up to which debug builds check its sums after every erasure; with more of them, now and
/// then.
const UNITS_CHECKED: u64 = 512;

/// What two ways of counting disagree about: a defect of the layer, or of the memory it is in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: counted {counted}, expected {expected}")]
pub struct SumError {
    /// What was counted, and of which unit or page.
    pub what: String,
    /// What was counted.
    pub counted: i128,
    /// What it should be.
    pub expected: i128,
}

/// What only the check needs. Counters of a restored layer need not be as recent as its units: what they
/// differ by stays.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    /// Pages that had been programmed in units erased since.
    pub(super) erased_written: u64,
    /// Pages programmed, units erased and pages of units erased by the counters, beyond what the units say.
    programmed: i128,
    erased_units: i128,
    erased_pages: i128,
}

fn agree(what: impl FnOnce() -> String, counted: i128, expected: i128) -> Result<(), SumError> {
    if counted == expected { Ok(()) } else { Err(SumError { what: what(), counted, expected }) }
}

impl Ftl {
    /// Checks everything there is to check, at any time: what [`Ftl::check_sums`] does, and each entry of the
    /// map against the physical page and its unit. Takes time in proportion to the number of pages. Errors:
    /// the first disagreement.
    pub fn check(&self) -> Result<(), SumError> {
        self.check_sums()?;
        let mut valid = vec![0_u32; self.units.units.len()];
        let mut mapped = 0_u64;
        for (lpn, ppn) in self.mapping() {
            let counted = self.owners.get(ppn as usize).map_or(-1, |&owner| i128::from(owner));
            agree(|| format!("logical page of physical page {ppn}"), counted, lpn.into())?;
            let unit = self.units.of(ppn);
            let written = self.unit(unit).written;
            let is_written = ppn - self.units.first_page(unit) < written;
            agree(
                || format!("pages of unit {unit} that are mapped and not written"),
                (!is_written).into(),
                0,
            )?;
            valid[unit as usize] += 1;
            mapped += 1;
        }
        agree(|| "mapped pages".into(), self.stats.mapped_pages.into(), mapped.into())?;
        for (unit, &counted) in (0..).zip(&valid) {
            agree(|| format!("valid pages of unit {unit}"), self.units.valid(unit).into(), counted.into())?;
        }
        Ok(())
    }

    /// Checks the sums: pages programmed are those of hosts and of reclaim, pages erased are those of the
    /// units that were, valid pages of all units are the mapped ones, the streams' counters add up to those
    /// of the layer, and every unit is where its state says. Takes time in proportion to the number of units.
    /// Errors: the first disagreement.
    pub fn check_sums(&self) -> Result<(), SumError> {
        let stats = &self.stats;
        let [programmed, erased_units, erased_pages] = self.beyond_units();
        let sums = &self.sums;
        agree(|| "pages programmed by hosts and reclaim".into(), programmed, sums.programmed)?;
        agree(|| "units erased".into(), erased_units, sums.erased_units)?;
        agree(|| "pages of units erased".into(), erased_pages, sums.erased_pages)?;
        let valid: u64 = (0..self.config.units).map(|unit| u64::from(self.units.valid(unit))).sum();
        agree(|| "valid pages of all units".into(), valid.into(), stats.mapped_pages.into())?;
        let sum = self.streams.sum();
        for (what, counted, expected) in [
            ("host pages", sum.host_pages, stats.host_pages),
            ("pages moved out", sum.moved_pages, stats.reclaim_pages),
            ("pages moved in", sum.received_pages, stats.reclaim_pages),
            ("units erased", sum.erased_units, stats.erased_units),
        ] {
            agree(|| format!("{what} of all streams"), counted.into(), expected.into())?;
        }
        self.check_states()
    }

    fn check_states(&self) -> Result<(), SumError> {
        let mut good = 0_u32;
        for group in 0..self.config.groups {
            let entry = &self.units.groups[usize::from(group)];
            let mut counts = [0_usize; 6];
            for unit in self.units.range_of(group) {
                let state = &self.units.units[unit as usize];
                good += u32::from(state.state != State::Bad && !state.is_failing);
                let (at, is_where_it_should) = match state.state {
                    State::Free => (0, entry.free.contains(&(state.erased, unit))),
                    State::Open => (1, self.streams.all[usize::from(state.stream)].unit == Some(unit)),
                    State::Closed if state.is_failing => (2, entry.failing.contains(&unit)),
                    State::Closed => (3, self.units.buckets.contains(unit)),
                    State::Victim => {
                        (4, self.victims[usize::from(group)].is_some_and(|victim| victim.unit == unit))
                    }
                    State::Bad => (5, self.units.valid(unit) == 0),
                };
                counts[at] += 1;
                let what = || format!("places where unit {unit}, which is {:?}, is expected", state.state);
                agree(what, is_where_it_should.into(), 1)?;
            }
            self.check_lists(group, &counts)?;
        }
        agree(|| "good units".into(), self.levelling.good().into(), good.into())
    }

    /// Lists of a group against how many of its units are free, open, failing, closed.
    fn check_lists(&self, group: u16, counts: &[usize; 6]) -> Result<(), SumError> {
        let entry = &self.units.groups[usize::from(group)];
        let closed = self.units.buckets.len(group.into());
        let open = |stream: &&super::streams::Stream| stream.unit.is_some() && stream.group == group;
        let room = self.units.recount(group) + self.streams.left_in(group)
            - (self.streams.kept(group) + i64::from(entry.pool)) * i64::from(self.config.unit_pages);
        for (what, counted, expected) in [
            ("free units", entry.free.len(), counts[0]),
            ("open units", self.streams.all.iter().filter(open).count(), counts[1]),
            ("failing units", entry.failing.len(), counts[2]),
            ("closed units", closed, counts[3]),
            ("closed units by age", self.units.oldest_first(group).count(), counts[3]),
        ] {
            agree(|| format!("{what} of group {group}"), counted as i128, expected as i128)?;
        }
        agree(|| format!("room of group {group}"), entry.room.into(), room.into())?;
        match self.units.buckets.misplaced(group.into()) {
            Some(unit) => agree(|| format!("place of unit {unit} by valid pages"), 0, 1),
            None => Ok(()),
        }
    }

    /// Pages programmed, units erased and pages of erased units by the counters, minus what the units say.
    fn beyond_units(&self) -> [i128; 3] {
        let stats = &self.stats;
        let mut written = i128::from(self.sums.erased_written);
        let mut erased = 0;
        for (unit, entry) in self.units.units.iter().enumerate() {
            written += i128::from(match entry.state {
                State::Open => self.streams.written(entry.stream.into()),
                _ => self.units.units[unit].written,
            });
            erased += i128::from(entry.erased);
        }
        let pages = i128::from(self.config.unit_pages);
        [
            i128::from(stats.media_pages()) + i128::from(stats.failed_pages) - written,
            i128::from(stats.erased_units) - erased,
            i128::from(stats.erased_pages) - erased * pages,
        ]
    }

    /// The sum check counts from here.
    pub(super) fn begin_sums(&mut self) {
        let [programmed, erased_units, erased_pages] = self.beyond_units();
        self.sums = Sums { programmed, erased_units, erased_pages, ..self.sums };
    }

    /// In debug builds, checks the sums after an erasure.
    #[inline]
    pub(super) fn assert_sums(&self) {
        if cfg!(debug_assertions) {
            let now_and_then = 1 + u64::from(self.config.units) / UNITS_CHECKED;
            if self.stats.erased_units.is_multiple_of(now_and_then) {
                let sums = self.check_sums();
                debug_assert_eq!(sums, Ok(()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::FtlConfig;
    use super::super::layer::Placement;
    use super::super::nand::{Nand, Opened, Origin, ProgramFailure};
    use super::*;

    struct Ideal;

    impl Nand for Ideal {
        fn open(&mut self, _opened: Opened) {}
        fn program(&mut self, _ppn: u32, _lpn: u32, _origin: Origin) -> Result<(), ProgramFailure> {
            Ok(())
        }
        fn close(&mut self, _unit: u32, _written: u32) {}
        fn erase(&mut self, _unit: u32) {}
    }

    fn used() -> Ftl {
        let mut ftl = Ftl::new(FtlConfig::simple(100, 32, 4)).unwrap();
        for lpn in (0..100).chain((0..100).step_by(7)).chain((0..100).step_by(3)) {
            ftl.write(lpn, Placement::default(), &mut Ideal).unwrap();
        }
        ftl.check().unwrap();
        ftl
    }

    #[test]
    fn every_sum_that_does_not_agree_is_found_and_named() {
        type Damage = fn(&mut Ftl);
        let damages: [(Damage, &str); 14] = [
            (|f| f.stats.host_pages += 1, "pages programmed by hosts and reclaim"),
            (|f| f.stats.reclaim_pages -= 1, "pages programmed by hosts and reclaim"),
            (|f| f.sums.erased_written += 1, "pages programmed by hosts and reclaim"),
            (|f| f.stats.erased_units += 1, "units erased"),
            (|f| f.stats.erased_pages += 1, "pages of units erased"),
            (|f| f.stats.mapped_pages += 1, "valid pages of all units"),
            (|f| f.streams.all[1].stats.host_pages += 1, "host pages of all streams"),
            (|f| f.streams.all[0].stats.moved_pages += 1, "pages moved out of all streams"),
            (|f| f.streams.all[1].stats.received_pages += 1, "pages moved in of all streams"),
            (|f| f.streams.all[0].stats.erased_units += 1, "units erased of all streams"),
            (|f| f.units.groups[0].room += 1, "room of group 0"),
            (|f| f.units.groups[0].free.clear(), "places where unit"),
            (|f| f.map.set(9, None), "mapped pages"),
            (|f| f.map.set(9, f.map.get(10)), "logical page of physical page"),
        ];
        for (number, (damage, expected)) in damages.into_iter().enumerate() {
            let mut ftl = used();
            damage(&mut ftl);
            let found = ftl.check().expect_err("a disagreement").what;
            assert!(found.starts_with(expected), "{number}: {found}, expected {expected}");
        }
    }
}
