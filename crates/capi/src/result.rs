//! `enum kv_result`, and what went wrong in it.

use std::borrow::Cow;
use std::ffi::CStr;

use sdk::Status;
use unvme_guide::session::{OpError, Returned, pair_status};

use crate::memory;

/// A number of `enum kv_result`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) i32);

macro_rules! codes {
    ($($number:literal $name:ident $text:literal;)*) => {
        // The table is whole, also where nothing here gives such a result.
        #[allow(dead_code)]
        impl Code {
            $(pub(crate) const $name: Self = Self($number);)*

            /// The name C knows it by.
            pub(crate) fn name(self) -> Option<&'static CStr> {
                Some(match self.0 {
                    $($number => $text,)*
                    _ => return None,
                })
            }
        }
    };
}

codes! {
    0x00 SUCCESS c"KV_SUCCESS";
    0x01 INVALID_VALUE_SIZE c"KV_ERR_INVALID_VALUE_SIZE";
    0x02 INVALID_VALUE_OFFSET c"KV_ERR_INVALID_VALUE_OFFSET";
    0x03 INVALID_KEY_SIZE c"KV_ERR_INVALID_KEY_SIZE";
    0x04 INVALID_OPTION c"KV_ERR_INVALID_OPTION";
    0x05 INVALID_KEYSPACE_ID c"KV_ERR_INVALID_KEYSPACE_ID";
    0x08 MISALIGNED_VALUE_SIZE c"KV_ERR_MISALIGNED_VALUE_SIZE";
    0x09 MISALIGNED_VALUE_OFFSET c"KV_ERR_MISALIGNED_VALUE_OFFSET";
    0x0a MISALIGNED_KEY_SIZE c"KV_ERR_MISALIGNED_KEY_SIZE";
    0x10 NOT_EXIST_KEY c"KV_ERR_NOT_EXIST_KEY";
    0x11 UNRECOVERED_ERROR c"KV_ERR_UNRECOVERED_ERROR";
    0x12 CAPACITY_EXCEEDED c"KV_ERR_CAPACITY_EXCEEDED";
    0x80 IDEMPOTENT_STORE_FAIL c"KV_ERR_IDEMPOTENT_STORE_FAIL";
    0x81 MAXIMUM_VALUE_SIZE_LIMIT_EXCEEDED c"KV_ERR_MAXIMUM_VALUE_SIZE_LIMIT_EXCEEDED";
    0x90 ITERATE_FAIL_TO_PROCESS_REQUEST c"KV_ERR_ITERATE_FAIL_TO_PROCESS_REQUEST";
    0x91 ITERATE_NO_AVAILABLE_HANDLE c"KV_ERR_ITERATE_NO_AVAILABLE_HANDLE";
    0x92 ITERATE_HANDLE_ALREADY_OPENED c"KV_ERR_ITERATE_HANDLE_ALREADY_OPENED";
    0x93 ITERATE_READ_EOF c"KV_ERR_ITERATE_READ_EOF";
    0x94 ITERATE_REQUEST_FAIL c"KV_ERR_ITERATE_REQUEST_FAIL";
    0x95 ITERATE_TCG_LOCKED c"KV_ERR_ITERATE_TCG_LOCKED";
    0x96 ITERATE_ERROR c"KV_ERR_ITERATE_ERROR";
    0x100 DD_NO_DEVICE c"KV_ERR_DD_NO_DEVICE";
    0x101 DD_INVALID_PARAM c"KV_ERR_DD_INVALID_PARAM";
    0x102 DD_INVALID_QUEUE_TYPE c"KV_ERR_DD_INVALID_QUEUE_TYPE";
    0x103 DD_NO_AVAILABLE_RESOURCE c"KV_ERR_DD_NO_AVAILABLE_RESOURCE";
    0x104 DD_NO_AVAILABLE_QUEUE c"KV_ERR_DD_NO_AVAILABLE_QUEUE";
    0x105 DD_UNSUPPORTED_CMD c"KV_ERR_DD_UNSUPPORTED_CMD";
    0x106 DD_ITERATE_COND_INVALID c"KV_ERR_DD_ITERATE_COND_INVALID";
    0x200 SDK_OPEN c"KV_ERR_SDK_OPEN";
    0x201 SDK_CLOSE c"KV_ERR_SDK_CLOSE";
    0x202 CACHE_NO_CACHED_KEY c"KV_ERR_CACHE_NO_CACHED_KEY";
    0x203 CACHE_INVALID_PARAM c"KV_ERR_CACHE_INVALID_PARAM";
    0x204 HEAP_ALLOC_FAILURE c"KV_ERR_HEAP_ALLOC_FAILURE";
    0x205 SLAB_ALLOC_FAILURE c"KV_ERR_SLAB_ALLOC_FAILURE";
    0x206 SDK_INVALID_PARAM c"KV_ERR_SDK_INVALID_PARAM";
    0x300 WRN_MORE c"KV_WRN_MORE";
    0x301 BUFFER c"KV_ERR_BUFFER";
    0x302 DECOMPRESSION c"KV_ERR_DECOMPRESSION";
    0x303 IO c"KV_ERR_IO";
}

