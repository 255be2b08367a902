//! The functions of NCCL that read its parameters.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int, c_void};

use super::{Class, frame};
use crate::nccl::basics::error::{Failure, Outcome};
use crate::nccl::basics::parameters;
use crate::sys::{ncclParamHandle_t, ncclResult_t};
use crate::table::{Out, Text, exports};

type Error = Failure;
type Status = ncclResult_t;

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

macro_rules! numbers {
    ($($name:ident: $type:ty),*) => {
        exports! { NUMBERS: abi; $(
            Any(2_30_04) fn $name(handle: ncclParamHandle_t, out: Option<Out<$type>>) {
                let value = parameters::typed::<$type>(parameters::of(handle)?)?;
                out.ok_or_else(crate::table::OnNull::null).map(|out| out.set(value))
            }
        )* }
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

exports! { PARAMETERS: abi;
    Any(2_30_04) fn ncclParamBind(out: Option<Out<ncclParamHandle_t>>, key: Text) {
        let (Some(out), Some(key)) = (out, key.get()) else {
            return Err(refused("the place for the handle, or the name,"));
        };
        out.set(parameters::handle(parameters::by_name(key)?));
        Ok(())
    }

    Any(2_30_04) fn ncclParamGetStr(handle: ncclParamHandle_t, out: Out<*const c_char>) {
        let text = parameters::typed::<String>(parameters::of(handle)?)?;
        out.set(handed_out(&TEXT, text)?.0);
        Ok(())
    }

    Any(2_30_04) fn ncclParamGet(
        handle: ncclParamHandle_t,
        out: *mut c_void,
        maxLen: c_int,
        len: Option<Out<c_int>>,
    ) {
        let parameter = parameters::of(handle)?;
        let Some(len) = len.filter(|_| !out.is_null() && maxLen > 0) else {
            return Err(refused("the place for the value or its length, or the length,"));
        };
        let bytes = parameters::bytes(parameter, maxLen as usize);
        len.set(bytes.as_ref().map_or(0, |bytes| bytes.len() as c_int));
        let bytes = bytes?;
        // SAFETY: not null, and as C declares it, a place for `maxLen` bytes, which these are no more than.
        unsafe { out.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    Any(2_30_04) fn ncclParamGetParameter(
        key: Text,
        value: Option<Out<*const c_char>>,
        valueLen: Option<Out<c_int>>,
    ) {
        let (Some(key), Some(value), Some(valueLen)) = (key.get(), value, valueLen) else {
            return Err(refused("the name, or a place for its value or the length of that,"));
        };
        let found = parameters::by_name(key);
        let written = found.and_then(|parameter| handed_out(&WRITTEN, parameters::text(parameter)));
        let (text, length) = *written.as_ref().unwrap_or(&(std::ptr::null(), 0));
        value.set(text);
        valueLen.set(length);
        written.map(drop)
    }

    Any(2_30_04) fn ncclParamGetAllParameterKeys(table: Option<Out<*mut *const c_char>>, tableLen: Option<Out<c_int>>) {
        let (Some(table), Some(tableLen)) = (table, tableLen) else {
            return Err(refused("the place for the table, or its length,"));
        };
        let keys = parameters::keys();
        let length = keys.len() as c_int;
        let pointer = KEYS.try_with(|slot| {
            *slot.borrow_mut() = keys;
            slot.borrow_mut().as_mut_ptr()
        });
        table.set(pointer.map_err(|_| Failure::internal("the thread ends"))?);
        tableLen.set(length);
        Ok(())
    }
}
