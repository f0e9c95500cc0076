//! A file line by line, and saying where a bad one is.

use std::collections::{BTreeSet, HashMap};
use std::io::{BufRead, Read};

use anyhow::{Context, Result};

use super::{Extent, Kind, Request, Take};
use crate::exit::usage;

/// Longest line, in bytes.
const LINE_MAX: usize = 4096;
/// Characters of a bad line that an error shows.
const SHOWN_MAX: usize = 120;
/// Most files, or devices, of a trace: their numbers have 16 bits.
const FILES_MAX: usize = 1 << 16;
/// Names of files that an error lists.
const NAMES_SHOWN: usize = 16;

/// Lines that are not blank, with their numbers.
pub(super) struct Lines<R> {
    name: String,
    input: R,
    buffer: Vec<u8>,
    /// Number of the line in `buffer`, from 1.
    number: u64,
    /// The line in `buffer` was only looked at.
    is_next: bool,
    files: HashMap<String, u16>,
    /// Files that are taken; all when there are none here.
    wanted: BTreeSet<String>,
    /// Files that were named and are not taken.
    others: BTreeSet<String>,
}

impl<R: BufRead> Lines<R> {
    /// Lines of a trace of which the files `wanted` are taken, or all when none is named.
    pub(super) fn new(name: &str, input: R, wanted: &[String]) -> Self {
        Self {
            name: name.to_owned(),
            input,
            buffer: Vec::new(),
            number: 0,
            is_next: false,
            files: HashMap::new(),
            wanted: wanted.iter().cloned().collect(),
            others: BTreeSet::new(),
        }
    }

    /// The next line, which [`Lines::next`] returns again.
    pub(super) fn peek(&mut self) -> Result<Option<&str>> {
        if !self.is_next && !self.advance()? {
            return Ok(None);
        }
        self.is_next = true;
        Ok(Some(self.text()))
    }

    /// The next line without what is blank around it; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<&str>> {
        if !std::mem::take(&mut self.is_next) && !self.advance()? {
            return Ok(None);
        }
        Ok(Some(self.text()))
    }

    fn text(&self) -> &str {
        // `advance` has checked it.
        str::from_utf8(&self.buffer).unwrap_or_default().trim()
    }

    /// Reads lines until one is not blank. False at the end.
    fn advance(&mut self) -> Result<bool> {
        loop {
            self.buffer.clear();
            let mut some = (&mut self.input).take(LINE_MAX as u64 + 1);
            let read =
                some.read_until(b'\n', &mut self.buffer).with_context(|| format!("read {}", self.name))?;
            if read == 0 {
                return Ok(false);
            }
            self.number += 1;
            if self.buffer.len() > LINE_MAX {
                return Err(self.refuse(&format!("the line has more than {LINE_MAX} bytes")));
            }
            if str::from_utf8(&self.buffer).is_err() {
                return Err(self.refuse("the line is not text"));
            }
            if !self.text().is_empty() {
                return Ok(true);
            }
        }
    }

    /// A usage error about the line that was returned last.
    pub(super) fn refuse(&self, reason: &str) -> anyhow::Error {
        let text = String::from_utf8_lossy(&self.buffer);
        let shown: String = text
            .trim()
            .chars()
            .take(SHOWN_MAX)
            .map(|shown| if shown.is_control() { char::REPLACEMENT_CHARACTER } else { shown })
            .collect();
        let more = if text.trim().chars().count() > SHOWN_MAX { " ..." } else { "" };
        usage(format!("{}:{}: {reason}: `{shown}{more}`", self.name, self.number))
    }

    /// A usage error about the line that was only looked at.
    pub(super) fn refuse_next(&self, reason: &str) -> anyhow::Error {
        self.refuse(reason)
    }

    /// A usage error about the trace as a whole.
    pub(super) fn refuse_all(&self, reason: &str) -> anyhow::Error {
        usage(format!("{}: {reason}", self.name))
    }

    /// Number of a file or a device, in the order in which they are named; `None` for one that is not taken.
    fn file(&mut self, file: &str) -> Result<Option<u16>> {
        if let Some(&known) = self.files.get(file) {
            return Ok(Some(known));
        }
        if !self.wanted.is_empty() && !self.wanted.contains(file) {
            if self.others.len() < NAMES_SHOWN && !self.others.contains(file) {
                self.others.insert(file.to_owned());
            }
            return Ok(None);
        }
        if self.files.len() == FILES_MAX {
            return Err(self.refuse(&format!("the trace names more than {FILES_MAX} files")));
        }
        let number = self.files.len() as u16;
        self.files.insert(file.to_owned(), number);
        Ok(Some(number))
    }

    /// There was something of each device that was asked for, be it only writes that count. Errors: a usage
    /// error that names what is not there, and what is.
    pub(super) fn check_wanted(&self, reads: bool) -> Result<()> {
        let Some(missing) = self.wanted.iter().find(|name| !self.files.contains_key(*name)) else {
            return Ok(());
        };
        let mut names: Vec<&str> =
            self.others.iter().chain(self.files.keys()).map(String::as_str).take(NAMES_SHOWN).collect();
        names.sort_unstable();
        let there = match names.as_slice() {
            [] => "it names no devices".to_owned(),
            names => format!(
                "it {verb} {}",
                names.join(", "),
                verb = if reads { "has requests to" } else { "writes to" }
            ),
        };
        let more = if self.others.len() + self.files.len() < NAMES_SHOWN { "" } else { ", ..." };
        let nothing = if reads { "has no requests to" } else { "writes nothing to" };
        Err(usage(format!("--trace-device: {} {nothing} `{missing}`; {there}{more}", self.name)))
    }

    /// Hands on what is done to a file, if the file is taken and so is what is done.
    pub(super) fn give_of<T: Take>(&mut self, to: &mut T, extent: Extent, file: &str) -> Result<()> {
        if !T::READS && matches!(extent.kind, Kind::Read | Kind::Flush) {
            return Ok(());
        }
        match self.file(file)? {
            Some(file) => self.give(to, Request { extent, file, stream: 0, times: 1 }),
            None => Ok(()),
        }
    }

    /// Hands on a request.
    pub(super) fn give<T: Take>(&self, to: &mut T, request: Request) -> Result<()> {
        to.take(request).map_err(|reason| self.refuse(&reason))
    }
}
