//! Sets of CPUs as the kernel lists them.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// CPUs are numbered below this: the most that a kernel is built for (`NR_CPUS` on x86-64 and arm64).
pub const CPU_NUMBERS: u32 = 8192;

/// A set of CPUs of any machine. Parses and displays as the kernel's lists, `0-3,8`; the empty set is an
/// empty list. Serializes as that text.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cpus(BTreeSet<u32>);

/// A text is no list of CPUs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no list of CPUs; expected one such as 0-3,8 with numbers below {CPU_NUMBERS}")]
pub struct NotAList(pub String);

impl Cpus {
    /// The set of one CPU.
    pub fn one(cpu: u32) -> Self {
        Self(BTreeSet::from([cpu]))
    }

    /// True when no CPU is in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of CPUs.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True when the CPU is in it.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.contains(&cpu)
    }

    /// The lowest CPU.
    pub fn first(&self) -> Option<u32> {
        self.0.first().copied()
    }

    /// The CPUs, lowest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// CPUs in both.
    pub fn intersection(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).copied().collect())
    }

    /// CPUs in this set and not in the other.
    pub fn difference(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0).copied().collect())
    }

    /// Adds a CPU.
    pub fn insert(&mut self, cpu: u32) {
        self.0.insert(cpu);
    }

    /// The set as a mask of 64 bits. `None` when a CPU above 63 is in it.
    pub fn mask(&self) -> Option<u64> {
        self.iter().try_fold(0u64, |mask, cpu| Some(mask | 1u64.checked_shl(cpu)?))
    }
}

impl FromIterator<u32> for Cpus {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        Self(cpus.into_iter().collect())
    }
}

impl Extend<u32> for Cpus {
    fn extend<I: IntoIterator<Item = u32>>(&mut self, cpus: I) {
        self.0.extend(cpus);
    }
}

impl FromStr for Cpus {
    type Err = NotAList;

    fn from_str(text: &str) -> Result<Self, NotAList> {
        let wrong = || NotAList(text.trim().chars().take(80).collect());
        let number = |digits: &str| {
            let is_decimal = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse::<u32>().ok().filter(|&cpu| is_decimal && cpu < CPU_NUMBERS).ok_or_else(wrong)
        };
        let mut cpus = Self::default();
        if text.trim().is_empty() {
            return Ok(cpus);
        }
        for part in text.trim().split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(wrong());
            }
            cpus.extend(first..=last);
        }
        Ok(cpus)
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpus: Vec<u32> = self.iter().collect();
        let runs = cpus.chunk_by(|one, next| one + 1 == *next).map(|run| match run {
            [only] => only.to_string(),
            _ => format!("{}-{}", run[0], run[run.len() - 1]),
        });
        f.pad(&runs.collect::<Vec<_>>().join(","))
    }
}

impl Serialize for Cpus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_and_shown_as_the_kernel_writes_it() {
        for text in ["", "0", "0-3,8", "0-95", "1,3,5", "0-23,48-71"] {
            assert_eq!(text.parse::<Cpus>().expect(text).to_string(), text);
        }
        assert_eq!(" 0-1\n".parse::<Cpus>().expect("blanks").len(), 2);
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in ["a", "-1", "3-", "5-3", "0-8192", "0,,1", "+1", "0-99999999999", "1 2"] {
            assert!(text.parse::<Cpus>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_mask_has_the_first_64_cpus() {
        assert_eq!("0-1,24".parse::<Cpus>().expect("a list").mask(), Some(0x0100_0003));
        assert_eq!("63".parse::<Cpus>().expect("a list").mask(), Some(1 << 63));
        assert_eq!("0,64".parse::<Cpus>().expect("a list").mask(), None);
    }
}
