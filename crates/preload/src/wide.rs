//! Wide characters of streams of ours.
//!
//! The C library's custom streams are of bytes: its own functions for wide characters end a program that
//! hands them one. So these put characters together from the bytes of such a stream, and take them apart.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::Ordering;

use libc::{FILE, size_t, wchar_t};
use rustix::io::Errno;

use crate::errno::{put, set};
use crate::stdio;

type Wint = u32;
/// The end, or an error.
const WEOF: Wint = Wint::MAX;
/// What `mbrtowc` says of bytes that are no character, and of those that begin one.
const INVALID: size_t = size_t::MAX;
const UNFINISHED: size_t = size_t::MAX - 1;
/// Bytes of a character, in any encoding.
const BYTES_MAX: usize = 16;
/// Characters that are printed at a time, at first and at most.
const PRINTED: usize = 1 << 10;
const PRINTED_MAX: usize = 1 << 26;
const PTHREAD_CANCEL_DISABLE: c_int = 1;
/// In `_flags`, the first word of a stream: there was an error.
const ERROR_SEEN: c_int = 0x20;

/// `mbstate_t`.
#[repr(C)]
#[derive(Default)]
struct State([u32; 2]);

/// `va_list`, which C hands over by its address: whoever goes through it changes it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Arguments([u64; LIST_WORDS]);

const LIST_WORDS: usize = if cfg!(target_arch = "x86_64") { 3 } else { 4 };

unsafe extern "C-unwind" {
    fn mbrtowc(out: *mut wchar_t, bytes: *const c_char, count: size_t, state: *mut State) -> size_t;
    fn wcrtomb(out: *mut c_char, character: wchar_t, state: *mut State) -> size_t;
    fn vswprintf(out: *mut wchar_t, room: size_t, format: *const wchar_t, arguments: *mut Arguments)
    -> c_int;
    fn getc_unlocked(file: *mut FILE) -> c_int;
    fn fwrite_unlocked(from: *const c_void, size: size_t, count: size_t, file: *mut FILE) -> size_t;
    fn ungetc(byte: c_int, file: *mut FILE) -> c_int;
    fn flockfile(file: *mut FILE);
    fn funlockfile(file: *mut FILE);
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    fn __chk_fail() -> !;
    static mut stdin: *mut FILE;
    static mut stdout: *mut FILE;
}

mod behind {
    use super::*;

    functions! {
        fn fwide(file: *mut FILE, mode: c_int) -> c_int;
        fn fgetwc(file: *mut FILE) -> Wint;
        fn fgetwc_unlocked(file: *mut FILE) -> Wint;
        fn fputwc(character: wchar_t, file: *mut FILE) -> Wint;
        fn fputwc_unlocked(character: wchar_t, file: *mut FILE) -> Wint;
        fn fgetws(out: *mut wchar_t, room: c_int, file: *mut FILE) -> *mut wchar_t;
        fn fgetws_unlocked(out: *mut wchar_t, room: c_int, file: *mut FILE) -> *mut wchar_t;
        fn fputws(text: *const wchar_t, file: *mut FILE) -> c_int;
        fn fputws_unlocked(text: *const wchar_t, file: *mut FILE) -> c_int;
        fn ungetwc(character: Wint, file: *mut FILE) -> Wint;
        fn vfwprintf(file: *mut FILE, format: *const wchar_t, arguments: *mut Arguments) -> c_int;
        fn __vfwprintf_chk(
            file: *mut FILE,
            flag: c_int,
            format: *const wchar_t,
            arguments: *mut Arguments,
        ) -> c_int;
        fn vfwscanf(file: *mut FILE, format: *const wchar_t, arguments: *mut Arguments) -> c_int;
        fn __isoc99_vfwscanf(file: *mut FILE, format: *const wchar_t, arguments: *mut Arguments) -> c_int;
        fn __fgetws_chk(out: *mut wchar_t, size: size_t, room: c_int, file: *mut FILE) -> *mut wchar_t;
        fn __fgetws_unlocked_chk(out: *mut wchar_t, size: size_t, room: c_int, file: *mut FILE) -> *mut wchar_t;
    }
}

/// A stream of ours that this thread has to itself; it is not canceled meanwhile.
struct Locked(*mut FILE, c_int);