impl Code {
    /// What a device's status is in `enum kv_result`.
    ///
    /// The codes of type 3 are those of `enum kv_result`; the Key Value Command Set has the same meanings in
    /// type 0. Everything else is an I/O error: a code without its type would be mistaken for one of these.
    pub(crate) fn of_status(status: Status) -> Self {
        if status.is_success() {
            return Self::SUCCESS;
        }
        pair_status::of(status).map_or(Self::IO, |kind| Self(i32::from(kind.code())))
    }
}

/// Why a call failed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What the function returns.
    pub(crate) code: Code,
    /// What the device said; success when it was not asked.
    pub(crate) status: Status,
    /// What is wrong, in words; empty: the status says it.
    pub(crate) text: Cow<'static, str>,
}

/// What every function is, before C gets a number.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub(crate) fn new(code: Code, text: impl Into<Cow<'static, str>>) -> Self {
        Self { code, status: Status::SUCCESS, text: text.into() }
    }

    pub(crate) const fn of_status(status: Status, code: Code) -> Self {
        Self { code, status, text: Cow::Borrowed("") }
    }

    /// The words for it.
    pub(crate) fn describe(&self) -> String {
        if self.text.is_empty() {
            format!("the device answered {}", pair_status::OfPair(self.status))
        } else {
            self.text.to_string()
        }
    }

    /// The same failure as an I/O error, for functions that have no other.
    pub(crate) fn into_io(self) -> Self {
        Self { code: Code::IO, ..self }
    }
}

impl From<OpError> for Failure {
    fn from(error: OpError) -> Self {
        let code = match &error {
            OpError::Status(status) => return Self::of_status(*status, Code::of_status(*status)),
            OpError::Argument(_) => Code::DD_INVALID_PARAM,
            OpError::Unsupported(_) => Code::DD_UNSUPPORTED_CMD,
            OpError::WrongQueue { .. } => Code::DD_INVALID_QUEUE_TYPE,
            OpError::QueueFull => Code::DD_NO_AVAILABLE_RESOURCE,
            OpError::SlabExhausted { .. } => Code::SLAB_ALLOC_FAILURE,
            OpError::Closed => Code::SDK_INVALID_PARAM,
            OpError::Reentered => Code::SDK_CLOSE,
            _ => Code::IO,
        };
        Self::new(code, error.to_string())
    }
}

impl From<Returned> for Failure {
    /// Puts the buffer of an operation back that was not done.
    fn from(returned: Returned) -> Self {
        if let Some(buf) = returned.buf {
            memory::give_back(buf);
        }
        Self::from(returned.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defect_05_a_status_of_another_type_is_not_taken_for_a_key_value_result() {
        // LBA Out of Range and Invalid Field have the codes of idempotent store failed and invalid offset.
        assert_eq!(Code::of_status(Status::new(0, 0x80)), Code::IO);
        assert_eq!(Code::of_status(Status::new(0, 0x02)), Code::IO);
        assert_eq!(Code::of_status(Status::new(3, 0x80)).0, 0x80);
        assert_eq!(Code::of_status(Status::new(3, 0x02)).0, 0x02);
        // Command Aborted By Host is a path error, and no key-value result.
        assert_eq!(Code::of_status(Status::new(3, 0x71)), Code::IO);
        assert_eq!(Code::of_status(Status::new(2, 0x81)), Code::IO);
    }

    #[test]
    fn both_dialects_give_the_same_results() {
        for (standard, vendor) in
            [(0x81, 0x12), (0x85, 0x01), (0x86, 0x03), (0x87, 0x10), (0x88, 0x11), (0x89, 0x80)]
        {
            assert_eq!(Code::of_status(Status::new(0, standard)).0, vendor, "{standard:#x}");
            assert_eq!(Code::of_status(Status::new(3, vendor as u8)).0, vendor, "{vendor:#x}");
        }
        assert_eq!(Code::of_status(Status::SUCCESS), Code::SUCCESS);
        assert_eq!(Code::of_status(Status::new(3, 0x10).with_do_not_retry()).0, 0x10);
    }

    #[test]
    fn a_failure_says_in_words_what_the_device_answered() {
        for missing in [Status::new(3, 0x10), Status::new(0, 0x87)] {
            let failure = Failure::from(OpError::Status(missing));
            assert_eq!(failure.describe(), "the device answered Key Does Not Exist (0x10)");
        }
        let failure = Failure::from(OpError::Status(Status::LBA_OUT_OF_RANGE));
        assert_eq!(failure.describe(), "the device answered LBA Out of Range (0x080)");
        assert_eq!(Failure::from(OpError::QueueFull).code, Code::DD_NO_AVAILABLE_RESOURCE);
    }
}
