//! Paths in memory of the stack: a call may be one of a handler of a signal that has interrupted the
//! program's allocator.

use std::ffi::c_char;
use std::mem::MaybeUninit;

/// A path in memory of the stack, with a NUL behind it. Nobody has written to the rest: a call on a path has
/// several of these, and most paths are short. For the same reason it is filled where it is, not moved.
pub(crate) struct Text {
    bytes: [MaybeUninit<u8>; libc::PATH_MAX as usize],
    length: usize,
}

impl Text {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        let mut text = Self { bytes: [const { MaybeUninit::uninit() }; libc::PATH_MAX as usize], length: 0 };
        text.bytes[0].write(0);
        text
    }

    /// A path that goes on from another one. `None` when it is longer than the kernel takes.
    pub(crate) fn join(above: &[u8], path: &[u8]) -> Option<Self> {
        let mut text = Self::new();
        text.push_joined(above, path)?;
        Some(text)
    }

    /// Appends a path that goes on from another one.
    pub(crate) fn push_joined(&mut self, above: &[u8], path: &[u8]) -> Option<()> {
        self.push(above)?;
        if !above.is_empty() {
            self.push(b"/")?;
        }
        self.push(path)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: so many were written.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr().cast(), self.length) }
    }

    pub(crate) fn pointer(&self) -> *const c_char {
        self.bytes.as_ptr().cast()
    }

    pub(crate) fn push(&mut self, more: &[u8]) -> Option<()> {
        let end = self.length + more.len();
        if end >= self.bytes.len() {
            return None;
        }
        // SAFETY: there is room for them, and nobody else has it.
        unsafe {
            std::ptr::copy_nonoverlapping(
                more.as_ptr(),
                self.bytes[self.length..].as_mut_ptr().cast(),
                more.len(),
            );
        }
        self.cut(end);
        Some(())
    }

    /// So long from now on: no longer than before, but for what has just been written.
    pub(crate) fn cut(&mut self, length: usize) {
        self.bytes[length].write(0);
        self.length = length;
    }
}
