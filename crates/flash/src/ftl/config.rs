//! Geometry, handles, policies.

use super::policy::VictimPolicy;

/// Most physical pages: the map has 32-bit entries, one bit of which is a mark.
const PHYSICAL_PAGES_MAX: u64 = (1 << 31) - 2;
/// Most reclaim unit handles: what an 8-bit RUHID in common tools can name, and a placement handle list can
/// hold.
const HANDLES_MAX: usize = 128;
/// Most streams: their numbers have 16 bits.
const STREAMS_MAX: u64 = u16::MAX as u64;
/// Free units each group keeps: one that reclaim can always take as its destination, and one that hosts open
/// meanwhile.
pub(super) const FREE_UNITS_MIN: u32 = 2;

/// How a reclaim unit handle's data is kept apart from others' (RUHT).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Initially isolated: reclaim may put it beside data of other such handles.
    Initially,
    /// Persistently isolated: never beside another handle's.
    Persistently,
}

/// What a translation layer is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FtlConfig {
    /// Pages hosts see.
    pub logical_pages: u32,
    /// Reclaim units in all groups together, a multiple of `groups`.
    pub units: u32,
    /// Pages of a reclaim unit.
    pub unit_pages: u32,
    /// Reclaim groups, at least 1.
    pub groups: u16,
    /// Reclaim unit handles, 1 to 128 of them.
    pub handles: Vec<Isolation>,
    /// Which unit is reclaimed next.
    pub policy: VictimPolicy,
    /// Difference between the most and the least erased unit beyond which cold data is moved to even them
    /// out; `None` for no wear levelling.
    pub wear_spread_max: Option<u32>,
    /// Erasures after which a unit is bad; `None` for no end.
    pub endurance: Option<u32>,
    /// Units that are bad from the beginning, as the factory found them. They are taken from the
    /// overprovisioning.
    pub bad_units: Vec<u32>,
    /// Units that reclaim keeps free beyond the reserve, in all groups together, for media on which one step
    /// makes all free units ready to be programmed ([`Nand::is_ready`](super::Nand::is_ready)): the more of
    /// them, the fewer steps. Units that go bad are taken from these first.
    pub pool_units: u32,
    /// Seed of everything random.
    pub seed: u64,
}

/// Why a layer cannot be made, or a page not be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FtlError {
    /// A value of the configuration is impossible.
    #[error("{key}: {value} is not possible, expected {expected}")]
    Config {
        /// Name of the field.
        key: &'static str,
        /// What it was.
        value: String,
        /// What it should be.
        expected: String,
    },
    /// There is not enough memory for the map.
    #[error("no memory for the map of a flash translation layer")]
    Memory,
    /// So many units are bad that nothing can be written any more. What was written stays readable.
    #[error("too many reclaim units are bad: the media is read-only")]
    WornOut,
    /// [`Nand::admit`](super::Nand::admit) did not let a unit be opened; it may do so later.
    #[error("no reclaim unit could be opened")]
    Refused,
    /// An image from which a layer was to be restored cannot be true.
    #[error("not the image of such a translation layer: {0}")]
    Image(String),
}

impl FtlConfig {
    /// A layer with one handle and one group, greedy.
    pub fn simple(logical_pages: u32, units: u32, unit_pages: u32) -> Self {
        Self {
            logical_pages,
            units,
            unit_pages,
            groups: 1,
            handles: vec![Isolation::Initially],
            policy: VictimPolicy::Greedy,
            wear_spread_max: None,
            endurance: None,
            bad_units: Vec::new(),
            pool_units: 0,
            seed: 1,
        }
    }

    /// Logical pages of so many units with this overprovisioning: physical / logical - 1.
    pub fn logical_pages_of(units: u32, unit_pages: u32, overprovisioning: f64) -> u32 {
        (f64::from(units) * f64::from(unit_pages) / (1.0 + overprovisioning)) as u32
    }

