//! What NCCL is set to.

use std::ffi::CString;
use std::fmt;

use super::raw::outside::outside_of_host_functions;
use super::raw::parameters::Asking;
use crate::error::{Error, Result};
use crate::version::{self, Version};

/// The first version that tells of any.
const FIRST: Version = Version::new(2, 30, 4);

/// Wraps `ncclParamHandle_t` (NCCL 2.30.4): a parameter of NCCL, which environment variables set, of this process.
///
/// NCCL tells of few of its many variables: up to 2.32.3 of those that are about its log, and of names of threads. It reads them anew each
/// time that they are asked for, unless their description says that they are cached, which up to 2.32.3 is `NCCL_SET_THREAD_NAME` alone:
/// that is read once, at first use, which asking for it is. To ask for them needs no device and no communicator.
///
/// ```
/// # fn main() -> gpucomm::Result<()> {
/// use gpucomm::nccl::{Parameter, ParameterValue};
/// use gpucomm::Error;
///
/// let all = match Parameter::all() {
///     Ok(all) => all,
///     Err(Error::Unsupported { needs, .. }) => return Ok(println!("needs {needs}")),
///     Err(error) => return Err(error),
/// };
/// for parameter in all {
///     println!("{} is {}", parameter.name(), parameter.text()?);
/// }
/// // Bits, one for each of the parts of NCCL that write to its log.
/// let parts = Parameter::find("NCCL_DEBUG_SUBSYS")?;
/// assert_eq!(parts.value()?, ParameterValue::U64(parts.get::<u64>()?));
/// # Ok(())
/// # }
/// ```
#[doc(alias = "ncclParamHandle_t")]
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Parameter {
    name: CString,
}

/// What a [`Parameter`] holds, as the type that it has in NCCL.
///
/// ```
/// # fn main() -> gpucomm::Result<()> {
/// use gpucomm::nccl::{Parameter, ParameterValue};
///
/// # if Parameter::all().is_err() { return Ok(()) }
/// match Parameter::find("NCCL_DEBUG_FILE")?.value()? {
///     ParameterValue::Text(path) if path.is_empty() => println!("the log goes to stdout"),
///     ParameterValue::Text(path) => println!("the log goes to {path}"),
///     other => println!("it is of another type now: {other:?}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names say it")]
pub enum ParameterValue {
    I8(i8),
    I16(i16),
    I32(i32),
    I64(i64),
    U8(u8),
    U16(u16),
    U32(u32),
    U64(u64),
    Bool(bool),
    /// A string of C; empty where it is not set, and has no default.
    Text(String),
    /// Of any other type, such as an enumeration: as NCCL writes it, such as `WARN`.
    Other(String),
}

impl ParameterValue {
    /// The type, in Rust.
    fn type_name(&self) -> &'static str {
        match self {
            Self::I8(_) => "i8",
            Self::I16(_) => "i16",
            Self::I32(_) => "i32",
            Self::I64(_) => "i64",
            Self::U8(_) => "u8",
            Self::U16(_) => "u16",
            Self::U32(_) => "u32",
            Self::U64(_) => "u64",
            Self::Bool(_) => "bool",
            Self::Text(_) | Self::Other(_) => "String",
        }
    }
}

/// A type that [`Parameter::get`] gives: a number, `bool` or `String`. A number takes whatever its type has room for.
pub trait ParameterType: sealed::Sealed + Sized {}

mod sealed {
    use super::ParameterValue;

    pub trait Sealed {
        /// For errors.
        const NAME: &'static str;

        /// `None` where not every value of that type is one of this.
        fn of(value: ParameterValue) -> Option<Self>
        where
            Self: Sized;
    }
}

macro_rules! types {
    ($($type:ty: $($variant:ident)*;)*) => {
        $(
            impl ParameterType for $type {}
            impl sealed::Sealed for $type {
                const NAME: &'static str = stringify!($type);

                fn of(value: ParameterValue) -> Option<Self> {
                    match value {
                        $(ParameterValue::$variant(value) => Some(value.into()),)*
                        _ => None,
                    }
                }
            }
        )*
    };
}

