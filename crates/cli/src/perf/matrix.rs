//! The values of `--matrix`.

use std::str::FromStr;

/// Most threads of a point.
const THREADS_MAX: u32 = 1024;
/// Most commands a queue takes.
const DEPTH_MAX: u32 = unvme::DEPTH_MAX as u32;

/// One `AXIS=LIST`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Axis {
    /// Numbers of threads.
    Threads(Vec<u32>),
    /// Commands outstanding.
    Depth(Vec<u32>),
}

impl FromStr for Axis {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some(("threads", values)) => Ok(Self::Threads(list(values, THREADS_MAX)?)),
            Some(("depth", values)) => Ok(Self::Depth(list(values, DEPTH_MAX)?)),
            _ => Err("expected threads=LIST or depth=LIST, such as threads=1,2 depth=1..256".to_owned()),
        }
    }
}

/// Numbers and doublings, in the order typed, each once.
fn list(text: &str, max: u32) -> Result<Vec<u32>, String> {
    let number = |text: &str| {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let value = text.parse::<u32>().ok().filter(|value| digits && (1..=max).contains(value));
        value.ok_or_else(|| format!("`{text}`: expected a number from 1 to {max}, or two with .. between"))
    };
    let mut values = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once("..").unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(format!("`{part}` goes backwards"));
        }
        let doubled = std::iter::successors(Some(first), |value| value.checked_mul(2));
        for value in doubled.take_while(|&value| value <= last) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_doubles_and_a_list_is_taken_as_it_is() {
        assert_eq!("threads=1,2".parse(), Ok(Axis::Threads(vec![1, 2])));
        assert_eq!("depth=1..256".parse(), Ok(Axis::Depth(vec![1, 2, 4, 8, 16, 32, 64, 128, 256])));
        assert_eq!("depth=3..20,4,3".parse(), Ok(Axis::Depth(vec![3, 6, 12, 4])));
        assert_eq!("depth=4095".parse(), Ok(Axis::Depth(vec![4095])));
    }

    #[test]
    fn anything_else_says_what_was_expected() {
        for (text, expected) in [
            ("depth", "expected threads=LIST or depth=LIST"),
            ("size=1", "expected threads=LIST or depth=LIST"),
            ("depth=", "expected a number from 1 to 4095"),
            ("depth=0", "expected a number from 1 to 4095"),
            ("depth=4096", "expected a number from 1 to 4095"),
            ("depth=1..", "expected a number from 1 to 4095"),
            ("depth=8..1", "goes backwards"),
            ("threads=+1", "expected a number from 1 to 1024"),
        ] {
            let message = text.parse::<Axis>().expect_err(text);
            assert!(message.contains(expected), "{text}: {message}");
        }
    }
}
