//! Writing a transaction, and bringing images to their places.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use unvme::DmaBuf;
use unvme::lock::{lock, wait};

use super::{Changes, HEADS, Journal, Ring};
use crate::buffer::Buffer;
use crate::disk::Durable;
use crate::error::{Error, Result};
use crate::layout::{
    BLOCK, Descriptor, ENTRIES_PER_BLOCK, Entry, Expected, Head, Kind, Page, put_entry, seal, sealed, stamp,
};
use crate::placement::Class;
use crate::space::Run;

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

/// Puts a page into a buffer, as transaction `tx` writes it. Returns its checksum.
fn put_image(buf: &mut DmaBuf, at: usize, page: &Page, tx: u64) -> u32 {
    let (header, crc) = sealed(page, tx);
    buf.write(at, &header);
    buf.write(at + header.len(), &page[header.len()..]);
    crc
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

    /// Has everything come back that was freed until now.
    ///
    /// # Errors
    /// As [`Journal::commit`].
    pub(crate) fn reclaim(&self) -> Result<()> {
        self.commit(self.running())?;
        self.space.release();
        Ok(())
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

    /// Closes the running transaction and starts the next one; `None` when it has done nothing. `free` are
    /// the free blocks and inodes as of the one before.
    fn close(&self, (free_blocks, free_inodes): (u64, u64)) -> Option<Batch> {
        self.stripes.iter().for_each(|stripe| lock(&stripe.part).is_closing = true);
        let mut done = Changes::default();
        for stripe in self.stripes.iter() {
            let mut part = lock(&stripe.part);
            while part.active > 0 {
                part = wait(&stripe.changed, part);
            }
            done.append(&mut part.changes);
        }
        // Nobody is in it, and nobody joins before its images are taken.
        let id = self.running();
        let has_changed = !done.buffers.is_empty();
        let image = |buffer: Arc<Buffer>| Some((buffer.image(id)?, buffer));
        let images = done.buffers.into_iter().filter_map(image).collect();
        if has_changed {
            self.running.store(id + 1, Ordering::Release);
        }
        // Also of one that has done nothing: a part may have the room that another one needs.
        self.room.store(self.room_max(), Ordering::Release);
        for stripe in self.stripes.iter() {
            let mut part = lock(&stripe.part);
            part.is_closing = false;
            (part.id, part.room) = (self.running(), 0);
            drop(part);
            stripe.changed.notify_all();
        }
        let free =
            (free_blocks.wrapping_add_signed(done.free.0), free_inodes.wrapping_add_signed(done.free.1));
        has_changed.then_some(Batch {
            id,
            images,
            revoked: done.revoked,
            freed: done.freed,
            freed_inodes: done.freed_inodes,
            free,
        })
    }

    fn commit_next(&self, ring: &mut Ring) -> Result<()> {
        let Some(batch) = self.close(ring.free) else { return Ok(()) };
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
        if ring.is_clean {
            // It was left in order, and is used on.
            self.write_head(ring, false)?;
        }
        self.disk.settle()?;
        self.write_record(ring.head, &batch)?;
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
        self.buffers.note_committed(batch.id);
        self.space.retire(batch.freed);
        self.space.release_inodes(&batch.freed_inodes);
        if ring.used > self.ring_blocks() / 2 {
            self.place(ring, false)?;
        }
        Ok(())
    }

    /// The descriptors of a record whose images have these checksums.
    fn descriptors(&self, batch: &Batch, crcs: &[u32]) -> Vec<Page> {
        let images = batch.images.iter().zip(crcs).map(|((_, buffer), &crc)| (buffer.block, crc));
        let all: Vec<(u64, u32)> = images.chain(batch.revoked.iter().map(|&block| (block, 0))).collect();
        let descriptor = |(index, some): (usize, &[(u64, u32)])| {
            let mut page: Page = [0; BLOCK];
            stamp(&mut page, &Expected { kind: Kind::Descriptor, fs: self.fs, block: 0, owner: None });
            let descriptor = Descriptor {
                descriptors: (batch.descriptors() as u32).into(),
                index: (index as u32).into(),
                entries: (all.len() as u32).into(),
                images: (batch.images.len() as u32).into(),
                free_blocks: batch.free.0.into(),
                free_inodes: batch.free.1.into(),
            };
            descriptor.put(&mut page);
            for (at, &(block, crc)) in some.iter().enumerate() {
                put_entry(&mut page, at, &Entry { block: block.into(), crc: crc.into(), zero: 0.into() });
            }
            seal(&mut page, batch.id);
            page
        };
        all.chunks(ENTRIES_PER_BLOCK).enumerate().map(descriptor).collect()
    }

    /// Blocks `from..to` of a record at `head` of the ring, as runs on the device that are one command each.
    fn runs(&self, head: u64, from: u64, to: u64) -> Vec<(u64, u64)> {
        let start = self.geometry.journal_start + HEADS;
        let mut runs = Vec::new();
        let mut at = from;
        while at < to {
            let place = (head + at) % self.ring_blocks();
            let blocks = (to - at).min(self.disk.piece()).min(self.ring_blocks() - place);
            runs.push((start + place, blocks));
            at += blocks;
        }
        runs
    }

    /// Writes a record at `head` of the ring, durably. A record is whole or it does not count: its parts need
    /// no order. The images come first: each is read once, for its checksum and on its way to the device.
    fn write_record(&self, head: u64, batch: &Batch) -> Result<()> {
        let (descriptors, blocks) = (batch.descriptors() as u64, batch.blocks() as u64);
        let mut crcs = Vec::with_capacity(batch.images.len());
        let put_images = |crcs: &mut Vec<u32>, some: usize, buf: &mut DmaBuf, from: usize| {
            let first = crcs.len();
            for (nth, (page, _)) in batch.images[first..first + some].iter().enumerate() {
                crcs.push(put_image(buf, (from + nth) * BLOCK, page, batch.id));
            }
        };
        let put_descriptors = |buf: &mut DmaBuf, pages: &[Page]| {
            pages.iter().enumerate().for_each(|(nth, page)| buf.write(nth * BLOCK, page));
        };
        let whole = self.runs(head, 0, blocks);
        if whole.len() == 1 {
            return self.disk.write_runs(&whole, Durable::Now, Class::Journal, |_, buf| {
                put_images(&mut crcs, batch.images.len(), buf, descriptors as usize);
                put_descriptors(buf, &self.descriptors(batch, &crcs));
            });
        }
        let images = self.runs(head, descriptors, blocks);
        self.disk.write_runs(&images, Durable::Later, Class::Journal, |nth, buf| {
            put_images(&mut crcs, images[nth].1 as usize, buf, 0);
        })?;
        let (runs, pages) = (self.runs(head, 0, descriptors), self.descriptors(batch, &crcs));
        let mut done = 0;
        self.disk.write_runs(&runs, Durable::Later, Class::Journal, |nth, buf| {
            let some = runs[nth].1 as usize;
            put_descriptors(buf, &pages[done..done + some]);
            done += some;
        })?;
        self.disk.flush()
    }

    /// Brings every image to its place, and has replay begin at the next record.
    fn place(&self, ring: &mut Ring, is_clean: bool) -> Result<()> {
        let mut blocks: Vec<u64> = ring.pending.keys().copied().collect();
        blocks.sort_unstable();
        let pieces: Vec<&[u64]> = blocks
            .chunk_by(|a, b| a + 1 == *b)
            .flat_map(|run| run.chunks(self.disk.piece() as usize))
            .collect();
        let runs: Vec<(u64, u64)> = pieces.iter().map(|some| (some[0], some.len() as u64)).collect();
        self.disk.write_runs(&runs, Durable::Later, Class::Metadata, |nth, buf| {
            for (at, block) in pieces[nth].iter().enumerate() {
                let (page, tx, _) = &ring.pending[block];
                put_image(buf, at * BLOCK, page, *tx);
            }
        })?;
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
        self.disk.write(block, &page, Durable::Now, Class::Journal)?;
        ring.is_clean = is_clean;
        Ok(())
    }
}