impl Locked {
    /// `None` for a stream that the C library can do this with. A stream that is used like this is one of
    /// wide characters from then on.
    unsafe fn new(file: *mut FILE) -> Option<Self> {
        let orientation = stdio::orientation(file)?;
        (*orientation).store(1, Ordering::Relaxed);
        let mut cancels = 0;
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &mut cancels);
        flockfile(file);
        Some(Self(file, cancels))
    }

    unsafe fn fail(&self) -> Wint {
        *self.0.cast::<c_int>() |= ERROR_SEEN;
        WEOF
    }

    unsafe fn get(&self) -> Wint {
        let (mut state, mut character) = (State::default(), 0);
        let mut is_begun = false;
        loop {
            let Ok(byte) = u8::try_from(getc_unlocked(self.0)) else {
                if is_begun {
                    set(Errno::ILSEQ);
                    return self.fail();
                }
                return WEOF;
            };
            is_begun = true;
            match mbrtowc(&mut character, (&raw const byte).cast(), 1, &mut state) {
                UNFINISHED => {}
                INVALID => {
                    set(Errno::ILSEQ);
                    return self.fail();
                }
                _ => return character as Wint,
            }
        }
    }

    unsafe fn put(&self, character: wchar_t) -> Wint {
        if self.text(&[character]) { character as Wint } else { WEOF }
    }

    /// At once, as what is not buffered is one write.
    unsafe fn text(&self, text: &[wchar_t]) -> bool {
        let mut bytes: Vec<c_char> = Vec::with_capacity(text.len() + BYTES_MAX);
        let mut is_valid = true;
        for &character in text {
            let mut encoded = [0; BYTES_MAX];
            let length = wcrtomb(encoded.as_mut_ptr(), character, &mut State::default());
            match encoded.get(..length) {
                Some(encoded) => bytes.extend_from_slice(encoded),
                None => {
                    is_valid = false;
                    break;
                }
            }
        }
        let is_written = fwrite_unlocked(bytes.as_ptr().cast(), 1, bytes.len(), self.0) == bytes.len();
        if !is_valid {
            set(Errno::ILSEQ);
            self.fail();
        }
        is_valid && is_written
    }

    /// A line, or as much of it as there is room for; `out` is null afterwards when there was nothing.
    unsafe fn line(&self, out: *mut wchar_t, room: c_int) -> *mut wchar_t {
        let Some(room) = usize::try_from(room).ok().filter(|room| *room > 0) else {
            return std::ptr::null_mut();
        };
        let had_error = *self.0.cast::<c_int>() & ERROR_SEEN;
        // What happens here is asked about, not what has happened before.
        *self.0.cast::<c_int>() &= !ERROR_SEEN;
        let mut count = 0;
        while count + 1 < room {
            let character = self.get();
            if character == WEOF {
                break;
            }
            *out.add(count) = character as wchar_t;
            count += 1;
            if character == Wint::from(b'\n') {
                break;
            }
        }
        let has_failed = *self.0.cast::<c_int>() & ERROR_SEEN != 0;
        *self.0.cast::<c_int>() |= had_error;
        if has_failed || count == 0 && room > 1 {
            return std::ptr::null_mut();
        }
        *out.add(count) = 0;
        out
    }

    unsafe fn back(&self, character: Wint) -> Wint {
        let mut bytes = [0; BYTES_MAX];
        let length = match character {
            WEOF => return WEOF,
            character => wcrtomb(bytes.as_mut_ptr(), character as wchar_t, &mut State::default()),
        };
        let Some(bytes) = bytes.get(..length) else { return WEOF };
        for &byte in bytes.iter().rev() {
            if ungetc(c_int::from(byte as u8), self.0) < 0 {
                return WEOF;
            }
        }
        character
    }

    unsafe fn print(&self, format: *const wchar_t, arguments: *mut Arguments) -> c_int {
        let mut room = PRINTED;
        while room <= PRINTED_MAX {
            let mut text: Vec<wchar_t> = vec![0; room];
            // The next, larger attempt goes through the arguments again.
            let mut copy = *arguments;
            let before = *libc::__errno_location();
            put(0);
            let length = vswprintf(text.as_mut_ptr(), room, format, &mut copy);
            if let Ok(length) = usize::try_from(length) {
                put(before);
                return if self.text(&text[..length]) { length as c_int } else { -1 };
            }
            if *libc::__errno_location() == libc::EILSEQ {
                self.fail();
                return -1;
            }
            room *= 4;
        }
        set(Errno::OVERFLOW);
        -1
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // SAFETY: it was locked by this thread, and is open.
        unsafe {
            funlockfile(self.0);
            pthread_setcancelstate(self.1, std::ptr::null_mut());
        }
    }
}

unsafe fn length_of(text: *const wchar_t) -> usize {
    (0..).take_while(|&at| *text.add(at) != 0).count()
}

/// One of the C library's functions for a stream: ours where the stream is, and else what is behind it.
macro_rules! either {
    ($file:expr, |$locked:ident| $ours:expr, $behind:expr) => {
        match Locked::new($file) {
            Some($locked) => $ours,
            None => $behind,
        }
    };
}