types! {
    i8: I8;
    i16: I8 I16 U8;
    i32: I8 I16 I32 U8 U16;
    i64: I8 I16 I32 I64 U8 U16 U32;
    u8: U8;
    u16: U8 U16;
    u32: U8 U16 U32;
    u64: U8 U16 U32 U64;
    bool: Bool;
    String: Text Other;
}

impl Parameter {
    /// Wraps `ncclParamGetAllParameterKeys`: those of which NCCL tells, by their names in order; with `NCCL_PARAM_DUMP_ALL=1`, those too that
    /// are not in its documentation, and may change without notice.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with an older NCCL; what NCCL says.
    ///
    /// ```
    /// # use gpucomm::nccl::Parameter;
    /// if let Ok(all) = Parameter::all() {
    ///     assert!(all.iter().any(|parameter| parameter.name() == "NCCL_DEBUG"));
    /// }
    /// ```
    #[doc(alias = "ncclParamGetAllParameterKeys")]
    pub fn all() -> Result<Vec<Self>> {
        const OPERATION: &str = "Parameter::all";
        ready(OPERATION)?;
        let names = Asking::begin().keys()?.into_iter().filter(|name| name.to_str().is_ok());
        let mut all: Vec<_> = names.map(|name| Self { name }).collect();
        all.sort();
        Ok(all)
    }

    /// Wraps `ncclParamBind`: the parameter of that name, which is that of the environment variable, in capitals. Those are found too that
    /// [`Parameter::all`] leaves out.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where NCCL tells of none of that name, as of most of its variables; [`Error::Unsupported`] with an older NCCL.
    ///
    /// ```
    /// # use gpucomm::Error;
    /// # use gpucomm::nccl::Parameter;
    /// let error = Parameter::find("NCCL_NO_SUCH_THING").unwrap_err();
    /// assert!(matches!(error, Error::InvalidArgument { .. } | Error::Unsupported { .. }));
    /// ```
    #[doc(alias = "ncclParamBind")]
    pub fn find(name: &str) -> Result<Self> {
        const OPERATION: &str = "Parameter::find";
        ready(OPERATION)?;
        let asking = Asking::begin();
        match CString::new(name) {
            Ok(known) if asking.bind(&known)?.is_some() => Ok(Self { name: known }),
            _ => Err(unknown(OPERATION, &asking, name)),
        }
    }

    /// Its name, which is that of the environment variable.
    ///
    /// ```
    /// # use gpucomm::nccl::Parameter;
    /// if let Ok(parameter) = Parameter::find("NCCL_DEBUG") {
    ///     assert_eq!(parameter.name(), "NCCL_DEBUG");
    /// }
    /// ```
    pub fn name(&self) -> &str {
        self.name.to_str().unwrap_or_default()
    }

