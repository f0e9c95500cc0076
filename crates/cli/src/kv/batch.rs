//! `kv batch`.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use unvme::{BatchOp, Status};

use super::place::{Place, bytes_of, shown};
use crate::exit::{Failed, usage};
use crate::guide;
use crate::output::Output;
use crate::target::Force;
use crate::value::fields;

/// Operations that are handed to the device together.
const CHUNK: usize = 1024;
/// Most bytes of a line.
const LINE_BYTES_MAX: usize = 4 << 20;

/// Arguments of `kv batch`.
#[derive(Debug, Args)]
#[command(after_help = "\
Each line is one operation: `store KEY VALUE` or `delete KEY`. A key ends at the first blank, a
value at the end of the line; with --key-hex both are hexadecimal. The operations are done as if
one after another; a batch is not atomic, and one that fails does not stop the others.

Example:
  printf 'store a 1\\nstore b 2\\ndelete c\\n' | unvme kv batch 0000:02:00.0")]
pub(crate) struct Batch {
    #[command(flatten)]
    place: Place,
    /// File with the operations; standard input when left out, or `-`
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Keys and values are hexadecimal
    #[arg(short = 'x', long)]
    key_hex: bool,
    #[command(flatten)]
    force: Force,
    #[command(flatten)]
    output: Output,
}

/// An operation of a line.
#[derive(Debug, PartialEq, Eq)]
enum Op {
    Store { key: Vec<u8>, value: Vec<u8> },
    Delete(Vec<u8>),
}

impl Op {
    fn key(&self) -> &[u8] {
        match self {
            Self::Store { key, .. } | Self::Delete(key) => key,
        }
    }

    fn as_batch_op(&self) -> BatchOp<'_> {
        match self {
            Self::Store { key, value } => BatchOp::store(key, value),
            Self::Delete(key) => BatchOp::Delete(key),
        }
    }
}

/// What came of the operations so far.
#[derive(Default)]
struct Tally {
    done: u64,
    failed: u64,
    first: Option<String>,
}

impl Batch {
    pub(crate) fn run(self) -> Result<()> {
        let path = self.file.as_deref().filter(|path| path.as_os_str() != "-");
        let name = path.map_or("standard input".to_owned(), |path| path.display().to_string());
        let mut input: Box<dyn BufRead> = match path {
            Some(path) => Box::new(BufReader::new(File::open(path).with_context(|| format!("open {name}"))?)),
            None => Box::new(io::stdin().lock()),
        };
        let mut kv = self.place.open_to_change(self.force, "kv batch overwrites and destroys pairs")?;
        let mut tally = Tally::default();
        let mut ops = Vec::new();
        let mut line = Vec::new();
        for number in 1u64.. {
            line.clear();
            let more = read_line(&mut input, &mut line).with_context(|| format!("read {name}"))?;
            if more && !line.is_empty() {
                let op = parse(&line, self.key_hex);
                ops.push(op.map_err(|reason| {
                    usage(format!("{name}:{number}: {reason}; {} operations were done before", tally.done))
                })?);
            }
            if ops.len() >= CHUNK || !more {
                run_chunk(&mut kv, &ops, &mut tally)?;
                ops.clear();
            }
            if !more {
                break;
            }
        }
        kv.flush()?;
        let json = fields! { "done": tally.done, "failed": tally.failed };
        self.output
            .output
            .say(json, format!("batch: {} operations done, {} failed", tally.done, tally.failed))?;
        match tally.first {
            Some(first) => {
                Err(Failed(format!("batch: {} operations failed; the first: {first}", tally.failed)).into())
            }
            None => Ok(()),
        }
    }
}

/// Reads a line without its end; false at the end of the input.
fn read_line(input: &mut dyn BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    let bytes = io::Read::take(input, LINE_BYTES_MAX as u64 + 1).read_until(b'\n', line)?;
    if line.len() > LINE_BYTES_MAX {
        let reason = format!("a line of more than {LINE_BYTES_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    while line.pop_if(|byte| matches!(byte, b'\n' | b'\r')).is_some() {}
    Ok(bytes > 0)
}

fn run_chunk(kv: &mut unvme::Kv, ops: &[Op], tally: &mut Tally) -> Result<()> {
    let batch: Vec<BatchOp<'_>> = ops.iter().map(Op::as_batch_op).collect();
    let statuses = kv.batch(&batch)?;
    for (op, status) in ops.iter().zip(statuses) {
        // To delete what is not there leaves nothing to be done.
        let gone = matches!(op, Op::Delete(_)) && guide::is_missing(status);
        if status == Status::SUCCESS || gone {
            tally.done += 1;
        } else {
            tally.failed += 1;
            tally.first.get_or_insert_with(|| format!("{}: {}", shown(op.key()), guide::status_text(status)));
        }
    }
    Ok(())
}

fn parse(line: &[u8], is_hex: bool) -> Result<Op, String> {
    let split = |line: &[u8]| {
        let blank = line.iter().position(|&byte| byte == b' ' || byte == b'\t');
        blank.map(|blank| (line[..blank].to_vec(), line[blank + 1..].to_vec()))
    };
    let bytes = |word: Vec<u8>| match is_hex {
        true => bytes_of(&String::from_utf8_lossy(&word), true).map_err(|e| e.to_string()),
        false => Ok(word),
    };
    match split(line) {
        Some((word, rest)) if word == b"store" => {
            let (key, value) = split(&rest).unwrap_or((rest, Vec::new()));
            Ok(Op::Store { key: bytes(key)?, value: bytes(value)? })
        }
        Some((word, key)) if word == b"delete" => Ok(Op::Delete(bytes(key)?)),
        _ => Err("expected `store KEY VALUE` or `delete KEY`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_store_or_a_delete() {
        let store = |key: &[u8], value: &[u8]| Ok(Op::Store { key: key.into(), value: value.into() });
        assert_eq!(parse(b"store a some text ", false), store(b"a", b"some text "));
        assert_eq!(parse(b"store a", false), store(b"a", b""));
        assert_eq!(parse(b"store 00ff 7e", true), store(&[0, 0xff], &[0x7e]));
        assert_eq!(parse(b"delete a b", false), Ok(Op::Delete(b"a b".into())));
        for line in [&b"a 1"[..], b"store", b"delete", b"", b"Store a 1"] {
            assert!(parse(line, false).is_err_and(|e| e.contains("`delete KEY`")));
        }
        assert!(parse(b"store 0 1", true).is_err_and(|e| e.contains("hexadecimal")));
    }

    #[test]
    fn lines_end_with_or_without_a_carriage_return() {
        let mut input = io::Cursor::new(b"one\r\n\ntwo".to_vec());
        let mut lines = Vec::new();
        let mut line = Vec::new();
        while read_line(&mut input, &mut line).expect("read") {
            lines.push(std::mem::take(&mut line));
        }
        assert_eq!(lines, [&b"one"[..], b"", b"two"]);
    }
}
