//! Bulk copies that know about caches.
//!
//! Source and target may be written by another party while they are copied: all accesses go through raw
//! pointers, and no value that passes through here is looked at.

/// Bytes of a cache line.
pub(super) const LINE_BYTES: usize = 64;

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m128i, _MM_HINT_T0, _MM_HINT_T1, _mm_loadu_si128, _mm_prefetch, _mm_sfence, _mm_storeu_si128,
        _mm_stream_si128, _mm512_loadu_si512, _mm512_storeu_si512, _mm512_stream_si512,
    };

    use super::LINE_BYTES;

    #[inline]
    pub(crate) fn prefetch_line(address: *const u8) {
        // SAFETY: a prefetch of any address has no architectural effect.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
    }

    /// # Safety
    /// `bytes`, in whole lines, can be read from `source` and written to `target`, and the two do not
    /// overlap.
    #[inline]
    pub(crate) unsafe fn with_prefetch(source: *const u8, target: *mut u8, bytes: usize, ahead: *const u8) {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has the instructions; the rest is the caller's promise.
            unsafe { with_prefetch_512(source, target, bytes, ahead) }
        } else {
            // SAFETY: the caller's promise.
            unsafe { with_prefetch_128(source, target, bytes, ahead) }
        }
    }

    /// # Safety
    /// As [`with_prefetch`], on a processor with AVX-512.
    #[target_feature(enable = "avx512f")]
    unsafe fn with_prefetch_512(source: *const u8, target: *mut u8, bytes: usize, ahead: *const u8) {
        for at in (0..bytes).step_by(LINE_BYTES) {
            // SAFETY: `at` is below `bytes`, and a prefetch has no architectural effect.
            unsafe {
                _mm_prefetch::<_MM_HINT_T1>(ahead.wrapping_add(at).cast());
                _mm512_storeu_si512(target.add(at).cast(), _mm512_loadu_si512(source.add(at).cast()));
            }
        }
    }

    /// # Safety
    /// As [`with_prefetch`].
    unsafe fn with_prefetch_128(source: *const u8, target: *mut u8, bytes: usize, ahead: *const u8) {
        for at in (0..bytes).step_by(LINE_BYTES) {
            // SAFETY: `at` is below `bytes`, and a prefetch has no architectural effect.
            unsafe {
                _mm_prefetch::<_MM_HINT_T1>(ahead.wrapping_add(at).cast());
                let line = load_line(source.add(at));
                for (part, value) in line.into_iter().enumerate() {
                    _mm_storeu_si128(target.add(at + part * 16).cast(), value);
                }
            }
        }
    }

    /// # Safety
    /// As [`with_prefetch`], and `target` is aligned to a line.
    #[inline]
    pub(crate) unsafe fn streaming(source: *const u8, target: *mut u8, bytes: usize) {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has the instructions; the rest is the caller's promise.
            unsafe { streaming_512(source, target, bytes) }
        } else {
            // SAFETY: the caller's promise.
            unsafe { streaming_128(source, target, bytes) }
        }
        // Streaming stores are not ordered by the Release stores that announce them: the fence does that.
        // SAFETY: every x86-64 processor has SSE.
        unsafe { _mm_sfence() }
    }

    /// # Safety
    /// As [`streaming`], on a processor with AVX-512.
    #[target_feature(enable = "avx512f")]
    unsafe fn streaming_512(source: *const u8, target: *mut u8, bytes: usize) {
        for at in (0..bytes).step_by(LINE_BYTES) {
            // SAFETY: `at` is below `bytes`, and the target is aligned to 64 bytes.
            unsafe { _mm512_stream_si512(target.add(at).cast(), _mm512_loadu_si512(source.add(at).cast())) }
        }
    }

    /// # Safety
    /// As [`streaming`].
    unsafe fn streaming_128(source: *const u8, target: *mut u8, bytes: usize) {
        for at in (0..bytes).step_by(LINE_BYTES) {
            // SAFETY: `at` is below `bytes`, and the target is aligned to 16 bytes.
            unsafe {
                let line = load_line(source.add(at));
                for (part, value) in line.into_iter().enumerate() {
                    _mm_stream_si128(target.add(at + part * 16).cast(), value);
                }
            }
        }
    }

    /// Like [`streaming`], and keeps what was copied in `kept` too. The caller orders the stores.
    ///
    /// # Safety
    /// As [`streaming`], and `bytes` can be written to `kept`, which overlaps neither.
    #[inline]
    pub(crate) unsafe fn streaming_kept(source: *const u8, target: *mut u8, bytes: usize, kept: *mut u8) {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has the instructions; the rest is the caller's promise.
            unsafe { streaming_kept_512(source, target, bytes, kept) }
        } else {
            // SAFETY: the caller's promise; `kept` has just been written.
            unsafe {
                std::ptr::copy_nonoverlapping(source, kept, bytes);
                streaming_128(kept, target, bytes);
            }
        }
    }

    /// # Safety
    /// As [`streaming_kept`], on a processor with AVX-512.
    #[target_feature(enable = "avx512f")]
    unsafe fn streaming_kept_512(source: *const u8, target: *mut u8, bytes: usize, kept: *mut u8) {
        for at in (0..bytes).step_by(LINE_BYTES) {
            // SAFETY: `at` is below `bytes`, and the target is aligned to 64 bytes.
            unsafe {
                let line = _mm512_loadu_si512(source.add(at).cast());
                _mm512_storeu_si512(kept.add(at).cast(), line);
                _mm512_stream_si512(target.add(at).cast(), line);
            }
        }
    }

    /// Streaming stores so far come before all later stores.
    #[inline]
    pub(crate) fn order_streaming() {
        // SAFETY: every x86-64 processor has SSE.
        unsafe { _mm_sfence() }
    }

    /// # Safety
    /// A line can be read from `source`.
    #[inline]
    unsafe fn load_line(source: *const u8) -> [__m128i; 4] {
        // SAFETY: the caller's promise; the four loads cover 64 bytes.
        unsafe {
            [
                _mm_loadu_si128(source.cast()),
                _mm_loadu_si128(source.add(16).cast()),
                _mm_loadu_si128(source.add(32).cast()),
                _mm_loadu_si128(source.add(48).cast()),
            ]
        }
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86::{order_streaming, prefetch_line, streaming, streaming_kept, with_prefetch};

#[cfg(not(target_arch = "x86_64"))]
mod portable {
    #[inline]
    pub(crate) fn prefetch_line(_address: *const u8) {}

    /// # Safety
    /// `bytes` can be read from `source` and written to `target`.
    #[inline]
    pub(crate) unsafe fn with_prefetch(source: *const u8, target: *mut u8, bytes: usize, _ahead: *const u8) {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy(source, target, bytes) }
    }

    /// # Safety
    /// As [`with_prefetch`].
    #[inline]
    pub(crate) unsafe fn streaming(source: *const u8, target: *mut u8, bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy(source, target, bytes) }
    }

    /// # Safety
    /// As [`with_prefetch`], and `bytes` can be written to `kept`, which overlaps neither.
    #[inline]
    pub(crate) unsafe fn streaming_kept(source: *const u8, target: *mut u8, bytes: usize, kept: *mut u8) {
        // SAFETY: the caller's promise; `kept` has just been written.
        unsafe {
            std::ptr::copy_nonoverlapping(source, kept, bytes);
            std::ptr::copy_nonoverlapping(kept, target, bytes);
        }
    }

    #[inline]
    pub(crate) fn order_streaming() {}
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) use portable::{order_streaming, prefetch_line, streaming, streaming_kept, with_prefetch};
