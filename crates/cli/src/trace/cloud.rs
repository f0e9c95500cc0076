//! Block traces of clouds, as they are published. Each volume is a file.
//!
//! | of | a line |
//! |---|---|
//! | Alibaba | `device_id,opcode,offset,length,timestamp`: R or W, bytes, microseconds |
//! | Tencent (CBS) | `timestamp,offset,size,iotype,volume_id`: seconds, sectors of 512 bytes, 1 for a write |

use std::io::BufRead;

use anyhow::Result;

use super::lines::Lines;
use super::{Extent, Kind, SECTOR_BYTES, Take};

/// Cells of a line of either.
const CELLS: usize = 5;

/// Whose trace it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cloud {
    Alibaba,
    Tencent,
}

impl Cloud {
    /// Names of the columns, where a trace begins with them.
    fn header(self) -> &'static str {
        match self {
            Self::Alibaba => "device_id,opcode,offset,length,timestamp",
            Self::Tencent => "timestamp,offset,size,iotype,volume_id",
        }
    }

    /// True for a line of such a trace, or the names of its columns.
    pub(super) fn is_line(self, line: &str) -> bool {
        self.is_header(line) || self.parse(line).is_ok()
    }

    fn is_header(self, line: &str) -> bool {
        let names = line.split(',').map(|cell| cell.trim().to_ascii_lowercase());
        names.eq(self.header().split(','))
    }

    /// The volume, and what is done there.
    fn parse(self, line: &str) -> Result<(&str, Extent), String> {
        let mut found = [""; CELLS];
        let count = line.split(',').count();
        if count != CELLS {
            return Err(format!("expected {CELLS} columns, {}, not {count}", self.header()));
        }
        for (to, cell) in found.iter_mut().zip(line.split(',')) {
            *to = cell.trim();
        }
        let [volume, op, offset, bytes, time] = match self {
            Self::Alibaba => found,
            Self::Tencent => {
                let [time, offset, size, op, volume] = found;
                [volume, op, offset, size, time]
            }
        };
        let number = |what: &str, text: &str| {
            text.parse::<u64>().map_err(|_| format!("expected {what}, not `{text}`"))
        };
        number("the number of a volume", volume)?;
        // Some collectors write fractions.
        let at = time.parse::<f64>().ok().filter(|&time| time >= 0.0);
        let at = at.ok_or_else(|| format!("expected a timestamp, not `{time}`"))?;
        let kind = match (self, op) {
            (Self::Alibaba, "W" | "w") | (Self::Tencent, "1") => Kind::Write,
            (Self::Alibaba, "R" | "r") | (Self::Tencent, "0") => Kind::Read,
            (Self::Alibaba, _) => return Err(format!("expected R or W, not `{op}`")),
            (Self::Tencent, _) => return Err(format!("expected 0 for a read or 1 for a write, not `{op}`")),
        };
        let (unit, ns) = if self == Self::Alibaba { (1, 1e3) } else { (SECTOR_BYTES, 1e9) };
        let length = |what: &str, text: &str| {
            let units = number(what, text)?;
            units.checked_mul(unit).ok_or_else(|| format!("{text} sectors are beyond every device"))
        };
        let (offset, bytes) = (length("an offset", offset)?, length("a length", bytes)?);
        Ok((volume, Extent { kind, offset, bytes, at_ns: (at * ns) as u64 }))
    }
}

pub(super) fn read<T: Take>(cloud: Cloud, lines: &mut Lines<impl BufRead>) -> Result<T> {
    if lines.peek()?.is_some_and(|line| cloud.is_header(line)) {
        lines.next()?;
    }
    let mut requests = T::default();
    while let Some(line) = lines.next()? {
        match cloud.parse(line) {
            Ok((volume, extent)) => {
                let volume = volume.to_owned();
                lines.give_of(&mut requests, extent, &volume)?;
            }
            Err(reason) => return Err(lines.refuse(&reason)),
        }
    }
    Ok(requests)
}