    /// Destination units of reclaim per group that can be open at a time. What wear levelling moves is colder
    /// than the rest and has destinations of its own: beside other data it would be moved again and again.
    pub(super) fn destinations(&self) -> u32 {
        let own = self.handles.iter().filter(|&&handle| handle == Isolation::Persistently).count();
        let shared = usize::from(own < self.handles.len());
        let kinds = if self.wear_spread_max.is_some() { 2 } else { 1 };
        ((own + shared) * kinds) as u32
    }

    /// Units that hold no data hosts can count on: those that can be open at a time, destinations of reclaim
    /// included, and those each group keeps free.
    pub fn reserve_units(&self) -> u32 {
        let per_group = self.handles.len() as u32 + self.destinations() + FREE_UNITS_MIN;
        per_group.saturating_mul(self.groups.into())
    }

    /// Overprovisioning as sold: physical pages / logical pages - 1.
    pub fn overprovisioning(&self) -> f64 {
        f64::from(self.units) * f64::from(self.unit_pages) / f64::from(self.logical_pages) - 1.0
    }

    /// Overprovisioning that reclaim has to work with when every unit of the reserve and of the pool is in
    /// use.
    pub fn effective_overprovisioning(&self) -> f64 {
        let units = self.units.saturating_sub(self.reserve_units().saturating_add(self.pool_units));
        f64::from(units) * f64::from(self.unit_pages) / f64::from(self.logical_pages) - 1.0
    }

    /// Units that must not be bad for all logical pages to be kept and overwritten: with fewer the media is
    /// read-only.
    pub fn needed_units(&self) -> u32 {
        // With more room outside of the reserve than valid pages, some unit always has a page to win.
        (self.logical_pages / self.unit_pages.max(1)).saturating_add(1).saturating_add(self.reserve_units())
    }

    /// Units that are not bad from the beginning.
    pub(super) fn good_units(&self) -> u32 {
        let mut bad = self.bad_units.clone();
        bad.sort_unstable();
        bad.dedup();
        self.units - bad.len() as u32
    }

    /// Checks everything. Errors: [`FtlError::Config`] naming the field, and the least or most that works.
    pub fn check(&self) -> Result<(), FtlError> {
        let refuse = |key, value: String, expected: String| Err(FtlError::Config { key, value, expected });
        if self.groups == 0 {
            return refuse("groups", "0".into(), "at least 1".into());
        }
        if !(1..=HANDLES_MAX).contains(&self.handles.len()) {
            return refuse("handles", self.handles.len().to_string(), format!("1 to {HANDLES_MAX}"));
        }
        if !self.units.is_multiple_of(self.groups.into()) {
            let expected = format!("a multiple of the {} reclaim groups", self.groups);
            return refuse("units", self.units.to_string(), expected);
        }
        let streams = (self.handles.len() as u64 + u64::from(self.destinations())) * u64::from(self.groups);
        if streams > STREAMS_MAX {
            let streams = format!("{} with {} handles", self.groups, self.handles.len());
            return refuse(
                "groups",
                streams,
                format!("at most {STREAMS_MAX} append points in all groups together"),
            );
        }
        if self.unit_pages < 2 {
            return refuse("unit_pages", self.unit_pages.to_string(), "at least 2".into());
        }
        let physical = u64::from(self.units) * u64::from(self.unit_pages);
        if physical > PHYSICAL_PAGES_MAX {
            let expected = format!("at most {PHYSICAL_PAGES_MAX} pages in all units together");
            return refuse("units", format!("{} of {} pages", self.units, self.unit_pages), expected);
        }
        if self.logical_pages == 0 {
            return refuse("logical_pages", "0".into(), "at least 1".into());
        }
        if matches!(self.policy, VictimPolicy::DChoice(0)) {
            return refuse("policy", "0 choices".into(), "at least 1".into());
        }
        if let Some(unit) = self.bad_units.iter().find(|&&unit| unit >= self.units) {
            return refuse("bad_units", format!("unit {unit}"), format!("units below {}", self.units));
        }
        let needed = self.needed_units();
        if self.good_units() < needed {
            let expected = format!(
                "at least {needed} units of {} pages for {} logical pages: {} of them are open or free at any time",
                self.unit_pages,
                self.logical_pages,
                self.reserve_units()
            );
            return refuse("units", self.good_units().to_string(), expected);
        }
        Ok(())
    }
}
