//! Which blocks a command is about, and moving bytes between them and files.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;
use unvme::Block;

use crate::count::count;
use crate::exit::usage;
use crate::numbers;

/// Bytes that are moved at a time, a multiple of every block size.
const CHUNK_BYTES: usize = 1 << 20;

/// Blocks, as nvme-cli names them.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Range {
    /// First block
    #[arg(short, long, value_name = "LBA", default_value = "0", value_parser = numbers::u64)]
    pub(crate) start_block: u64,
    /// Number of blocks minus one, as in the command itself and in nvme-cli: 0 is one block
    #[arg(short = 'c', long, value_name = "COUNT", value_parser = numbers::u64)]
    pub(crate) block_count: Option<u64>,
}

/// Looking at a command instead of, or besides, its outcome.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Look {
    /// Print the command before it is sent
    #[arg(short = 'V', long)]
    pub(crate) show_command: bool,
    /// Print the command, and do not send it
    #[arg(short = 'w', long)]
    pub(crate) dry_run: bool,
    /// Print how long it took, on standard error
    #[arg(short = 't', long)]
    pub(crate) latency: bool,
}

/// A command that is looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Looked {
    pub(crate) opcode: u8,
    pub(crate) nsid: u32,
    pub(crate) start: u64,
    pub(crate) blocks: u64,
    /// Most blocks that one command of the device takes.
    pub(crate) blocks_max: u64,
    /// Bits 31:16 of dword 12.
    pub(crate) control: u16,
    pub(crate) dspec: u16,
}

impl Looked {
    /// A command for blocks of a namespace, whose opcode is to be filled in.
    pub(crate) fn new(block: &Block, start: u64, blocks: u64) -> Self {
        let blocks_max = block.namespace().transfer_blocks_max().into();
        Self { opcode: 0, nsid: block.nsid().0, start, blocks, blocks_max, control: 0, dspec: 0 }
    }
}

impl Look {
    /// Prints the command when that is wanted; false when it is not to be sent. The lines are nvme-cli's, on
    /// standard error where standard output has the data.
    pub(crate) fn show(self, command: Looked, to_stderr: bool) -> io::Result<bool> {
        if self.show_command || self.dry_run {
            let mut out: Box<dyn Write> =
                if to_stderr { Box::new(io::stderr()) } else { Box::new(io::stdout()) };
            writeln!(out, "opcode       : {:02x}", command.opcode)?;
            writeln!(out, "nsid         : {:02x}", command.nsid)?;
            writeln!(out, "flags        : 00")?;
            writeln!(out, "control      : {:04x}", command.control)?;
            writeln!(out, "nblocks      : {:04x}", command.blocks.saturating_sub(1))?;
            writeln!(out, "slba         : {:x}", command.start)?;
            writeln!(out, "dsmgmt       : {:08x}", u32::from(command.dspec) << 16)?;
            if command.blocks > command.blocks_max {
                let commands = command.blocks.div_ceil(command.blocks_max.max(1));
                writeln!(out, "sent as {commands} commands of at most {} blocks", command.blocks_max)?;
            }
        }
        Ok(!self.dry_run)
    }

    /// Runs what is to be timed, and says how long it took.
    pub(crate) fn timed<T>(self, name: &str, run: impl FnOnce() -> Result<T>) -> Result<T> {
        let start = Instant::now();
        let done = run()?;
        if self.latency {
            writeln!(io::stderr(), " latency: {name}: {} us", start.elapsed().as_micros())?;
        }
        Ok(done)
    }
}

/// Where data comes from or goes to.
#[derive(Clone, Debug, Args)]
pub(crate) struct Data {
    /// File with the data; standard input or output when left out, or `-`
    #[arg(short, long, value_name = "FILE")]
    pub(crate) data: Option<PathBuf>,
    /// Bytes of data, such as 4096 or 1M; decides the number of blocks when --block-count does not
    #[arg(short = 'z', long, value_name = "BYTES", value_parser = numbers::bytes)]
    pub(crate) data_size: Option<u64>,
}

impl Data {
    pub(crate) fn path(&self) -> Option<&Path> {
        self.data.as_deref().filter(|path| path.as_os_str() != "-")
    }
}

/// A number of blocks, and of the bytes on them that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) blocks: u64,
    pub(crate) bytes: u64,
}

