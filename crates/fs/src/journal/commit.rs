//! Writing a transaction, and bringing images to their places.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use unvme::lock::{lock, wait};

use super::{HEADS, Journal, Ring, Running};
use crate::buffer::Buffer;
use crate::disk::Durable;
use crate::error::{Error, Result};
use crate::layout::{
    BLOCK, Descriptor, ENTRIES_PER_BLOCK, Entry, Expected, Head, Kind, Page, put_entry, seal, stamp,
};
use crate::placement::Class;
use crate::space::Run;

/// Blocks that are written to their places at a time.
const PLACE_BLOCKS: usize = 64;

/// A closed transaction.
struct Batch {
    id: u64,
    images: Vec<(Arc<Page>, Arc<Buffer>)>,
    revoked: Vec<u64>,
    freed: Vec<Run>,
    freed_inodes: Vec<u64>,
    free: (u64, u64),
}

impl Batch {
    fn descriptors(&self) -> usize {
        (self.images.len() + self.revoked.len()).div_ceil(ENTRIES_PER_BLOCK)
    }

    fn blocks(&self) -> usize {
        self.descriptors() + self.images.len()
    }
}

impl Journal {
    /// Has transaction `upto`, and all before it, on the media when it returns. Whoever comes while somebody
    /// else commits goes with the next one.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Device`].
    pub(crate) fn commit(&self, upto: u64) -> Result<()> {
        if self.committed() >= upto {
            return Ok(());
        }
        let mut ring = lock(&self.ring);
        if self.committed() >= upto {
            return Ok(());
        }
        self.write(&mut ring, |ring| self.commit_next(ring))
    }

    /// Writes to the ring; what then fails ends all changes.
    fn write(&self, ring: &mut Ring, act: impl FnOnce(&mut Ring) -> Result<()>) -> Result<()> {
        self.check_alive()?;
        act(ring).inspect_err(|e| self.kill(e))
    }

