//! A file line by line, and saying where a bad one is.

use std::io::{BufRead, Read};

use anyhow::{Context, Result};

use super::{Extent, REQUESTS_MAX, Request};
use crate::exit::usage;

/// Longest line, in bytes.
const LINE_MAX: usize = 4096;
/// Characters of a bad line that an error shows.
const SHOWN_MAX: usize = 120;
/// Most files, or devices, of a trace.
const FILES_MAX: usize = 1024;

/// Lines that are not blank, with their numbers.
pub(super) struct Lines<R> {
    name: String,
    input: R,
    buffer: Vec<u8>,
    /// Number of the line in `buffer`, from 1.
    number: u64,
    /// The line in `buffer` was only looked at.
    is_next: bool,
    files: Vec<String>,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(name: &str, input: R) -> Self {
        let name = name.to_owned();
        Self { name, input, buffer: Vec::new(), number: 0, is_next: false, files: Vec::new() }
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

    /// Number of a file or a device, in the order in which they are named.
    pub(super) fn file(&mut self, file: &str) -> Result<u16> {
        if let Some(at) = self.files.iter().position(|known| known == file) {
            return Ok(at as u16);
        }
        if self.files.len() == FILES_MAX {
            return Err(self.refuse(&format!("the trace names more than {FILES_MAX} files")));
        }
        self.files.push(file.to_owned());
        Ok((self.files.len() - 1) as u16)
    }

    /// Adds the pages of a request, if it has any.
    pub(super) fn add(&self, to: &mut Vec<Request>, extent: Extent, file: u16, stream: u16) -> Result<()> {
        if let Some((first, pages)) = extent.pages().map_err(|reason| self.refuse(&reason))? {
            if to.len() == REQUESTS_MAX {
                return Err(self.refuse(&format!("the trace has more than {REQUESTS_MAX} requests")));
            }
            to.push(Request { first, pages, stream, file, kind: extent.kind });
        }
        Ok(())
    }
}
