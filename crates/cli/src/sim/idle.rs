//! Times at which the host does nothing.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use unvme_flash::PAGE_BYTES;

use super::clock::VirtualClock;
use super::flash::Flash;
use crate::numbers;
use unvme_flash::ftl::Ftl;

/// Longest pause.
const TIME_MAX: Duration = Duration::from_secs(86_400);
/// Pages that reclaim moves at a time while nobody writes, as the virtual SSD has it.
const STEP_PAGES: u32 = 16;

/// A pause of the host whenever it has written so much, typed as `10ms/64M`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Idle {
    pub(super) time: Duration,
    pub(super) pages: u64,
}

impl FromStr for Idle {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let error = || format!("expected a time up to a day and a size, such as 10ms/64M, not `{text}`");
        let (time, size) = text.split_once('/').ok_or_else(error)?;
        let digits = time.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let number: u64 = digits.parse().map_err(|_| error())?;
        let unit = match &time[digits.len()..] {
            "us" => 1,
            "ms" => 1_000,
            "s" => 1_000_000,
            _ => return Err(error()),
        };
        let time = number.checked_mul(unit).map(Duration::from_micros).ok_or_else(error)?;
        let bytes = numbers::bytes(size).map_err(|_| error())?;
        if time.is_zero() || time > TIME_MAX || bytes == 0 || !bytes.is_multiple_of(PAGE_BYTES) {
            return Err(error());
        }
        Ok(Self { time, pages: bytes / PAGE_BYTES })
    }
}

impl fmt::Display for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = crate::report::scale::bytes(self.pages * PAGE_BYTES);
        write!(f, "{:?} after each {size}", self.time)
    }
}

impl Idle {
    /// Lets a pause go by: reclaim works ahead, in virtual time as long as there is any.
    pub(super) fn pass<const TIMED: bool>(
        self,
        ftl: &mut Ftl,
        flash: &mut Flash<TIMED>,
        clock: Option<&mut VirtualClock>,
    ) {
        let groups = ftl.config().groups;
        let Some(clock) = clock else {
            (0..groups).for_each(|group| while ftl.reclaim(group, STEP_PAGES, flash) {});
            return;
        };
        let end = clock.now() + self.time.as_nanos() as u64;
        let mut more = true;
        while more && clock.now() < end {
            more = false;
            for group in 0..groups {
                more |= ftl.reclaim(group, STEP_PAGES, flash);
            }
            clock.work(flash.notes.ops());
            flash.notes.clear();
        }
        clock.wait_until(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_a_time_and_what_is_written_between_two() {
        let idle = |text: &str| text.parse::<Idle>();
        let of = |micros, pages| Ok(Idle { time: Duration::from_micros(micros), pages });
        assert_eq!(
            [idle("10ms/64M"), idle("1s/4K"), idle("5us/8192")],
            [of(10_000, 16_384), of(1_000_000, 1), of(5, 2)]
        );
        assert_eq!(
            of(10_000, 16_384).map(|idle| idle.to_string()),
            Ok::<_, String>("10ms after each 64 MiB".into())
        );
        for text in
            ["", "10ms", "10/64M", "0s/64M", "10ms/0", "10ms/100", "ms/64M", "25h/4K", "90000s/4K", "-1s/4K"]
        {
            assert!(idle(text).is_err_and(|error| error.contains("such as 10ms/64M")), "{text}");
        }
    }
}
