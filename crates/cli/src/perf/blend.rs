//! What makes the commands of a lane differ from each other, beyond reads and writes of one size.

use std::fmt;
use std::str::FromStr;

use unvme::Size;

use super::addresses::Random;
use crate::numbers;

/// Sizes of a mix.
const SIZES_MAX: usize = 64;
/// Largest weight of a size.
const WEIGHT_MAX: u32 = 1000;
/// Where the streams of the seed begin that choose what a command is: those of addresses have the first.
const STREAMS: u64 = 1 << 40;

const SYNTAX: &str = "expected sizes with weights of 1 to 1000, such as 4K:70,64K:20,128K:10";

/// The value of `--size-mix`: sizes of commands in bytes, each with its weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SizeMix(Vec<(u64, u32)>);

impl FromStr for SizeMix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut sizes: Vec<(u64, u32)> = Vec::new();
        for part in text.split(',') {
            let (size, weight) = part.split_once(':').ok_or_else(|| format!("`{part}`; {SYNTAX}"))?;
            let size = numbers::bytes(size).ok().filter(|&size| size > 0);
            let weight = numbers::u32(weight).ok().filter(|weight| (1..=WEIGHT_MAX).contains(weight));
            let (Some(size), Some(weight)) = (size, weight) else {
                return Err(format!("`{part}`; {SYNTAX}"));
            };
            if sizes.iter().any(|(known, _)| *known == size) {
                return Err(format!("{} is there twice; {SYNTAX}", Size(size)));
            }
            sizes.push((size, weight));
        }
        match sizes.len() {
            0..=SIZES_MAX => Ok(Self(sizes)),
            count => Err(format!("{count} sizes are more than {SIZES_MAX}; {SYNTAX}")),
        }
    }
}

impl fmt::Display for SizeMix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (size, weight)) in self.0.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{}:{weight}", Size(*size))?;
        }
        Ok(())
    }
}

impl SizeMix {
    pub(super) fn largest(&self) -> u64 {
        self.0.iter().map(|(size, _)| *size).max().unwrap_or(0)
    }

    /// The first size that is not whole blocks.
    pub(super) fn broken(&self, block_bytes: u64) -> Option<u64> {
        self.0.iter().map(|(size, _)| *size).find(|size| !size.is_multiple_of(block_bytes))
    }

    /// Sizes and weights, in the order typed.
    pub(super) fn sizes(&self) -> &[(u64, u32)] {
        &self.0
    }

    fn weight(&self) -> u64 {
        self.0.iter().map(|(_, weight)| u64::from(*weight)).sum()
    }

    /// Mean size of a command, rounded down to whole bytes.
    pub(super) fn mean(&self) -> u64 {
        let sum: u128 = self.0.iter().map(|(size, weight)| u128::from(*size) * u128::from(*weight)).sum();
        (sum / u128::from(self.weight().max(1))) as u64
    }
}

/// What a job says of its commands.
#[derive(Clone, Debug, Default)]
pub(super) struct Recipe {
    pub(super) sizes: Option<SizeMix>,
    /// Share of the commands that do not read which deallocate, 0 to 100.
    pub(super) trim_percent: u8,
    /// A flush goes out after so many writes.
    pub(super) flush_every: Option<u32>,
}

impl Recipe {
    fn is_plain(&self) -> bool {
        self.sizes.is_none() && self.trim_percent == 0 && self.flush_every.is_none()
    }
}

/// What a command does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// It reads or writes.
    #[default]
    Data,
    /// Dataset Management: its unit is not needed any more.
    Trim,
    /// What has been completed before becomes durable.
    Flush,
}

/// A command as it was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) kind: Kind,
    /// Logical blocks.
    pub(super) blocks: u32,
}

/// What the next commands of one lane are, an endless series, and what those on their way are.
#[derive(Clone, Debug)]
pub(super) struct Blend {
    random: Random,
    /// Logical blocks of a unit.
    unit_blocks: u32,
    /// Blocks of a command, and the weights up to and with it; empty where all have the size of a unit.
    sizes: Vec<(u32, u64)>,
    trim_percent: u8,
    flush_every: Option<u32>,
    /// Writes since the last flush.
    unflushed: u32,
    sent: Vec<Sent>,
}

impl Blend {
    /// The series number `stream`; `None` where all commands are plain reads and writes.
    pub(super) fn new(recipe: &Recipe, unit: super::lane::Unit, seed: u64, stream: u64) -> Option<Self> {
        if recipe.is_plain() {
            return None;
        }
        let mut weights = 0;
        let sizes = recipe.sizes.iter().flat_map(|mix| mix.sizes()).map(|(size, weight)| {
            weights += u64::from(*weight);
            ((size / u64::from(unit.block_bytes)) as u32, weights)
        });
        Some(Self {
            sizes: sizes.collect(),
            trim_percent: recipe.trim_percent,
            flush_every: recipe.flush_every,
            unflushed: 0,
            random: Random::new(seed, STREAMS + stream),
            unit_blocks: unit.blocks,
            sent: Vec::new(),
        })
    }

    /// Keeps in mind what slots have sent, whatever that is.
    pub(super) fn of_a_trace(unit: super::lane::Unit) -> Self {
        let (sizes, trim_percent, flush_every) = (Vec::new(), 0, None);
        let (unflushed, random) = (0, Random::new(0, STREAMS));
        Self {
            sizes,
            trim_percent,
            flush_every,
            unflushed,
            random,
            unit_blocks: unit.blocks,
            sent: Vec::new(),
        }
    }

    /// Makes room for what so many slots send.
    pub(super) fn reserve(&mut self, slots: usize) {
        self.sent.resize(slots, Sent::default());
    }