impl Range {
    /// What the options say; `None` when they leave the length to the input.
    pub(crate) fn extent(self, data_size: Option<u64>, block_bytes: u32) -> Result<Option<Extent>> {
        let block = u64::from(block_bytes);
        let blocks = match (self.block_count, data_size) {
            (None, None) => return Ok(None),
            (Some(count), _) => {
                count.checked_add(1).ok_or_else(|| usage("--block-count: too many blocks"))?
            }
            (None, Some(0)) => return Err(usage("--data-size 0: expected at least one byte")),
            (None, Some(bytes)) => bytes.div_ceil(block),
        };
        let whole = blocks
            .checked_mul(block)
            .ok_or_else(|| usage(format!("{blocks} blocks: more bytes than 64 bits count")))?;
        match data_size {
            Some(bytes) if bytes > whole || bytes == 0 => Err(usage(format!(
                "--data-size {bytes}: --block-count names {}, {whole} bytes",
                count(blocks, "block")
            ))),
            bytes => Ok(Some(Extent { blocks, bytes: bytes.unwrap_or(whole) })),
        }
    }

    /// How many blocks a command without data is about: one where nothing is said. Refuses blocks beyond the
    /// end.
    pub(crate) fn blocks(self, block: &Block) -> Result<u64> {
        let blocks = self.extent(None, block.block_bytes())?.map_or(1, |extent| extent.blocks);
        self.check(block, blocks)?;
        Ok(blocks)
    }

    /// Refuses blocks beyond the end before the first of them is touched.
    pub(crate) fn check(self, block: &Block, blocks: u64) -> Result<()> {
        match self.start_block.checked_add(blocks) {
            Some(end) if end <= block.blocks() => Ok(()),
            _ => Err(usage(format!(
                "{} from block {}: namespace {} has {} blocks of {} bytes",
                count(blocks, "block"),
                self.start_block,
                block.nsid(),
                block.blocks(),
                block.block_bytes()
            ))),
        }
    }
}

/// Reads a file, or standard input without one or for `-`, up to `most` bytes.
pub(crate) fn read_input(path: Option<&Path>, most: u64) -> Result<Vec<u8>> {
    let mut data = Vec::new();
    match path.filter(|path| path.as_os_str() != "-") {
        Some(path) => {
            let what = || format!("read {}", path.display());
            File::open(path).with_context(what)?.take(most).read_to_end(&mut data).with_context(what)?;
        }
        None => {
            io::stdin().lock().take(most).read_to_end(&mut data).context("read standard input")?;
        }
    }
    Ok(data)
}

/// What came of reading the input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    /// Bytes that were sent to the device.
    pub(crate) bytes: u64,
    /// Zeroes among them, behind the end of the input.
    pub(crate) padding: u64,
}

