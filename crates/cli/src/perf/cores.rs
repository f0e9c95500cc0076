//! The value of `-c`, and binding a thread to a core.

use std::str::FromStr;

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Cores as typed: a mask or a list, ascending, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CoreList(pub(super) Vec<usize>);

const SYNTAX: &str = "expected a mask of cores such as 0x3, or a list such as 0-1,3";

impl FromStr for CoreList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut cores = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            Some(digits) => mask(digits)?,
            None => list(text)?,
        };
        cores.sort_unstable();
        cores.dedup();
        match cores.last() {
            None => Err(format!("no core is in it; {SYNTAX}")),
            Some(&last) if last >= CpuSet::MAX_CPU => {
                Err(format!("cores are numbered 0 to {}", CpuSet::MAX_CPU - 1))
            }
            Some(_) => Ok(Self(cores)),
        }
    }
}

fn mask(digits: &str) -> Result<Vec<usize>, String> {
    if digits.is_empty() || digits.len() > CpuSet::MAX_CPU / 4 {
        return Err(SYNTAX.to_owned());
    }
    let mut cores = Vec::new();
    for (place, digit) in digits.chars().rev().enumerate() {
        let digit = digit.to_digit(16).ok_or(SYNTAX)?;
        cores.extend((0..4).filter(|bit| digit >> bit & 1 == 1).map(|bit| place * 4 + bit));
    }
    Ok(cores)
}

fn list(text: &str) -> Result<Vec<usize>, String> {
    let number = |text: &str| {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<usize>().ok().filter(|&core| digits && core < CpuSet::MAX_CPU).ok_or(SYNTAX)
    };
    let mut cores = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(format!("{part} goes backwards; {SYNTAX}"));
        }
        cores.extend(first..=last);
    }
    Ok(cores)
}

/// The cores this process may use, ascending.
pub(crate) fn available() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None).context("ask which cores there are")?;
    Ok((0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect())
}

/// Cores as people write them: `0-1, 3`.
pub(super) fn display(cores: &[usize]) -> String {
    let runs = cores.chunk_by(|one, next| one + 1 == *next);
    let runs = runs.map(|run| match run {
        [only] => only.to_string(),
        _ => format!("{}-{}", run[0], run[run.len() - 1]),
    });
    runs.collect::<Vec<_>>().join(", ")
}

/// Keeps the calling thread on a core.
pub(crate) fn bind(core: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).with_context(|| format!("bind a thread to core {core}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_and_a_list_name_the_same_cores() {
        for (text, cores) in [
            ("0x1", vec![0]),
            ("0xB", vec![0, 1, 3]),
            ("0x80000000000000001", vec![0, 67]),
            ("3", vec![3]),
            ("0-1,3", vec![0, 1, 3]),
            ("3,1,1,0-1", vec![0, 1, 3]),
        ] {
            assert_eq!(text.parse(), Ok(CoreList(cores)), "{text}");
        }
    }

    #[test]
    fn what_is_neither_says_what_was_expected() {
        for text in ["", "0x", "0x0", "0xg", "a", "1,", "1-", "-1", "2-1", "+1", "1 2", "99999999"] {
            let message = text.parse::<CoreList>().expect_err(text);
            assert!(message.contains("such as 0x3, or a list such as 0-1,3"), "{text}: {message}");
        }
    }

    #[test]
    fn cores_are_shown_as_runs() {
        assert_eq!(display(&[0, 1, 2, 4, 6, 7]), "0-2, 4, 6-7");
    }
}
