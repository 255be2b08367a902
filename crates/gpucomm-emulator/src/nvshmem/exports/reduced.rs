//! Reductions by their names, of types that have several, and those that the host waits for.

use std::ffi::{c_int, c_void};

use super::super::basics::entry::Class;
use super::super::basics::kind::Kind;
use super::super::calls::collectives::{self, Collective};
use super::super::calls::reduce::{Operator, Reduction, Type};
use super::collectives::reduction;
use super::status;
use crate::sys::nvshmem_team_t;

/// The address of a function.
macro_rules! address {
    ($function:expr) => {
        Some(($function as *const ()).cast_mut().cast::<c_void>())
    };
}

/// `sum_reduce`, of a type: the function on a stream that is there anyway, or the one that waits.
pub(super) fn reduced(what: &str, same: &str, on_stream: bool) -> Option<*mut c_void> {
    let (op, what) = what.split_once('_')?;
    if on_stream {
        return reduction(&format!("nvshmemx_{same}_{op}_{what}_on_stream"));
    }
    macro_rules! of_type {
        ($($name:literal $number:literal,)*) => {
            match same {
                $($name => of_op!($number),)*
                _ => None,
            }
        };
    }
    macro_rules! of_op {
        ($of:literal) => {
            match (op, what) {
                ("sum", "reduce") => address!(reduce::<$of, 0, false>),
                ("prod", "reduce") => address!(reduce::<$of, 1, false>),
                ("min", "reduce") => address!(reduce::<$of, 2, false>),
                ("max", "reduce") => address!(reduce::<$of, 3, false>),
                ("and", "reduce") => address!(reduce::<$of, 4, false>),
                ("or", "reduce") => address!(reduce::<$of, 5, false>),
                ("xor", "reduce") => address!(reduce::<$of, 6, false>),
                ("sum", "reducescatter") => address!(reduce::<$of, 0, true>),
                ("prod", "reducescatter") => address!(reduce::<$of, 1, true>),
                ("min", "reducescatter") => address!(reduce::<$of, 2, true>),
                ("max", "reducescatter") => address!(reduce::<$of, 3, true>),
                ("and", "reducescatter") => address!(reduce::<$of, 4, true>),
                ("or", "reducescatter") => address!(reduce::<$of, 5, true>),
                ("xor", "reducescatter") => address!(reduce::<$of, 6, true>),
                _ => None,
            }
        };
    }
    if matches!(op, "and" | "or" | "xor") && !same.contains("int") {
        return None;
    }
    of_type! {
        "int8" 0, "int16" 1, "int32" 2, "int64" 3, "uint8" 4, "uint16" 5, "uint32" 6, "uint64" 7, "half" 8, "bfloat16" 9,
        "float" 10, "double" 11,
    }
}

/// A reduction that the host waits for: its type, its operation, and whether what comes is shared out.
unsafe extern "C" fn reduce<const OF: usize, const OP: usize, const SCATTERS: bool>(
    team: nvshmem_team_t,
    dest: *mut c_void,
    source: *const c_void,
    nreduce: usize,
) -> c_int {
    on_host(team, (dest, source), nreduce, (OF, OP), SCATTERS)
}

fn on_host(
    team: nvshmem_team_t,
    (dest, source): (*mut c_void, *const c_void),
    count: usize,
    (of, op): (usize, usize),
    scatters: bool,
) -> c_int {
    use Operator::{And, Max, Min, Or, Prod, Sum, Xor};
    use Type::{Bfloat16, Double, Float, Half, I8, I16, I32, I64, U8, U16, U32, U64};
    let (element, of) = [
        (1, I8),
        (2, I16),
        (4, I32),
        (8, I64),
        (1, U8),
        (2, U16),
        (4, U32),
        (8, U64),
        (2, Half),
        (2, Bfloat16),
        (4, Float),
        (8, Double),
    ][of];
    let reduction = Some(Reduction { operator: [Sum, Prod, Min, Max, And, Or, Xor][op], of });
    let (kind, name) = match scatters {
        true => (Kind::ReduceScatter, "nvshmem_TYPE_OP_reducescatter"),
        false => (Kind::Reduce, "nvshmem_TYPE_OP_reduce"),
    };
    status(name, Class::Waits, || {
        collectives::now(team, Collective { kind, dest, source, count, element, root: 0, reduction })
    })
}
