//! Keys of a namespace, one after another.

use unvme_driver::{DmaBuf, KvVerdict};
use unvme_spec::kv::ListReader;
use unvme_spec::samsung_kv::{ITERATE_BUFFER_BYTES, IterateKeys, IterateType, Prefix, status};

use super::Kv;
use super::scan::{Order, Scan, Wanted, order_of};
use crate::Result;

/// Bytes of a page of keys.
const PAGE_BYTES: usize = ITERATE_BUFFER_BYTES as usize;
/// Bytes of a key that an iterator of the device compares.
const PREFIX_BYTES: usize = 4;

/// The keys of a keyspace, from [`Kv::list`], [`Kv::list_from`] or [`Kv::prefix`].
///
/// The Key Value Command Set lists keys of up to 16 bytes; a device with the vendor commands is then asked
/// for the longer ones, through one of its 16 iterators. The former come in the device's order, which is
/// ascending on most; the latter in any order. Pairs that are stored or deleted meanwhile may be listed or
/// not.
///
/// It ends with the first error. Dropping it closes the iterator.
#[derive(Debug)]
pub struct KeyIter<'a> {
    kv: &'a mut Kv,
    wanted: Wanted,
    keys: std::vec::IntoIter<Vec<u8>>,
    stage: Stage,
    /// What is left to iterate over.
    parts: Vec<Prefix>,
}

/// How far a listing is.
#[derive(Debug)]
enum Stage {
    /// By List.
    Listing(Scan),
    /// Between two iterators of the device.
    Opening,
    /// By the device's iterator of that number.
    Iterating(u8),
    Done,
}

impl Kv {
    /// All keys.
    ///
    /// # Errors
    /// [`crate::Error::Device`], [`crate::Error::Driver`].
    pub fn list(&mut self) -> Result<KeyIter<'_>> {
        self.list_wanted(Wanted::default())
    }

    /// The keys from `start` on, in byte order. There need not be such a key.
    ///
    /// # Errors
    /// As [`Kv::list`].
    pub fn list_from(&mut self, start: &[u8]) -> Result<KeyIter<'_>> {
        self.list_wanted(Wanted { from: start.to_vec(), ..Wanted::default() })
    }

    /// The keys that begin with `prefix`, which may be of any length.
    ///
    /// A device that lists in ascending order is asked for these keys alone; all others list everything.
    ///
    /// # Errors
    /// As [`Kv::list`].
    pub fn prefix(&mut self, prefix: &[u8]) -> Result<KeyIter<'_>> {
        self.list_wanted(Wanted { prefix: prefix.to_vec(), ..Wanted::default() })
    }

    fn list_wanted(&mut self, wanted: Wanted) -> Result<KeyIter<'_>> {
        let stage = if self.lists_by_command() {
            let order = self.order(&wanted)?;
            Stage::Listing(Scan::new(wanted.clone(), order, self.namespace.standard_key_bytes_max()))
        } else {
            Stage::Opening
        };
        let parts = vec![iterator_prefix(&wanted.prefix)];
        Ok(KeyIter { kv: self, wanted, keys: Vec::new().into_iter(), stage, parts })
    }

    fn lists_by_command(&self) -> bool {
        self.keyspace == 0 && self.namespace.has_standard()
    }

    /// The device's order, as far as it matters to this listing.
    fn order(&mut self, wanted: &Wanted) -> Result<Order> {
        if wanted.from.is_empty() && wanted.prefix.is_empty() {
            return Ok(Order::Unknown);
        }
        if self.order.is_none() {
            let (data, buf) = self.list_page(&[])?;
            // With few keys there is no order, and no need for one.
            self.order = order_of(ListReader::new(&data));
            self.keep(Some(buf));
        }
        Ok(self.order.unwrap_or(Order::Unknown))
    }

    /// What List returns from `start` on.
    fn list_page(&mut self, start: &[u8]) -> Result<(Vec<u8>, DmaBuf)> {
        let bytes = PAGE_BYTES.min(self.namespace.standard_value_bytes_max());
        let command = self.made(self.namespace.list(start, bytes))?;
        let buf = self.buffer(bytes)?;
        self.read_page("list", command, buf, bytes)
    }

    fn read_page(
        &mut self,
        what: &str,
        command: unvme_driver::KvCommand<'_>,
        buf: DmaBuf,
        bytes: usize,
    ) -> Result<(Vec<u8>, DmaBuf)> {
        let completion = self.run(command, Some(buf))?;
        self.check(what, completion.status)?;
        let buf = match completion.buf {
            Some(buf) => buf,
            // It goes missing only with the controller.
            None => self.buffer(bytes)?,
        };
        let mut data = vec![0; bytes];
        buf.read(0, &mut data);
        Ok((data, buf))
    }
}