/// Reads the input and hands it to `sink` in whole blocks: first block, data. With an extent exactly that
/// much is taken, with zeroes behind the end of the input; without one all of the input, which must be whole
/// blocks.
pub(crate) fn pump(
    data: &Data,
    extent: Option<Extent>,
    start: u64,
    block_bytes: u32,
    mut sink: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<Moved> {
    let mut input: Box<dyn Read> = match data.path() {
        Some(path) => Box::new(File::open(path).with_context(|| format!("open {}", path.display()))?),
        None => Box::new(io::stdin().lock()),
    };
    let what =
        || data.path().map_or("read standard input".to_owned(), |path| format!("read {}", path.display()));
    let block = u64::from(block_bytes);
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut moved = Moved::default();
    let mut ended = false;
    loop {
        let wanted = extent.map_or(u64::MAX, |extent| extent.blocks * block - moved.bytes);
        if wanted == 0 || ended && extent.is_none() {
            return Ok(moved);
        }
        let length = wanted.min(CHUNK_BYTES as u64) as usize;
        // Of the last block only the bytes that count are taken.
        let counts = extent.map_or(length as u64, |extent| extent.bytes.saturating_sub(moved.bytes));
        let taken = match ended {
            true => 0,
            false => fill(&mut input, &mut buffer[..length.min(counts as usize)]).with_context(what)?,
        };
        ended |= taken < length;
        let send = match extent {
            Some(_) => length,
            None if (taken as u64).is_multiple_of(block) => taken,
            None => {
                return Err(usage(format!(
                    "the input has {}: no whole blocks of {block}; after {} nothing was done; \
                     name the length with --data-size to fill the last block up with zeroes",
                    count(moved.bytes + taken as u64, "byte"),
                    count(moved.bytes, "byte")
                )));
            }
        };
        buffer[taken..send].fill(0);
        if send > 0 {
            sink(start + moved.bytes / block, &buffer[..send])?;
        }
        moved.bytes += send as u64;
        moved.padding += (send - taken) as u64;
    }
}

/// Reads until the buffer is full or the input ends.
fn fill(input: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}

/// Reads blocks and writes the bytes that count to `out`.
pub(crate) fn drain(block: &mut Block, start: u64, extent: Extent, out: &mut dyn Write) -> Result<()> {
    let block_bytes = u64::from(block.block_bytes());
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut done = 0;
    while done < extent.blocks * block_bytes {
        let length = (extent.blocks * block_bytes - done).min(CHUNK_BYTES as u64) as usize;
        block.read_at(start + done / block_bytes, &mut buffer[..length])?;
        let counts = (length as u64).min(extent.bytes.saturating_sub(done)) as usize;
        out.write_all(&buffer[..counts])?;
        done += length as u64;
    }
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(block_count: Option<u64>) -> Range {
        Range { start_block: 0, block_count }
    }

    #[test]
    fn count_and_size_say_how_many_blocks() {
        let extent = |count, size| range(count).extent(size, 512).map_err(|e| e.to_string());
        assert_eq!(extent(None, None), Ok(None));
        assert_eq!(extent(Some(0), None), Ok(Some(Extent { blocks: 1, bytes: 512 })));
        assert_eq!(extent(Some(7), Some(100)), Ok(Some(Extent { blocks: 8, bytes: 100 })));
        assert_eq!(extent(None, Some(513)), Ok(Some(Extent { blocks: 2, bytes: 513 })));
        assert!(extent(Some(0), Some(513)).is_err_and(|e| e.contains("names 1 block, 512 bytes")));
        assert!(extent(None, Some(0)).is_err());
        assert!(extent(Some(u64::MAX), None).is_err());
        assert!(extent(Some(u64::MAX - 1), None).is_err());
    }

    /// What `pump` hands on: first block and bytes of each piece.
    type Pieces = Vec<(u64, Vec<u8>)>;

    fn pumped(input: &[u8], extent: Option<Extent>) -> Result<(Moved, Pieces)> {
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), input)?;
        let data = Data { data: Some(file.path().into()), data_size: None };
        let mut out = Vec::new();
        let moved = pump(&data, extent, 100, 512, |lba, bytes| {
            out.push((lba, bytes.to_vec()));
            Ok(())
        })?;
        Ok((moved, out))
    }

    #[test]
    fn input_without_a_length_is_taken_whole() {
        let input = vec![7; CHUNK_BYTES + 1024];
        let (moved, out) = pumped(&input, None).expect("whole blocks");
        assert_eq!(moved, Moved { bytes: input.len() as u64, padding: 0 });
        assert_eq!(out.iter().map(|(lba, _)| *lba).collect::<Vec<_>>(), [100, 100 + 2048]);
        assert_eq!(joined(&out), input);
        assert!(pumped(&[], None).expect("empty").1.is_empty());
        let message = pumped(&[1; 700], None).expect_err("no whole blocks").to_string();
        assert!(message.contains("700 bytes: no whole blocks of 512"), "{message}");
    }

    #[test]
    fn input_with_a_length_is_cut_or_filled_up() {
        let (moved, out) = pumped(&[7; 700], Some(Extent { blocks: 2, bytes: 1024 })).expect("filled up");
        assert_eq!(moved, Moved { bytes: 1024, padding: 324 });
        assert_eq!(out, [(100, [vec![7; 700], vec![0; 324]].concat())]);
        let (moved, out) = pumped(&[7; 4096], Some(Extent { blocks: 1, bytes: 100 })).expect("cut");
        assert_eq!(moved, Moved { bytes: 512, padding: 412 });
        assert_eq!(out, [(100, [vec![7; 100], vec![0; 412]].concat())]);
        let blocks = 2 * CHUNK_BYTES as u64 / 512;
        let (moved, out) = pumped(&[7; 1], Some(Extent { blocks, bytes: blocks * 512 })).expect("long");
        assert_eq!((moved.padding, joined(&out).len()), (blocks * 512 - 1, 2 * CHUNK_BYTES));
    }

    fn joined(pieces: &Pieces) -> Vec<u8> {
        pieces.iter().flat_map(|(_, bytes)| bytes.iter().copied()).collect()
    }
}
