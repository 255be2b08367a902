//! How C functions are declared: each one once, in [`exports!`], with its class, its parameters and its body.
//!
//! A declaration becomes the C function, an entry of a table of names and addresses, and a check that compares its type with
//! the declaration that bindgen made. [`Argument`] converts and checks parameters. The frame of each library does what
//! all its functions do at entry and exit.
//!
//! The traits and types that parameters name are `pub`, as the types of the C functions mention them.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_ulonglong, c_ushort, c_void};

use gpucomm_abi::types;

/// A C function, as its frame sees it.
#[derive(Debug, Clone, Copy)]
pub struct Function<Class> {
    pub(crate) name: &'static str,
    pub(crate) class: Class,
    /// The version of the library that introduced it; 0 if each version that the emulator can stand for has it.
    pub(crate) first: u32,
}

/// The name and the address of a C function.
#[derive(Debug)]
pub struct Export {
    pub name: &'static str,
    address: *const (),
}

// SAFETY: the address is that of a function, which never changes.
unsafe impl Sync for Export {}

impl Export {
    pub(crate) const fn new(name: &'static str, address: *const ()) -> Self {
        Self { name, address }
    }
}

/// The address of the function `name`, as by `dlsym`.
pub(crate) fn address(tables: &[&[Export]], name: &str) -> Option<*mut c_void> {
    let mut all = tables.iter().copied().flatten();
    all.find(|export| export.name == name).map(|export| export.address.cast_mut().cast())
}

/// A parameter of a C function: converts what C passes into what the body uses.
pub trait Argument<Error>: Sized {
    /// What C declares.
    type C;

    /// # Safety
    /// `passed` is what C declares: a pointer that is not null may be used as the type says until the call returns.
    unsafe fn take(passed: Self::C) -> Result<Self, Error>;
}

/// The error of a call whose place for a result is null.
pub trait OnNull {
    fn null() -> Self;
}

/// A place for a result; not null.
#[derive(Debug)]
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    pub(crate) fn set(&self, value: T) {
        // SAFETY: `take` checked the pointer, and was promised a place that may be written.
        unsafe { self.0.write(value) };
    }
}

impl<T, E> Argument<E> for Option<Out<T>> {
    type C = *mut T;

    unsafe fn take(passed: *mut T) -> Result<Self, E> {
        Ok((!passed.is_null()).then_some(Out(passed)))
    }
}

impl<T, E: OnNull> Argument<E> for Out<T> {
    type C = *mut T;

    unsafe fn take(passed: *mut T) -> Result<Self, E> {
        if passed.is_null() { Err(E::null()) } else { Ok(Self(passed)) }
    }
}

/// A value that the function reads, or null.
#[derive(Debug)]
pub struct In<T>(*const T);

impl<T> In<T> {
    pub(crate) fn get(&self) -> Option<&T> {
        // SAFETY: `take` was promised null or a value that may be read until the call returns.
        unsafe { self.0.as_ref() }
    }
}

impl<T, E> Argument<E> for In<T> {
    type C = *const T;

    unsafe fn take(passed: *const T) -> Result<Self, E> {
        Ok(Self(passed))
    }
}

/// A string of C, or null.
#[derive(Debug)]
pub struct Text(*const c_char);

impl Text {
    pub(crate) fn get(&self) -> Option<&CStr> {
        // SAFETY: `take` was promised null or a string that may be read until the call returns.
        (!self.0.is_null()).then(|| unsafe { CStr::from_ptr(self.0) })
    }
}

impl<E> Argument<E> for Text {
    type C = *const c_char;

    unsafe fn take(passed: *const c_char) -> Result<Self, E> {
        Ok(Self(passed))
    }
}

/// Parameters that the body uses as C passes them.
macro_rules! plain {
    ($([$($generics:ident)*] $type:ty,)*) => {$(
        impl<Error $(, $generics)*> Argument<Error> for $type {
            type C = Self;

            unsafe fn take(passed: Self) -> Result<Self, Error> {
                Ok(passed)
            }
        }
    )*};
}

