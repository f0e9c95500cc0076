//! What a sync of the store covers.

use unvme_bus::lock;
use unvme_spec::Status;

use super::Flash;
use super::chip::Books;
use super::superblock;

/// What was there when a sync began.
struct Covered {
    number: u64,
    sequence: u64,
    journal: u64,
    checkpoint: u64,
}

impl Flash {
    /// Makes everything written before survive a power cut. Errors: write Fault when the store has failed,
    /// now or earlier, or there is no power.
    pub(crate) fn sync(&self) -> Result<(), Status> {
        if !self.persists {
            return self.backing.sync();
        }
        let covered = {
            let mut inner = lock(&self.inner);
            if self.power.is_off() {
                return Err(Status::WRITE_FAULT);
            }
            begin(&mut inner.books)
        };
        self.backing.sync()?;
        let mut inner = lock(&self.inner);
        if self.power.is_off() {
            return Err(Status::WRITE_FAULT);
        }
        self.end(&mut inner.books, &covered);
        Ok(())
    }

    /// [`Flash::sync`] with the write lock held.
    pub(super) fn sync_now(&self, books: &mut Books) -> Result<(), Status> {
        let covered = begin(books);
        self.backing.sync()?;
        self.end(books, &covered);
        Ok(())
    }

    fn end(&self, books: &mut Books, covered: &Covered) {
        books.synced = books.synced.max(covered.number);
        if books.checkpoint == covered.checkpoint {
            books.journal.durable = books.journal.durable.max(covered.journal);
        }
        if covered.sequence > books.durable {
            books.durable = covered.sequence;
            if let Some(memory) = self.memory() {
                let secret = books.superblock.secret;
                superblock::write_watermark(memory, &self.layout, secret, covered.sequence, covered.number);
            }
        }
    }

    /// Writes a checkpoint, so that opening has little to search. Errors: as [`Flash::sync`], or Capacity
    /// Exceeded. What was written before is as safe as it was.
    pub(crate) fn close(&self) -> Result<(), Status> {
        let mut inner = lock(&self.inner);
        if !self.persists || self.power.is_off() {
            return Ok(());
        }
        self.write_checkpoint(&mut inner)
    }
}

fn begin(books: &mut Books) -> Covered {
    books.syncs += 1;
    Covered {
        number: books.syncs,
        sequence: books.sequence,
        journal: books.journal.next,
        checkpoint: books.checkpoint,
    }
}