    /// Wraps `ncclParamGetI8` to `ncclParamGetU64`, `ncclParamGetStr` and `ncclParamGet`: what it holds, as a type of Rust that has room for
    /// all that its type has. Of another type than a number, a flag or a string, such as the level of [the example](Self::text), a `String`
    /// is what NCCL writes.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where it is of another type, which is named; what NCCL says.
    ///
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// # use gpucomm::nccl::Parameter;
    /// # if Parameter::all().is_err() { return Ok(()) }
    /// let parameter = Parameter::find("NCCL_SET_THREAD_NAME")?;
    /// println!("threads of NCCL have names: {}", parameter.get::<bool>()?);
    /// let error = parameter.get::<u32>().unwrap_err();
    /// assert!(error.to_string().contains("expected bool, as NCCL_SET_THREAD_NAME is, got u32"), "{error}");
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias("ncclParamGetI8", "ncclParamGetU64", "ncclParamGetStr", "ncclParamGet"))]
    pub fn get<T: ParameterType>(&self) -> Result<T> {
        const OPERATION: &str = "Parameter::get";
        let value = self.ask(OPERATION)?;
        let expected = format!("{}, as {} is", value.type_name(), self.name());
        T::of(value).ok_or_else(|| Error::argument(OPERATION, "type", expected, T::NAME))
    }

    /// What it holds, as the type that it has in NCCL, for which [`Parameter::get`] asks, too.
    ///
    /// # Errors
    /// What NCCL says.
    ///
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// # use gpucomm::nccl::Parameter;
    /// for parameter in Parameter::all().unwrap_or_default() {
    ///     println!("{parameter:?}: {:?}", parameter.value()?);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn value(&self) -> Result<ParameterValue> {
        self.ask("Parameter::value")
    }

    /// Wraps `ncclParamGetParameter`: what it holds, as NCCL writes it, such as `INIT,ENV,BOOTSTRAP`; `<unknown>` where it has no name for it.
    ///
    /// # Errors
    /// What NCCL says.
    ///
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// # use gpucomm::nccl::Parameter;
    /// # if Parameter::all().is_err() { return Ok(()) }
    /// let level = Parameter::find("NCCL_DEBUG")?.text()?;
    /// println!("NCCL_DEBUG={level}");
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ncclParamGetParameter")]
    pub fn text(&self) -> Result<String> {
        const OPERATION: &str = "Parameter::text";
        ready(OPERATION)?;
        let asking = Asking::begin();
        asking.written(&self.name)?.map_or_else(|| Err(unknown(OPERATION, &asking, self.name())), Ok)
    }

    /// NCCL does not say of which type it is, so that one getter after another is asked: those for numbers that take as many bytes, then
    /// that for strings. It writes a line for each that does not fit, with `NCCL_DEBUG=INFO`.
    fn ask(&self, operation: &'static str) -> Result<ParameterValue> {
        use ParameterValue::{Bool, I8, I16, I32, I64, Other, Text, U8, U16, U32, U64};
        ready(operation)?;
        let asking = Asking::begin();
        let Some(bound) = asking.bind(&self.name)? else { return Err(unknown(operation, &asking, self.name())) };
        let bytes = asking.bytes(bound)?;
        let number = match bytes.map_or(0, |(length, _)| length) {
            1 => [asking.u8(bound)?.map(U8), asking.i8(bound)?.map(I8)],
            2 => [asking.u16(bound)?.map(U16), asking.i16(bound)?.map(I16)],
            4 => [asking.u32(bound)?.map(U32), asking.i32(bound)?.map(I32)],
            8 => [asking.u64(bound)?.map(U64), asking.i64(bound)?.map(I64)],
            _ => [None, None],
        };
        if let Some(number) = number.into_iter().flatten().next() {
            return Ok(number);
        }
        if let Some(text) = asking.text(bound)? {
            return Ok(Text(text));
        }
        let written = asking.written(&self.name)?.unwrap_or_default();
        Ok(match (written.as_str(), bytes) {
            ("TRUE", Some((1, 1))) => Bool(true),
            ("FALSE", Some((1, 0))) => Bool(false),
            _ => Other(written),
        })
    }
}

impl fmt::Debug for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Parameter").field(&self.name()).finish()
    }
}

/// Whether NCCL can be asked.
fn ready(operation: &'static str) -> Result<()> {
    outside_of_host_functions(operation)?;
    version::needs(operation, FIRST)
}

/// The error for a name of which NCCL knows no parameter.
fn unknown(operation: &'static str, asking: &Asking, name: &str) -> Error {
    let told = || -> Result<String> {
        let mut all: Vec<_> = asking.keys()?.iter().map(|name| name.to_string_lossy().into_owned()).collect();
        all.sort();
        Ok(format!("a parameter of which NCCL {} tells: {}", version::running_nccl()?, all.join(", ")))
    };
    match told() {
        Ok(expected) => Error::argument(operation, "name", expected, format_args!("{name:?}")),
        Err(error) => error,
    }
}