plain! {
    [T] *mut T, [T] *const T,
    [] u8, [] c_ushort, [] c_int, [] c_uint, [] c_long, [] c_ulonglong, [] usize, [] isize,
    [] types::cudaHostFn_t,
    [] types::cudaDeviceAttr, [] types::cudaDeviceP2PAttr, [] types::cudaLimit, [] types::cudaMemcpyKind, [] types::cudaStreamCaptureMode,
    [] types::CUmemAllocationGranularity_flags, [] types::CUmemAllocationHandleType,
    [] types::ncclCommMemStat_t, [] types::ncclDataType_t, [] types::ncclRedOp_t, [] types::ncclScalarResidence_t,
    [] types::ncclUniqueId,
}

/// Declares C functions. The first line names their table, and says how their types are checked: `abi`, against the functions
/// of `gpucomm_abi`, or `looked_up`, against the type that stands behind each function.
///
/// The file that uses this names four things: `Class` lists the classes, `Error` is what a body fails with, `Status` is the type
/// that functions return if their declaration names none, and `frame` runs their bodies. If a declaration names a type (`-> Pes`),
/// that is an `Answer`, and `frame_of` runs the body. A function of the class `Bare` has neither frame nor checks, and its body is
/// that of the C function.
///
/// `(version)` behind a class says which version introduced a function; `as` gives the name that reports use; `|function|` in
/// front of the body makes the [`Function`] known there.
macro_rules! exports {
    ($table:ident: $check:ident; $(
        $(#[$meta:meta])*
        $class:ident $(($first:literal))? fn $name:ident $(as $shown:ident)? ($($arg:ident: $type:ty),* $(,)?)
            $(|$function:ident|)? $(-> $answer:ty)? $(: $declared:ty)? $body:block
    )*) => {
        pub(crate) static $table: &[$crate::table::Export] =
            &[$($crate::table::Export::new(stringify!($name), $name as *const ())),*];
        $(
            exports! { @check $check $name $($declared)? }
            exports! {
                @function $class (0 $(+ $first)?) [$name $($shown)?] $(#[$meta])*
                $name ($($arg: $type),*) [$($function)?] [$($answer)?] $body
            }
        )*
    };
    // An array literal coerces its elements to one function pointer type, and does not compile if they differ.
    (@check abi $name:ident) => {
        const _: () = { let _ = [gpucomm_abi::functions::$name, $name]; };
    };
    (@check looked_up $name:ident $($declared:ty)?) => {
        $(const _: $declared = Some($name);)?
    };
    (@function Bare $first:tt $shown:tt $(#[$meta:meta])* $name:ident ($($arg:ident: $type:ty),*) [] [$($answer:ty)?] $body:block) => {
        $(#[$meta])*
        pub unsafe extern "C" fn $name($($arg: $type),*) $(-> $answer)? $body
    };
    (@function $class:ident $first:tt $shown:tt $(#[$meta:meta])* $name:ident ($($arg:ident: $type:ty),*) $function:tt [] $body:block) => {
        $(#[$meta])*
        pub unsafe extern "C" fn $name($($arg: <$type as $crate::table::Argument<Error>>::C),*) -> Status {
            exports! { @body frame $class $first $shown ($($arg: $type),*) $function $body }
        }
    };
    (@function $class:ident $first:tt $shown:tt $(#[$meta:meta])* $name:ident ($($arg:ident: $type:ty),*) $function:tt [$answer:ty] $body:block) => {
        $(#[$meta])*
        pub unsafe extern "C" fn $name(
            $($arg: <$type as $crate::table::Argument<Error>>::C),*
        ) -> <$answer as Answer>::C {
            exports! { @body (frame_of::<$answer, _>) $class $first $shown ($($arg: $type),*) $function $body }
        }
    };
    (@body $frame:tt $class:ident $first:tt $shown:tt ($($arg:ident: $type:ty),*) [$($function:ident)?] $body:block) => {{
        let this = $crate::table::Function { name: exports!(@name $shown), class: Class::$class, first: $first };
        $(let $function = this;)?
        $frame(this, || {
            // SAFETY: the caller of the C function promises what C declares.
            $(let $arg = unsafe { <$type as $crate::table::Argument<Error>>::take($arg) }?;)*
            $body
        })
    }};
    (@name [$name:ident]) => { stringify!($name) };
    (@name [$name:ident $shown:ident]) => { stringify!($shown) };
}

pub(crate) use exports;
