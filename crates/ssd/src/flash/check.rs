//! Looking at everything: for a device that nobody uses meanwhile.

use unvme_bus::lock;
use unvme_flash::PAGE_BYTES;

use super::record::{self, FLAG_ELSEWHERE, Record};
use super::superblock::{self, Found};
use super::{Flash, Inner, checkpoint, journal};
use crate::store::CHUNK_BYTES;

/// Something on the media of a device with flash that is lost, or not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlashDamage {
    /// Offset in the store where it is.
    pub offset: u64,
    /// The logical page that it concerns, when there is one that can be named.
    pub logical_page: Option<u32>,
    /// What happened, as text for people.
    pub what: String,
}

impl FlashDamage {
    pub(super) fn new(offset: u64, logical_page: Option<u32>, what: impl Into<String>) -> Self {
        Self { offset, logical_page, what: what.into() }
    }
}

impl Flash {
    /// Reads everything that outlives the process and names what is damaged, what was found at opening
    /// included.
    pub(crate) fn check(&self) -> Vec<FlashDamage> {
        let inner = lock(&self.inner);
        let mut damage = lock(&self.noticed).clone();
        self.check_sums(&inner, &mut damage);
        let Some(memory) = self.memory().filter(|_| self.persists) else { return damage };
        for at in self.layout.superblocks {
            match superblock::read(memory, at) {
                Found::Superblock(_, found) if found == inner.books.superblock => {}
                Found::Superblock(..) => {
                    damage.push(FlashDamage::new(at, None, "the superblock is an old one"))
                }
                Found::Nothing => damage.push(FlashDamage::new(at, None, "the superblock is missing")),
                Found::Format(found) => {
                    damage.push(FlashDamage::new(at, None, superblock::other_format(found)))
                }
                Found::Damaged(reason) => damage.push(FlashDamage::new(at, None, reason)),
            }
        }
        let secret = inner.books.superblock.secret;
        for slot in 0..self.layout.checkpoints.len() {
            if let checkpoint::Found::Damaged(reason) =
                checkpoint::read(memory, &self.layout, secret, slot, &self.backing)
            {
                damage.push(FlashDamage::new(self.layout.checkpoints[slot], None, reason));
            }
        }
        for number in journal::first(&self.layout, inner.books.checkpoint)..inner.books.journal.next {
            if let journal::Found::Damaged = journal::read(memory, &self.layout, secret, number) {
                damage.push(FlashDamage::new(
                    self.layout.journal,
                    None,
                    format!("journal entry {number} is damaged"),
                ));
            }
        }
        let mut block = vec![0; PAGE_BYTES as usize];
        for (lpn, ppn) in inner.ftl.mapping() {
            let (at, record_at) = (self.layout.page(ppn), self.layout.record(ppn));
            match Record::read(memory, record_at, secret, ppn) {
                None => {
                    damage.push(FlashDamage::new(record_at, Some(lpn), "the record of the page is damaged"))
                }
                Some(record) if record.lpn != lpn => {
                    damage.push(FlashDamage::new(record_at, Some(lpn), "the record is another page's"));
                }
                Some(record) if record.flags & FLAG_ELSEWHERE != 0 => {}
                Some(record) => {
                    block.fill(0);
                    if self.backing.is_reserved(at / CHUNK_BYTES) {
                        memory.read(at as usize, &mut block);
                    }
                    if record.data_crc != record::crc(&block) {
                        damage.push(FlashDamage::new(at, Some(lpn), "the data is not as it was written"));
                    }
                }
            }
        }
        damage
    }

    fn check_sums(&self, inner: &Inner, damage: &mut Vec<FlashDamage>) {
        let Inner { ftl, books } = inner;
        let mapped = ftl.mapping().count() as u64;
        let stats = ftl.stats();
        let sums = [
            ("mapped pages", stats.mapped_pages, mapped),
            ("programmed pages", stats.media_pages(), books.sequence),
        ];
        for (what, counted, there) in sums.into_iter().filter(|(_, counted, there)| counted != there) {
            let what = format!("{counted} {what} were counted, but there are {there}");
            damage.push(FlashDamage::new(self.layout.pages, None, what));
        }
    }
}