unsafe extern "C-unwind" fn print(
    file: *mut FILE,
    format: *const wchar_t,
    arguments: *mut Arguments,
) -> c_int {
    either!(file, |ours| ours.print(format, arguments), behind::vfwprintf(file, format, arguments))
}

unsafe extern "C-unwind" fn print_out(format: *const wchar_t, arguments: *mut Arguments) -> c_int {
    print(stdout, format, arguments)
}

/// With what is checked of the format.
unsafe extern "C-unwind" fn print_checked(
    file: *mut FILE,
    flag: c_int,
    format: *const wchar_t,
    arguments: *mut Arguments,
) -> c_int {
    either!(
        file,
        |ours| ours.print(format, arguments),
        behind::__vfwprintf_chk(file, flag, format, arguments)
    )
}

unsafe extern "C-unwind" fn print_out_checked(
    flag: c_int,
    format: *const wchar_t,
    arguments: *mut Arguments,
) -> c_int {
    print_checked(stdout, flag, format, arguments)
}

/// Wide characters that are taken apart by a format are not there for streams of ours: who asks for them is
/// told that nothing was read.
unsafe fn refuse_to_scan(file: &Locked) -> c_int {
    set(Errno::OPNOTSUPP);
    file.fail();
    -1
}

unsafe extern "C-unwind" fn scan(
    file: *mut FILE,
    format: *const wchar_t,
    arguments: *mut Arguments,
) -> c_int {
    either!(file, |ours| refuse_to_scan(&ours), behind::vfwscanf(file, format, arguments))
}

unsafe extern "C-unwind" fn scan_in(format: *const wchar_t, arguments: *mut Arguments) -> c_int {
    scan(stdin, format, arguments)
}

/// Formats as C99 has them.
unsafe extern "C-unwind" fn scan_c99(
    file: *mut FILE,
    format: *const wchar_t,
    arguments: *mut Arguments,
) -> c_int {
    either!(file, |ours| refuse_to_scan(&ours), behind::__isoc99_vfwscanf(file, format, arguments))
}

unsafe extern "C-unwind" fn scan_in_c99(format: *const wchar_t, arguments: *mut Arguments) -> c_int {
    scan_c99(stdin, format, arguments)
}

variadic! {
    fwprintf: "16", "mov rsi, rsi", "rdx", print;
    __fwprintf_chk: "24", "mov rsi, rsi", "rcx", print_checked;
    wprintf: "8", "mov rdi, rdi", "rsi", print_out;
    __wprintf_chk: "16", "mov rdi, rdi", "rdx", print_out_checked;
    fwscanf: "16", "mov rsi, rsi", "rdx", scan;
    __isoc99_fwscanf: "16", "mov rsi, rsi", "rdx", scan_c99;
    wscanf: "8", "mov rdi, rdi", "rsi", scan_in;
    __isoc99_wscanf: "8", "mov rdi, rdi", "rsi", scan_in_c99;
}

unsafe fn get(file: *mut FILE) -> Wint {
    either!(file, |ours| ours.get(), behind::fgetwc(file))
}

unsafe fn get_unlocked(file: *mut FILE) -> Wint {
    either!(file, |ours| ours.get(), behind::fgetwc_unlocked(file))
}

unsafe fn put_one(character: wchar_t, file: *mut FILE) -> Wint {
    either!(file, |ours| ours.put(character), behind::fputwc(character, file))
}

unsafe fn put_unlocked(character: wchar_t, file: *mut FILE) -> Wint {
    either!(file, |ours| ours.put(character), behind::fputwc_unlocked(character, file))
}

unsafe fn line(out: *mut wchar_t, room: c_int, file: *mut FILE) -> *mut wchar_t {
    either!(file, |ours| ours.line(out, room), behind::fgetws(out, room, file))
}

unsafe fn line_unlocked(out: *mut wchar_t, room: c_int, file: *mut FILE) -> *mut wchar_t {
    either!(file, |ours| ours.line(out, room), behind::fgetws_unlocked(out, room, file))
}

unsafe fn put_text(ours: &Locked, text: *const wchar_t) -> c_int {
    let text = std::slice::from_raw_parts(text, length_of(text));
    if ours.text(text) { 1 } else { -1 }
}

/// As far as there is memory for it: more than that is the end of the program.
unsafe fn line_within(ours: &Locked, out: *mut wchar_t, size: size_t, room: c_int) -> *mut wchar_t {
    match usize::try_from(room) {
        Ok(wanted) if wanted > size => {
            let found = ours.line(out, c_int::try_from(size).unwrap_or(room));
            let is_full = !found.is_null() && size > 1 && length_of(out) + 1 == size;
            let is_cut = is_full && *out.add(size - 2) != wchar_t::from(b'\n');
            if is_cut {
                __chk_fail();
            }
            found
        }
        _ => ours.line(out, room),
    }
}

