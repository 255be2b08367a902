//! Parameters: what C programs may get wrong, and what the answers of NCCL 2.30.7 are to that.

use std::ffi::{c_char, c_int};
use std::ptr;

use super::one_sided::since;
use super::*;
use crate::report::expected::reported;

const WRONG: ncclResult_t = ncclResult_t::ncclInvalidArgument;

fn bind(key: &CStr) -> ncclParamHandle_t {
    let mut handle = ptr::null_mut();
    // SAFETY: the pointers are a place for the handle and a string.
    assert_eq!(unsafe { ncclParamBind(&raw mut handle, key.as_ptr()) }, OK, "{}", last_error());
    handle
}

#[test]
fn places_that_are_too_small_or_none() {
    alone!();
    since(2_30_04, "parameters::places_that_are_too_small_or_none", || {
        let levels = bind(c"NCCL_DEBUG_TIMESTAMP_LEVELS");
        let (mut bytes, mut length): ([u8; 8], c_int) = ([0xa5; 8], -1);
        let place = bytes.as_mut_ptr().cast();
        let none = ptr::null_mut::<u8>;
        // SAFETY: each pointer is null, or a place for what is written there.
        unsafe {
            assert_eq!(ncclParamGet(levels, place, 3, &raw mut length), WRONG);
            assert_eq!((bytes, length), ([0xa5; 8], 0));
            assert_eq!(ncclParamGet(levels, place, 8, &raw mut length), OK);
            assert_eq!((&bytes[4..], length), (&[0xa5; 4][..], 4));
            assert_eq!(ncclParamGet(levels, place, 0, &raw mut length), WRONG);
            assert_eq!(ncclParamGet(levels, place, -1, &raw mut length), WRONG);
            assert_eq!(ncclParamGet(levels, none().cast(), 8, &raw mut length), WRONG);
            assert_eq!(ncclParamGet(levels, place, 8, none().cast()), WRONG);
            assert_eq!(ncclParamGet(none().cast(), place, 8, &raw mut length), WRONG);
            assert_eq!(ncclParamGetU32(levels, none().cast()), WRONG);
            assert_eq!(ncclParamGetU32(none().cast(), place.cast()), WRONG);
            assert_eq!(ncclParamBind(none().cast(), c"NCCL_DEBUG".as_ptr()), WRONG);
            assert_eq!(ncclParamGetAllParameterKeys(none().cast(), &raw mut length), WRONG);
        }
    });
}

#[test]
fn one_type_each() {
    alone!();
    since(2_30_04, "parameters::one_type_each", || {
        let mut value = [0xa5; 8];
        let place = value.as_mut_ptr();
        let mut text = ptr::null();
        for (key, fits) in [
            (c"NCCL_DEBUG_TIMESTAMP_LEVELS", "U32"),
            (c"NCCL_DEBUG_SUBSYS", "U64"),
            (c"NCCL_DEBUG_FILE", "Str"),
            (c"NCCL_SET_THREAD_NAME", ""),
            (c"NCCL_DEBUG", ""),
        ] {
            let handle = bind(key);
            // SAFETY: a handle, and places that are large enough for each.
            let answers = unsafe {
                [
                    ("I8", ncclParamGetI8(handle, place.cast())),
                    ("I16", ncclParamGetI16(handle, place.cast())),
                    ("I32", ncclParamGetI32(handle, place.cast())),
                    ("I64", ncclParamGetI64(handle, place.cast())),
                    ("U8", ncclParamGetU8(handle, place.cast())),
                    ("U16", ncclParamGetU16(handle, place.cast())),
                    ("U32", ncclParamGetU32(handle, place.cast())),
                    ("U64", ncclParamGetU64(handle, place.cast())),
                    ("Str", ncclParamGetStr(handle, &raw mut text)),
                ]
            };
            for (name, answer) in answers {
                assert_eq!(answer, if name == fits { OK } else { WRONG }, "{key:?} as {name}");
            }
        }
    });
}

#[test]
fn names_that_there_are_not() {
    alone!();
    since(2_30_04, "parameters::names_that_there_are_not", || {
        for key in [c"NCCL_ALGO", c"nccl_debug", c""] {
            let (mut text, mut length): (*const c_char, c_int) = (c"before".as_ptr(), 7);
            let mut handle = ptr::null_mut();
            // SAFETY: a string, and places for what is written.
            unsafe {
                assert_eq!(ncclParamGetParameter(key.as_ptr(), &raw mut text, &raw mut length), WRONG);
                assert_eq!(ncclParamBind(&raw mut handle, key.as_ptr()), WRONG);
            }
            assert!(text.is_null() && length == 0 && handle.is_null());
        }
    });
}

/// NCCL follows whatever it is given.
#[test]
fn what_is_no_handle_is_a_violation() {
    alone!();
    since(2_30_04, "parameters::what_is_no_handle_is_a_violation", || {
        let (mut other, mut value) = (0_u64, 0);
        // SAFETY: the emulator does not follow it, and there is a place for the value.
        let asked = || unsafe { ncclParamGetU64((&raw mut other).cast(), &raw mut value) };
        assert_eq!(reported("no handle of a parameter", asked), WRONG);
    });
}