    /// What the next command is, which reads if `read` says so.
    pub(super) fn next(&mut self, read: bool) -> Sent {
        if !read && self.trim_percent > 0 && self.random.below(100) < u64::from(self.trim_percent) {
            return Sent { kind: Kind::Trim, blocks: self.unit_blocks };
        }
        self.unflushed += u32::from(!read);
        let blocks = match self.sizes.last() {
            None => self.unit_blocks,
            Some((largest, weights)) => {
                let drawn = self.random.below(*weights);
                let chosen = self.sizes.iter().find(|(_, up_to)| drawn < *up_to);
                chosen.map_or(*largest, |(blocks, _)| *blocks)
            }
        };
        Sent { kind: Kind::Data, blocks }
    }

    /// True when the next command is to be a flush.
    pub(super) fn is_flush_due(&self) -> bool {
        self.flush_every.is_some_and(|every| self.unflushed >= every)
    }

    /// A flush, which is not due again before as many writes.
    pub(super) fn flush(&mut self) -> Sent {
        self.unflushed = 0;
        Sent { kind: Kind::Flush, blocks: 0 }
    }

    /// A read of a whole unit.
    pub(super) fn whole(&self) -> Sent {
        Sent { kind: Kind::Data, blocks: self.unit_blocks }
    }

    /// Keeps in mind what a slot has sent.
    pub(super) fn keep(&mut self, slot: u32, sent: Sent) {
        if let Some(place) = self.sent.get_mut(slot as usize) {
            *place = sent;
        }
    }

    /// What a slot has sent last.
    pub(super) fn of(&self, slot: u32) -> Sent {
        self.sent.get(slot as usize).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::lane::Unit;
    use super::*;

    const UNIT: Unit = Unit { block_bytes: 512, blocks: 256, part_blocks: 256 };

    fn series(recipe: &Recipe, stream: u64) -> Vec<Sent> {
        let mut blend = Blend::new(recipe, UNIT, 1, stream).expect("not plain");
        (0..10_000).map(|_| blend.next(false)).collect()
    }

    #[test]
    fn sizes_have_weights_and_a_mean() {
        let mix: SizeMix = "4K:70,64K:20,128K:10".parse().expect("a mix");
        assert_eq!(mix.sizes(), [(4096, 70), (65536, 20), (131_072, 10)]);
        assert_eq!((mix.largest(), mix.mean()), (131_072, 29_081));
        assert_eq!((mix.broken(512), mix.broken(8192)), (None, Some(4096)));
        assert_eq!(mix.to_string(), "4K:70,64K:20,128K:10");
        for bad in ["", "4K", "4K:", ":1", "4K:0", "0:1", "4K:1001", "4K:x", "4K:1,", "4K:-1", "x:1"] {
            let error = bad.parse::<SizeMix>().expect_err(bad);
            assert!(error.contains(SYNTAX), "{bad}: {error}");
        }
        let twice = "4K:1,4096:2".parse::<SizeMix>().expect_err("twice");
        assert!(twice.starts_with("4K is there twice"), "{twice}");
        let many: Vec<String> = (1..=65).map(|size| format!("{size}:1")).collect();
        let many = many.join(",").parse::<SizeMix>().expect_err("many");
        assert!(many.starts_with("65 sizes are more than 64"), "{many}");
    }

    #[test]
    fn commands_have_the_sizes_of_the_mix_in_their_shares() {
        let recipe =
            Recipe { sizes: Some("4K:70,64K:20,128K:10".parse().expect("a mix")), ..Recipe::default() };
        let drawn = series(&recipe, 0);
        let times = |blocks| drawn.iter().filter(|sent| sent.blocks == blocks).count();
        assert_eq!(times(8) + times(128) + times(256), drawn.len());
        assert!((6_800..7_200).contains(&times(8)), "{}", times(8));
        assert!((1_850..2_150).contains(&times(128)), "{}", times(128));
        assert_eq!(series(&recipe, 0), drawn);
        assert_ne!(series(&recipe, 1), drawn);
        assert!(Blend::new(&Recipe::default(), UNIT, 1, 0).is_none());
    }

    #[test]
    fn deallocations_are_of_whole_units_and_take_their_share_of_what_does_not_read() {
        let sizes = Some("4K:1".parse().expect("a mix"));
        let recipe = Recipe { sizes, trim_percent: 10, ..Recipe::default() };
        let trims: Vec<Sent> =
            series(&recipe, 0).into_iter().filter(|sent| sent.kind == Kind::Trim).collect();
        assert!((900..1_100).contains(&trims.len()), "{}", trims.len());
        assert!(trims.iter().all(|sent| sent.blocks == UNIT.blocks));
        let mut blend = Blend::new(&recipe, UNIT, 1, 0).expect("a blend");
        assert!((0..1_000).all(|_| blend.next(true) == Sent { kind: Kind::Data, blocks: 8 }));
    }

    #[test]
    fn a_flush_is_due_after_so_many_writes_and_not_after_reads() {
        let recipe = Recipe { flush_every: Some(3), ..Recipe::default() };
        let mut blend = Blend::new(&recipe, UNIT, 1, 0).expect("a blend");
        let mut due = |read| {
            blend.next(read);
            let due = blend.is_flush_due();
            if due {
                assert_eq!(blend.flush().kind, Kind::Flush);
            }
            due
        };
        let dues: Vec<bool> = [false, true, false, true, false, false, false, false].map(&mut due).to_vec();
        assert_eq!(dues, [false, false, false, false, true, false, false, true]);
    }
}