exported! {
    fn fwide(file: *mut FILE, mode: c_int) -> c_int {
        let Some(orientation) = stdio::orientation(file) else { return behind::fwide(file, mode) };
        if mode != 0 {
            let _ = (*orientation).compare_exchange(0, mode.signum(), Ordering::Relaxed, Ordering::Relaxed);
        }
        (*orientation).load(Ordering::Relaxed)
    }

    fn fgetwc(file: *mut FILE) -> Wint {
        get(file)
    }

    fn getwc(file: *mut FILE) -> Wint {
        get(file)
    }

    fn getwchar() -> Wint {
        get(stdin)
    }

    fn fgetwc_unlocked(file: *mut FILE) -> Wint {
        get_unlocked(file)
    }

    fn getwc_unlocked(file: *mut FILE) -> Wint {
        get_unlocked(file)
    }

    fn getwchar_unlocked() -> Wint {
        get_unlocked(stdin)
    }

    fn fputwc(character: wchar_t, file: *mut FILE) -> Wint {
        put_one(character, file)
    }

    fn putwc(character: wchar_t, file: *mut FILE) -> Wint {
        put_one(character, file)
    }

    fn putwchar(character: wchar_t) -> Wint {
        put_one(character, stdout)
    }

    fn fputwc_unlocked(character: wchar_t, file: *mut FILE) -> Wint {
        put_unlocked(character, file)
    }

    fn putwc_unlocked(character: wchar_t, file: *mut FILE) -> Wint {
        put_unlocked(character, file)
    }

    fn putwchar_unlocked(character: wchar_t) -> Wint {
        put_unlocked(character, stdout)
    }

    fn fgetws(out: *mut wchar_t, room: c_int, file: *mut FILE) -> *mut wchar_t {
        line(out, room, file)
    }

    fn fgetws_unlocked(out: *mut wchar_t, room: c_int, file: *mut FILE) -> *mut wchar_t {
        line_unlocked(out, room, file)
    }

    fn __fgetws_chk(out: *mut wchar_t, size: size_t, room: c_int, file: *mut FILE) -> *mut wchar_t {
        either!(file, |ours| line_within(&ours, out, size, room), behind::__fgetws_chk(out, size, room, file))
    }

    fn __fgetws_unlocked_chk(out: *mut wchar_t, size: size_t, room: c_int, file: *mut FILE) -> *mut wchar_t {
        either!(
            file,
            |ours| line_within(&ours, out, size, room),
            behind::__fgetws_unlocked_chk(out, size, room, file)
        )
    }

    fn fputws(text: *const wchar_t, file: *mut FILE) -> c_int {
        either!(file, |ours| put_text(&ours, text), behind::fputws(text, file))
    }

    fn fputws_unlocked(text: *const wchar_t, file: *mut FILE) -> c_int {
        either!(file, |ours| put_text(&ours, text), behind::fputws_unlocked(text, file))
    }

    fn ungetwc(character: Wint, file: *mut FILE) -> Wint {
        either!(file, |ours| ours.back(character), behind::ungetwc(character, file))
    }

    fn vfwprintf(file: *mut FILE, format: *const wchar_t, arguments: *mut Arguments) -> c_int {
        print(file, format, arguments)
    }

    fn __vfwprintf_chk(
        file: *mut FILE,
        flag: c_int,
        format: *const wchar_t,
        arguments: *mut Arguments,
    ) -> c_int {
        print_checked(file, flag, format, arguments)
    }

    fn vwprintf(format: *const wchar_t, arguments: *mut Arguments) -> c_int {
        print(stdout, format, arguments)
    }

    fn __vwprintf_chk(flag: c_int, format: *const wchar_t, arguments: *mut Arguments) -> c_int {
        print_checked(stdout, flag, format, arguments)
    }

    fn vfwscanf(file: *mut FILE, format: *const wchar_t, arguments: *mut Arguments) -> c_int {
        scan(file, format, arguments)
    }

    fn __isoc99_vfwscanf(file: *mut FILE, format: *const wchar_t, arguments: *mut Arguments) -> c_int {
        scan_c99(file, format, arguments)
    }

    fn vwscanf(format: *const wchar_t, arguments: *mut Arguments) -> c_int {
        scan(stdin, format, arguments)
    }

    fn __isoc99_vwscanf(format: *const wchar_t, arguments: *mut Arguments) -> c_int {
        scan_c99(stdin, format, arguments)
    }
}
