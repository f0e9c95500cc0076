//! Sets of CPUs as the SDK's masks can name them.

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

/// CPUs that a mask can name: 0 to 63.
pub const CPUS_MAX: u32 = u64::BITS;

/// A set of CPUs, each 0 to 63. Bit `n` of the mask is CPU `n`.
///
/// Parses what a configuration says, see [`CpuSet::from_str`]; displays as a list, `0-3,8`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CpuSet(pub u64);

/// The text names no set of CPUs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotCpus {
    /// Not a hexadecimal number, or one of more than 64 bits.
    #[error(
        "`{0}` is no CPU mask; expected up to 16 hexadecimal digits such as F or 0x00FF, or a list such as \"0-3,8\""
    )]
    Mask(String),
    /// Looks like a list, and a part of it is no CPU and no range of CPUs.
    #[error("`{0}` is no list of CPUs from 0 to 63; expected one such as \"0-3,8\"")]
    List(String),
}

impl CpuSet {
    /// No CPU.
    pub const EMPTY: Self = Self(0);

    /// The one CPU, or none when its number is above 63.
    pub fn one(cpu: u32) -> Self {
        Self(1u64.checked_shl(cpu).unwrap_or(0))
    }

    /// The CPUs that this process may run on, up to CPU 63: those of the first call's thread, at the first
    /// call. Later calls say the same, so that a thread that was pinned since does not make the machine look
    /// smaller.
    ///
    /// CPU 0 where the system does not tell, or allows only CPUs above 63.
    pub fn of_process() -> Self {
        static CPUS: OnceLock<CpuSet> = OnceLock::new();
        *CPUS.get_or_init(|| {
            let allowed = rustix::thread::sched_getaffinity(None);
            let allowed = allowed.map_or(Self::EMPTY, |set| {
                (0..CPUS_MAX).filter(|&cpu| set.is_set(cpu as usize)).map(Self::one).collect()
            });
            if allowed.is_empty() { Self::one(0) } else { allowed }
        })
    }

    /// Whether there is no CPU in it.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Number of CPUs.
    pub fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether it has this CPU.
    pub fn contains(self, cpu: u32) -> bool {
        !Self::one(cpu).intersection(self).is_empty()
    }

    /// CPUs in either.
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// CPUs in both.
    pub fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// CPUs in this and not in the other.
    pub fn difference(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The CPUs, lowest first.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = u32> {
        (0..CPUS_MAX).filter(move |&cpu| self.contains(cpu))
    }

    /// The lowest `count` CPUs, or all where there are fewer.
    pub fn lowest(self, count: u32) -> Self {
        self.iter().take(count as usize).map(Self::one).collect()
    }

    /// The CPU whose turn it is when all take turns, lowest first; `None` of an empty set.
    pub fn turn(self, turn: usize) -> Option<u32> {
        let turn = turn.checked_rem(self.len() as usize)?;
        self.iter().nth(turn)
    }

    fn from_mask(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
        // `from_str_radix` would take a sign.
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        u64::from_str_radix(digits, 16).ok().map(Self)
    }

    fn from_list(text: &str) -> Option<Self> {
        let cpu = |text: &str| {
            let text = text.trim();
            let decimal = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            text.parse().ok().filter(|&cpu: &u32| decimal && cpu < CPUS_MAX)
        };
        let mut set = Self::EMPTY;
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (cpu(first)?, cpu(last)?);
            if first > last {
                return None;
            }
            set = (first..=last).map(Self::one).fold(set, Self::union);
        }
        Some(set)
    }
}

impl FromStr for CpuSet {
    type Err = NotCpus;

    /// A list of CPUs in decimal when it has a `-` or a `,`, as in `0-3,8`; otherwise a mask in hexadecimal,
    /// with or without `0x`: `10` is CPU 4, and CPU 10 alone is `10-10`.
    fn from_str(text: &str) -> Result<Self, NotCpus> {
        let text = text.trim();
        if text.contains(['-', ',']) {
            Self::from_list(text).ok_or_else(|| NotCpus::List(text.into()))
        } else {
            Self::from_mask(text).ok_or_else(|| NotCpus::Mask(text.into()))
        }
    }
}

impl FromIterator<CpuSet> for CpuSet {
    fn from_iter<I: IntoIterator<Item = Self>>(sets: I) -> Self {
        sets.into_iter().fold(Self::EMPTY, Self::union)
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.pad("none");
        }
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for cpu in self.iter() {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == cpu => *last = cpu,
                _ => ranges.push((cpu, cpu)),
            }
        }
        let shown: Vec<_> = ranges
            .into_iter()
            .map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") })
            .collect();
        f.pad(&shown.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_is_hexadecimal_with_and_without_its_prefix() {
        for (text, mask) in [
            ("F", 0xf),
            ("0xF", 0xf),
            ("0XfF", 0xff),
            ("0f", 0xf),
            ("10", 0x10),
            ("1000000", 1 << 24),
            ("2000000", 1 << 25),
            ("00FF", 0xff),
            ("0", 0),
            ("1e3", 0x1e3),
            (" c ", 0xc),
            ("ffffffffffffffff", u64::MAX),
            ("000000000000000000000001", 1),
        ] {
            assert_eq!(text.parse(), Ok(CpuSet(mask)), "{text:?}");
        }
    }

    #[test]
    fn what_has_a_dash_or_a_comma_is_a_list_in_decimal() {
        for (text, mask) in [
            ("0-3,8", 0x10f),
            ("10-10", 1 << 10),
            ("0,1", 3),
            ("0-63", u64::MAX),
            ("63,0", 1 << 63 | 1),
            (" 1 - 2 , 4", 0x16),
        ] {
            assert_eq!(text.parse(), Ok(CpuSet(mask)), "{text:?}");
        }
    }

    #[test]
    fn what_names_no_cpus_is_refused() {
        for text in ["", "0x", "G", "0xG", "+1", "1.5", "10000000000000000", "0x0x1", "é", "_1"] {
            assert_eq!(text.parse::<CpuSet>(), Err(NotCpus::Mask(text.into())), "{text:?}");
        }
        for text in
            ["-", ",", "-1", "3,", ",3", "3-", "0-64", "64,0", "5-3", "0x1-0x3", "a-f", "1--2", "+1,2"]
        {
            assert_eq!(text.parse::<CpuSet>(), Err(NotCpus::List(text.into())), "{text:?}");
        }
    }

    #[test]
    fn a_set_is_shown_as_a_list() {
        for (mask, shown) in
            [(0, "none"), (1, "0"), (0x10f, "0-3,8"), (1 << 63 | 5, "0,2,63"), (u64::MAX, "0-63")]
        {
            assert_eq!(CpuSet(mask).to_string(), shown);
        }
    }

    #[test]
    fn turns_go_round() {
        let set = CpuSet(0x8000_0000_0000_0014);
        assert_eq!([0, 1, 2, 3, usize::MAX].map(|n| set.turn(n)), [2, 4, 63, 2, 2].map(Some));
        assert_eq!(CpuSet::EMPTY.turn(7), None);
    }

    #[test]
    fn this_process_has_a_cpu() {
        assert!(!CpuSet::of_process().is_empty());
        assert_eq!(CpuSet::of_process(), CpuSet::of_process());
    }
}