impl KeyIter<'_> {
    /// Gets more keys, or gets on to the next stage.
    fn advance(&mut self) -> Result<()> {
        match &mut self.stage {
            Stage::Listing(scan) => {
                let Some(start) = scan.start().map(<[u8]>::to_vec) else {
                    self.stage = match self.kv.namespace.has_vendor() {
                        true => Stage::Opening,
                        false => Stage::Done,
                    };
                    return Ok(());
                };
                let (data, buf) = self.kv.list_page(&start)?;
                self.keys = scan.take(ListReader::new(&data)).into_iter();
                self.kv.keep(Some(buf));
                Ok(())
            }
            Stage::Opening => self.open(),
            Stage::Iterating(iterator) => {
                let iterator = *iterator;
                self.read(iterator)
            }
            Stage::Done => Ok(()),
        }
    }

    /// Opens an iterator over the next part. A device has one iterator for the same keys: what somebody else
    /// iterates over already is done in halves.
    fn open(&mut self) -> Result<()> {
        let Some(part) = self.parts.pop() else {
            self.stage = Stage::Done;
            return Ok(());
        };
        if self.kv.lists_by_command() {
            // Shorter ones have been listed.
            self.wanted.bytes_min = self.kv.namespace.standard_key_bytes_max() + 1;
        }
        let command = self.kv.namespace.iterate_open(self.kv.keyspace, IterateType::Key, part);
        let command = self.kv.made(command)?;
        let completion = self.kv.run(command, None)?;
        if completion.status.kind() == status::ITERATE_ALREADY_OPEN
            && let Some(halves) = halves(part)
        {
            self.parts.extend(halves);
            return Ok(());
        }
        self.kv.check("open an iterator", completion.status)?;
        // Bits 7:0 of the result.
        self.stage = Stage::Iterating(completion.result as u8);
        Ok(())
    }

    fn read(&mut self, iterator: u8) -> Result<()> {
        let kv = &mut *self.kv;
        let command = kv.made(kv.namespace.iterate_read(kv.keyspace, iterator))?;
        let buf = kv.buffer(PAGE_BYTES)?;
        let completion = kv.run(command, Some(buf))?;
        let is_end = KvVerdict::of(completion.status) == KvVerdict::EndOfIteration;
        if !is_end {
            kv.check("read from an iterator", completion.status)?;
        }
        // Dword 0 is the number of bytes; the end may bring some, too.
        let bytes = (completion.result as u32 as usize).min(PAGE_BYTES);
        if let Some(buf) = &completion.buf {
            let mut data = vec![0; bytes];
            buf.read(0, &mut data);
            let keys = IterateKeys::new(&data).filter(|key| self.wanted.takes(key));
            self.keys = keys.map(<[u8]>::to_vec).collect::<Vec<_>>().into_iter();
        }
        kv.keep(completion.buf);
        if is_end || bytes == 0 { self.close() } else { Ok(()) }
    }

    fn close(&mut self) -> Result<()> {
        let Stage::Iterating(iterator) = self.stage else { return Ok(()) };
        self.stage = Stage::Opening;
        let command = self.kv.made(self.kv.namespace.iterate_close(self.kv.keyspace, iterator))?;
        let completion = self.kv.run(command, None)?;
        self.kv.check("close an iterator", completion.status)
    }
}

impl Iterator for KeyIter<'_> {
    type Item = Result<Vec<u8>>;

    fn next(&mut self) -> Option<Result<Vec<u8>>> {
        loop {
            if let Some(key) = self.keys.next() {
                return Some(Ok(key));
            }
            if matches!(self.stage, Stage::Done) {
                return None;
            }
            if let Err(e) = self.advance() {
                if let Err(second) = self.close() {
                    tracing::warn!(error = %second, "close an iterator after an error");
                }
                self.stage = Stage::Done;
                return Some(Err(e));
            }
        }
    }
}

impl Drop for KeyIter<'_> {
    fn drop(&mut self) {
        if let Err(e) = self.close() {
            tracing::warn!(error = %e, "close an iterator");
        }
    }
}

/// The iterator that finds the keys that begin with `prefix`, and as few others as a device can tell apart.
fn iterator_prefix(prefix: &[u8]) -> Prefix {
    let (mut first, mut mask) = ([0; PREFIX_BYTES], [0; PREFIX_BYTES]);
    for ((first, mask), byte) in first.iter_mut().zip(&mut mask).zip(prefix) {
        (*first, *mask) = (*byte, 0xff);
    }
    Prefix { prefix: u32::from_be_bytes(first), bitmask: u32::from_be_bytes(mask) }
}

/// The two parts of what an iterator finds, told apart by one more bit; `None` when there is none.
fn halves(Prefix { prefix, bitmask }: Prefix) -> Option<[Prefix; 2]> {
    let bit = 0x8000_0000u32.checked_shr(bitmask.leading_ones())?;
    let half = |prefix| Prefix { prefix, bitmask: bitmask | bit };
    Some([half(prefix | bit), half(prefix & !bit)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_iterator_compares_the_first_four_bytes_of_the_prefix_that_there_are() {
        let prefix = |prefix, bitmask| Prefix { prefix, bitmask };
        assert_eq!(iterator_prefix(b""), prefix(0, 0));
        assert_eq!(iterator_prefix(b"ab"), prefix(0x6162_0000, 0xffff_0000));
        assert_eq!(iterator_prefix(b"abcd"), prefix(0x6162_6364, 0xffff_ffff));
        assert_eq!(iterator_prefix(b"abcdef"), prefix(0x6162_6364, 0xffff_ffff));
    }

    #[test]
    fn the_halves_of_an_iterator_have_one_more_bit() {
        let prefix = |prefix, bitmask| Prefix { prefix, bitmask };
        let all = prefix(0, 0);
        assert_eq!(halves(all), Some([prefix(0x8000_0000, 0x8000_0000), prefix(0, 0x8000_0000)]));
        let some = prefix(0x6100_0000, 0xff00_0000);
        assert_eq!(halves(some), Some([prefix(0x6180_0000, 0xff80_0000), prefix(0x6100_0000, 0xff80_0000)]));
        assert_eq!(halves(prefix(0x6162_6364, 0xffff_ffff)), None);
    }
}
