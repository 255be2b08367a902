//! Parameters of NCCL: what its C functions say of one.

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr;

use super::check::check;
use crate::error::Result;
use crate::lock::{Mutex, MutexGuard};
use crate::sys::{self, ncclResult_t};

/// One thread at a time asks: `ncclParamBind` and `ncclParamGetParameter` note which names were asked for, without a lock (2.30.7).
static ASKING: Mutex<()> = Mutex::new(());

/// The turn of a thread to ask.
pub(crate) struct Asking(#[expect(dead_code, reason = "it is held")] MutexGuard<'static, ()>);

/// A parameter that was found: an entry of a table that NCCL keeps until the process ends.
#[derive(Clone, Copy)]
pub(crate) struct Bound(sys::ncclParamHandle_t);

/// `None` for `ncclInvalidArgument`, with which NCCL says that there is none, or that it is of another type.
fn found(function: &'static str, result: ncclResult_t) -> Result<Option<()>> {
    if result == ncclResult_t::ncclInvalidArgument {
        return Ok(None);
    }
    check(function, result).map(Some)
}

/// A copy of a string of C that is not null.
///
/// # Safety
/// It is a string of C.
unsafe fn copied(text: *const c_char) -> String {
    // SAFETY: as the caller promises.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// A getter for numbers of one type.
macro_rules! numbers {
    ($($name:ident: sys::$function:ident -> $type:ty;)*) => {
        $(
            #[doc = concat!("Wraps `", stringify!($function), "`; `None` where the parameter is of another type.")]
            pub(crate) fn $name(&self, Bound(handle): Bound) -> Result<Option<$type>> {
                let mut value = 0;
                // SAFETY: a handle that NCCL has given out, and a place for the value.
                let result = unsafe { sys::$function(handle, &raw mut value) };
                Ok(found(stringify!($function), result)?.map(|()| value))
            }
        )*
    };
}

impl Asking {
    pub(crate) fn begin() -> Self {
        Self(ASKING.lock())
    }

    /// Wraps `ncclParamGetAllParameterKeys`.
    pub(crate) fn keys(&self) -> Result<Vec<CString>> {
        let (mut table, mut length) = (ptr::null_mut(), 0);
        // SAFETY: places for the table and its length.
        let result = unsafe { sys::ncclParamGetAllParameterKeys(&raw mut table, &raw mut length) };
        check("ncclParamGetAllParameterKeys", result)?;
        let length = usize::try_from(length).unwrap_or(0);
        // SAFETY: the table has so many strings of C, all of which stay as they are until this thread asks again.
        Ok((0..length).map(|at| unsafe { CStr::from_ptr(table.add(at).read()) }.to_owned()).collect())
    }

    /// Wraps `ncclParamBind`; `None` where there is no such parameter.
    pub(crate) fn bind(&self, name: &CStr) -> Result<Option<Bound>> {
        let mut handle = ptr::null_mut();
        // SAFETY: a place for the handle, and a string of C. No other thread is in this function or `ncclParamGetParameter`.
        let result = unsafe { sys::ncclParamBind(&raw mut handle, name.as_ptr()) };
        Ok(found("ncclParamBind", result)?.map(|()| Bound(handle)))
    }

    /// Wraps `ncclParamGetParameter`: the value as NCCL writes it; `None` where there is no such parameter.
    pub(crate) fn written(&self, name: &CStr) -> Result<Option<String>> {
        let (mut text, mut length) = (ptr::null(), 0);
        // SAFETY: a string of C, and places for the value and its length. No other thread is in this function or `ncclParamBind`.
        let result = unsafe { sys::ncclParamGetParameter(name.as_ptr(), &raw mut text, &raw mut length) };
        // SAFETY: where the call has succeeded it is a string of C, which stays as it is until this thread asks again.
        Ok(found("ncclParamGetParameter", result)?.map(|()| unsafe { copied(text) }))
    }

    numbers! {
        i8: sys::ncclParamGetI8 -> i8;
        i16: sys::ncclParamGetI16 -> i16;
        i32: sys::ncclParamGetI32 -> i32;
        i64: sys::ncclParamGetI64 -> i64;
        u8: sys::ncclParamGetU8 -> u8;
        u16: sys::ncclParamGetU16 -> u16;
        u32: sys::ncclParamGetU32 -> u32;
        u64: sys::ncclParamGetU64 -> u64;
    }

    /// Wraps `ncclParamGetStr`; `None` where the parameter is of another type.
    pub(crate) fn text(&self, Bound(handle): Bound) -> Result<Option<String>> {
        let mut text = ptr::null();
        // SAFETY: a handle that NCCL has given out, and a place for the text.
        let result = unsafe { sys::ncclParamGetStr(handle, &raw mut text) };
        // SAFETY: where the call has succeeded it is a string of C, which stays as it is until this thread asks again.
        Ok(found("ncclParamGetStr", result)?.map(|()| unsafe { copied(text) }))
    }

    /// Wraps `ncclParamGet`: how many bytes the value takes, and the first of them; `None` where that is more than those of any number.
    pub(crate) fn bytes(&self, Bound(handle): Bound) -> Result<Option<(usize, u8)>> {
        let mut bytes = [0_u8; size_of::<u64>()];
        let mut length: c_int = 0;
        // SAFETY: a handle that NCCL has given out, a place of that many bytes, and one for the length.
        let result =
            unsafe { sys::ncclParamGet(handle, bytes.as_mut_ptr().cast(), bytes.len() as c_int, &raw mut length) };
        Ok(found("ncclParamGet", result)?.map(|()| (usize::try_from(length).unwrap_or(0), bytes[0])))
    }
}
