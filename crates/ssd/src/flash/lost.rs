//! Logical pages whose data is lost for good: where it was is known no more. Reading them is an error, not
//! zeroes.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use unvme_bus::lock;

/// A set of logical pages; hardly ever is any in it.
#[derive(Default)]
pub(super) struct LostPages {
    any: AtomicBool,
    pages: Mutex<BTreeSet<u32>>,
}

impl LostPages {
    pub(super) fn new(pages: BTreeSet<u32>) -> Self {
        Self { any: AtomicBool::new(!pages.is_empty()), pages: Mutex::new(pages) }
    }

    #[inline]
    pub(super) fn contains(&self, lpn: u32) -> bool {
        self.any.load(Ordering::Acquire) && lock(&self.pages).contains(&lpn)
    }

    /// Pages have been written or deallocated: they are what that made them.
    #[inline]
    pub(super) fn remove(&self, first: u32, pages: u32) {
        if self.any.load(Ordering::Acquire) {
            self.cut(first, pages);
        }
    }

    #[cold]
    fn cut(&self, first: u32, pages: u32) {
        let mut set = lock(&self.pages);
        set.retain(|lpn| !(first..first.saturating_add(pages)).contains(lpn));
        self.any.store(!set.is_empty(), Ordering::Release);
    }
}
