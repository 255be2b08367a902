//! The C functions that tell of NCCL's parameters.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};

use super::{SUCCESS, put};
use crate::nccl::basics::error::{Failure, Outcome, entry};
use crate::nccl::basics::parameters;
use crate::nccl::basics::safety::functions;
use crate::sys::{ncclParamHandle_t, ncclResult_t};

thread_local! {
    /// What `ncclParamGetStr` handed out on this thread; it lives until the thread asks again.
    static TEXT: RefCell<CString> = RefCell::new(CString::default());
    /// The same of `ncclParamGetParameter`.
    static WRITTEN: RefCell<CString> = RefCell::new(CString::default());
    /// The same of `ncclParamGetAllParameterKeys`.
    static KEYS: RefCell<Vec<*const c_char>> = const { RefCell::new(Vec::new()) };
}

fn refused(what: &str) -> Failure {
    Failure::argument(format!("{what} is null"))
}

pub unsafe extern "C" fn ncclParamBind(out: *mut ncclParamHandle_t, key: *const c_char) -> ncclResult_t {
    entry(functions::ncclParamBind, || {
        if out.is_null() || key.is_null() {
            return Err(refused("the place for the handle, or the name,"));
        }
        // SAFETY: not null, and as C declares it, a string.
        let found = parameters::by_name(unsafe { CStr::from_ptr(key) })?;
        // SAFETY: the caller's pointer, as C declares it.
        unsafe { put(out, parameters::handle(found)) }
    })
}

macro_rules! numbers {
    ($($name:ident: $type:ty),*) => {
        $(pub unsafe extern "C" fn $name(h: ncclParamHandle_t, out: *mut $type) -> ncclResult_t {
            entry(functions::$name, || {
                let value = parameters::typed::<$type>(parameters::of(h)?)?;
                // SAFETY: the caller's pointer, as C declares it.
                unsafe { put(out, value) }
            })
        })*
    };
}

numbers! {
    ncclParamGetI8: i8,
    ncclParamGetI16: i16,
    ncclParamGetI32: i32,
    ncclParamGetI64: i64,
    ncclParamGetU8: u8,
    ncclParamGetU16: u16,
    ncclParamGetU32: u32,
    ncclParamGetU64: u64
}

/// Keeps `text` until this thread asks again.
fn handed_out(slot: &'static std::thread::LocalKey<RefCell<CString>>, text: String) -> Outcome<(*const c_char, c_int)> {
    let text = CString::new(text).map_err(|_| Failure::internal("a parameter holds a NUL"))?;
    let length = text.count_bytes() as c_int;
    let pointer = slot.try_with(|slot| {
        *slot.borrow_mut() = text;
        slot.borrow().as_ptr()
    });
    Ok((pointer.map_err(|_| Failure::internal("the thread ends"))?, length))
}

pub unsafe extern "C" fn ncclParamGetStr(h: ncclParamHandle_t, out: *mut *const c_char) -> ncclResult_t {
    entry(functions::ncclParamGetStr, || {
        let text = parameters::typed::<String>(parameters::of(h)?)?;
        // SAFETY: the caller's pointer, as C declares it.
        unsafe { put(out, handed_out(&TEXT, text)?.0) }
    })
}

pub unsafe extern "C" fn ncclParamGet(
    h: ncclParamHandle_t,
    out: *mut c_void,
    maxLen: c_int,
    len: *mut c_int,
) -> ncclResult_t {
    entry(functions::ncclParamGet, || {
        let parameter = parameters::of(h)?;
        if out.is_null() || len.is_null() || maxLen <= 0 {
            return Err(refused("the place for the value or its length, or the length,"));
        }
        let bytes = parameters::bytes(parameter, maxLen as usize);
        // SAFETY: not null, and as C declares them, a place for `maxLen` bytes, which these are no more than, and one for a number.
        unsafe {
            len.write(bytes.as_ref().map_or(0, |bytes| bytes.len() as c_int));
            let bytes = bytes?;
            out.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        SUCCESS
    })
}

pub unsafe extern "C" fn ncclParamGetParameter(
    key: *const c_char,
    value: *mut *const c_char,
    valueLen: *mut c_int,
) -> ncclResult_t {
    entry(functions::ncclParamGetParameter, || {
        if key.is_null() || value.is_null() || valueLen.is_null() {
            return Err(refused("the name, or a place for its value or the length of that,"));
        }
        // SAFETY: not null, and as C declares it, a string.
        let found = parameters::by_name(unsafe { CStr::from_ptr(key) });
        let written = found.and_then(|parameter| handed_out(&WRITTEN, parameters::text(parameter)));
        let (text, length) = *written.as_ref().unwrap_or(&(std::ptr::null(), 0));
        // SAFETY: not null, and as C declares them, places for a pointer and a number.
        unsafe {
            value.write(text);
            valueLen.write(length);
        }
        written.map(|_| ncclResult_t::ncclSuccess)
    })
}

pub unsafe extern "C" fn ncclParamGetAllParameterKeys(
    table: *mut *mut *const c_char,
    tableLen: *mut c_int,
) -> ncclResult_t {
    entry(functions::ncclParamGetAllParameterKeys, || {
        if table.is_null() || tableLen.is_null() {
            return Err(refused("the place for the table, or its length,"));
        }
        let keys = parameters::keys();
        let length = keys.len() as c_int;
        let pointer = KEYS.try_with(|slot| {
            *slot.borrow_mut() = keys;
            slot.borrow_mut().as_mut_ptr()
        });
        // SAFETY: not null, and as C declares them, places for a pointer and a number.
        unsafe {
            table.write(pointer.map_err(|_| Failure::internal("the thread ends"))?);
            tableLen.write(length);
        }
        SUCCESS
    })
}
