//! Where a trace comes from: a file or standard input, as it is or packed.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{Context, Result};
use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// First bytes of what gzip has packed, and of what zstd has.
const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const BUFFER_BYTES: usize = 1 << 16;

/// Opens a trace; `-` is standard input. Errors: it cannot be read.
pub(super) fn open(path: &Path) -> Result<Box<dyn BufRead>> {
    if path.as_os_str() == "-" {
        return unpack("-", BufReader::with_capacity(BUFFER_BYTES, io::stdin()));
    }
    let name = path.display().to_string();
    let file = File::open(path).with_context(|| format!("read {name}"))?;
    unpack(&name, BufReader::with_capacity(BUFFER_BYTES, file))
}

fn unpack(name: &str, mut input: impl BufRead + 'static) -> Result<Box<dyn BufRead>> {
    // A pipe may give the first bytes one by one.
    let mut first = Vec::with_capacity(ZSTD.len());
    let start = input.by_ref().take(ZSTD.len() as u64).read_to_end(&mut first);
    start.with_context(|| format!("read {name}"))?;
    let (is_gzip, is_zstd) = (first.starts_with(&GZIP), first == ZSTD);
    let whole = BufReader::new(io::Cursor::new(first).chain(input));
    if is_gzip {
        return Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(whole))));
    }
    if is_zstd {
        let frames = Frames { input: whole, decoder: FrameDecoder::new(), is_open: false };
        return Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, frames)));
    }
    Ok(Box::new(whole))
}

/// The frames of a file of zstd, one after the other.
struct Frames<R> {
    input: R,
    decoder: FrameDecoder,
    /// A frame has begun and not ended.
    is_open: bool,
}

impl<R: BufRead> Frames<R> {
    /// Begins the next frame that holds data. False at the end.
    fn open_next(&mut self) -> io::Result<bool> {
        while !self.input.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.input) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    io::copy(&mut self.input.by_ref().take(length.into()), &mut io::sink())?;
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        Ok(false)
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while !out.is_empty() {
            if !self.is_open && !self.open_next()? {
                break;
            }
            self.is_open = true;
            while self.decoder.can_collect() < out.len() && !self.decoder.is_finished() {
                let wanted = BlockDecodingStrategy::UptoBytes(out.len() - self.decoder.can_collect());
                self.decoder.decode_blocks(&mut self.input, wanted).map_err(io::Error::other)?;
            }
            let read = self.decoder.read(out)?;
            if read > 0 {
                return Ok(read);
            }
            self.is_open = false;
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `printf 'w,0,4096\nw,4096,4096\n'`, packed by gzip 1.12 and by zstd 1.5.4.
    const PLAIN: &str = "w,0,4096\nw,4096,4096\n";
    const GZ: &[u8] = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x2b\xd7\x31\xd0\x31\x31\xb0\x34\xe3\x2a\x07\x53\x10\x36\x00\xf8\x04\x3a\x81\x15\x00\x00\x00";
    const ZST: &[u8] = b"\x28\xb5\x2f\xfd\x04\x58\xa9\x00\x00\x77\x2c\x30\x2c\x34\x30\x39\x36\x0a\x77\x2c\x34\x30\x39\x36\x2c\x34\x30\x39\x36\x0a\x38\x50\xd2\x70";

    fn unpacked(bytes: &[u8]) -> io::Result<String> {
        let mut text = String::new();
        let mut input = unpack("t", io::Cursor::new(bytes.to_vec())).expect("it is in memory");
        input.read_to_string(&mut text).map(|_| text)
    }

    #[test]
    fn what_gzip_and_zstd_have_packed_is_read_as_it_was_in_one_piece_or_several() {
        assert_eq!(unpacked(PLAIN.as_bytes()).unwrap(), PLAIN);
        assert_eq!(unpacked(b"w").unwrap(), "w");
        // A frame to be skipped, as pzstd writes it.
        let skipped = [ZST, &[0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 9, 9], ZST].concat();
        let twice = [PLAIN, PLAIN].concat();
        assert_eq!(unpacked(GZ).unwrap(), PLAIN);
        assert_eq!(unpacked(ZST).unwrap(), PLAIN);
        assert_eq!(unpacked(&[GZ, GZ].concat()).unwrap(), twice);
        assert_eq!(unpacked(&skipped).unwrap(), twice);
    }

    #[test]
    fn what_is_cut_is_an_error() {
        for packed in [GZ, ZST] {
            for length in [5, packed.len() / 2, packed.len() - 3] {
                assert!(unpacked(&packed[..length]).is_err(), "{length} bytes");
            }
        }
    }
}