    /// As [`Journal::commit`], and has all data of files durable that were written before.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn commit_and_settle(&self, upto: u64) -> Result<()> {
        let mut ring = lock(&self.ring);
        self.write(&mut ring, |ring| if self.committed() < upto { self.commit_next(ring) } else { Ok(()) })?;
        // Under the lock of the ring: a flush under way that others have begun is over.
        self.disk.settle()
    }

    /// Commits what there is, and brings every image to its place.
    pub(crate) fn finish(&self, is_clean: bool) -> Result<()> {
        let mut ring = lock(&self.ring);
        self.write(&mut ring, |ring| {
            self.commit_next(ring)?;
            self.place(ring, is_clean)
        })
    }

    /// Closes the running transaction and starts the next one; `None` when it has done nothing.
    fn close(&self) -> Option<Batch> {
        let mut running = lock(&self.running);
        running.is_closing = true;
        while running.active > 0 {
            running = wait(&self.changed, running);
        }
        running.is_closing = false;
        self.changed.notify_all();
        if running.changed.is_empty() {
            return None;
        }
        let next = Running::new(running.id + 1, (running.free_blocks, running.free_inodes));
        let done = std::mem::replace(&mut *running, next);
        let image = |buffer: Arc<Buffer>| Some((buffer.image(done.id)?, buffer));
        Some(Batch {
            id: done.id,
            images: done.changed.into_iter().filter_map(image).collect(),
            revoked: done.revoked,
            freed: done.freed,
            freed_inodes: done.freed_inodes,
            free: (done.free_blocks, done.free_inodes),
        })
    }

    fn commit_next(&self, ring: &mut Ring) -> Result<()> {
        let Some(batch) = self.close() else { return Ok(()) };
        let blocks = batch.blocks() as u64;
        if ring.used + blocks > self.ring_blocks() {
            self.place(ring, false)?;
        }
        if blocks > self.ring_blocks() {
            return Err(Error::Device(format!(
                "{}: a transaction of {blocks} blocks is too long for the journal of {}",
                self.disk.name(),
                self.ring_blocks()
            )));
        }
        self.disk.settle()?;
        self.write_record(ring.head, self.record(&batch))?;
        ring.head = (ring.head + blocks) % self.ring_blocks();
        ring.used += blocks;
        ring.next_tx = batch.id + 1;
        ring.free = batch.free;
        for block in &batch.revoked {
            ring.pending.remove(block);
        }
        for (page, buffer) in batch.images {
            ring.pending.insert(buffer.block, (page, batch.id, buffer));
        }
        self.committed.store(batch.id, Ordering::Release);
        self.space.release(batch.freed);
        batch.freed_inodes.iter().for_each(|&ino| self.space.release_inode(ino));
        if ring.used > self.ring_blocks() / 2 {
            self.place(ring, false)?;
            self.buffers.shrink(self.committed());
        }
        Ok(())
    }

    /// The bytes of a record.
    fn record(&self, batch: &Batch) -> Vec<u8> {
        let descriptors = batch.descriptors();
        let mut record = vec![0; batch.blocks() * BLOCK];
        let (heads, images) = record.split_at_mut(descriptors * BLOCK);
        let mut entries = Vec::with_capacity(batch.images.len() + batch.revoked.len());
        for ((page, buffer), place) in batch.images.iter().zip(images.chunks_exact_mut(BLOCK)) {
            let place: &mut Page = place.try_into().expect("a block");
            place.copy_from_slice(&**page);
            let crc = seal(place, batch.id);
            entries.push(Entry { block: buffer.block.into(), crc: crc.into(), zero: 0.into() });
        }
        entries.extend(batch.revoked.iter().map(|&block| Entry {
            block: block.into(),
            crc: 0.into(),
            zero: 0.into(),
        }));
        for (index, (some, place)) in
            entries.chunks(ENTRIES_PER_BLOCK).zip(heads.chunks_exact_mut(BLOCK)).enumerate()
        {
            let page: &mut Page = place.try_into().expect("a block");
            stamp(page, &Expected { kind: Kind::Descriptor, fs: self.fs, block: 0, owner: None });
            let descriptor = Descriptor {
                descriptors: (descriptors as u32).into(),
                index: (index as u32).into(),
                entries: (entries.len() as u32).into(),
                images: (batch.images.len() as u32).into(),
                free_blocks: batch.free.0.into(),
                free_inodes: batch.free.1.into(),
            };
            descriptor.put(page);
            some.iter().enumerate().for_each(|(at, entry)| put_entry(page, at, entry));
            seal(page, batch.id);
        }
        record
    }

    /// Writes a record at `head` of the ring, durably.
    fn write_record(&self, head: u64, record: Vec<u8>) -> Result<()> {
        let start = self.geometry.journal_start + HEADS;
        let until_end = ((self.ring_blocks() - head) as usize * BLOCK).min(record.len());
        let (first, rest) = record.split_at(until_end);
        // A record is whole or it does not count: its parts need no order.
        if rest.is_empty() && first.len() <= PLACE_BLOCKS * BLOCK {
            return self.disk.write(start + head, first, Durable::Now, Class::Journal);
        }
        self.disk.write(start + head, first, Durable::Later, Class::Journal)?;
        self.disk.write(start, rest, Durable::Later, Class::Journal)?;
        self.disk.flush()
    }

    /// Brings every image to its place, and has replay begin at the next record.
    fn place(&self, ring: &mut Ring, is_clean: bool) -> Result<()> {
        let mut blocks: Vec<u64> = ring.pending.keys().copied().collect();
        blocks.sort_unstable();
        let mut bytes: Vec<u8> = Vec::with_capacity(PLACE_BLOCKS * BLOCK);
        for run in blocks.chunk_by(|a, b| a + 1 == *b).flat_map(|run| run.chunks(PLACE_BLOCKS)) {
            bytes.clear();
            for block in run {
                let (page, tx, _) = &ring.pending[block];
                let mut copy: Page = **page;
                seal(&mut copy, *tx);
                bytes.extend_from_slice(&copy);
            }
            self.disk.write(run[0], &bytes, Durable::Later, Class::Metadata)?;
        }
        if !blocks.is_empty() {
            self.disk.flush()?;
        }
        self.write_head(ring, is_clean)?;
        for (_, (_, tx, buffer)) in ring.pending.drain() {
            buffer.placed(tx);
        }
        ring.used = 0;
        Ok(())
    }

    fn write_head(&self, ring: &mut Ring, is_clean: bool) -> Result<()> {
        let head = Head {
            tail_tx: ring.next_tx.into(),
            tail: ring.head.into(),
            free_blocks: ring.free.0.into(),
            free_inodes: ring.free.1.into(),
            clean: u32::from(is_clean).into(),
            zero: 0.into(),
        };
        ring.turn += 1;
        let block = self.geometry.journal_start + ring.turn % HEADS;
        let mut page: Page = [0; BLOCK];
        stamp(&mut page, &Expected { kind: Kind::JournalHead, fs: self.fs, block, owner: Some(0) });
        head.put(&mut page);
        seal(&mut page, ring.turn);
        self.disk.write(block, &page, Durable::Now, Class::Journal)
    }
}
