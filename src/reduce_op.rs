//! How a reduction combines elements: one enum for NCCL, NVSHMEM and worlds.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// How a reduction combines the elements of all ranks or PEs. All of them pass the same one.
///
/// NCCL, and with it a world, has `Sum`, `Prod`, `Min`, `Max` and `Avg`. It also has sums with a factor for each rank: pass a
/// `&nccl::PreMulSum`, or a `world::PreMul` to a world. NVSHMEM has all but `Avg`; `And`, `Or` and `Xor` are for integers.
/// An operation that the library does not have is an [`InvalidArgument`](Error::InvalidArgument) that lists those that it has.
///
/// The names are those of nccl-tests:
///
/// ```
/// use gpucomm::ReduceOp;
///
/// assert_eq!("max".parse(), Ok(ReduceOp::Max));
/// assert_eq!(ReduceOp::Min.to_string(), "min");
/// assert!("mean".parse::<ReduceOp>().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[doc(alias("ncclRedOp_t", "NcclReduceOp"))]
pub enum ReduceOp {
    /// The sum. Integers wrap around.
    #[doc(alias = "ncclSum")]
    Sum,
    /// The product. Integers wrap around.
    #[doc(alias = "ncclProd")]
    Prod,
    /// The minimum. NCCL ignores NaN, unless all elements are, and takes -0 for less than +0.
    #[doc(alias = "ncclMin")]
    Min,
    /// The maximum. NCCL ignores NaN, unless all elements are, and takes -0 for less than +0.
    #[doc(alias = "ncclMax")]
    Max,
    /// The sum divided by the number of ranks. Integers are truncated.
    #[doc(alias = "ncclAvg")]
    Avg,
    /// The bits that all elements have.
    And,
    /// The bits that any element has.
    Or,
    /// The bits that an odd number of elements has.
    Xor,
}

impl ReduceOp {
    /// Every operation.
    pub const ALL: [Self; 8] = [Self::Sum, Self::Prod, Self::Min, Self::Max, Self::Avg, Self::And, Self::Or, Self::Xor];

    /// The name in lower case: `sum`, `prod`, …
    ///
    /// ```
    /// use gpucomm::ReduceOp;
    ///
    /// let name = ReduceOp::Avg.name();
    /// assert_eq!(name, "avg");
    /// ```
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Prod => "prod",
            Self::Min => "min",
            Self::Max => "max",
            Self::Avg => "avg",
            Self::And => "and",
            Self::Or => "or",
            Self::Xor => "xor",
        }
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ReduceOp {
    type Err = Error;

    /// Parses `sum`, `prod`, `min`, `max`, `avg`, `and`, `or` or `xor`.
    ///
    /// # Errors
    /// Returns [`Error::InvalidArgument`], which lists the names, for any other text.
    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|op| op.name() == name).ok_or_else(|| {
            let expected = format!("one of {}", Self::ALL.map(Self::name).join(", "));
            Error::argument("ReduceOp::from_str", "name", expected, format_args!("{name:?}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_as_they_are_displayed() {
        for op in ReduceOp::ALL {
            assert_eq!(op.to_string().parse(), Ok(op));
        }
        for name in ["", "SUM", "sum ", "mulsum"] {
            let error = name.parse::<ReduceOp>().expect_err("no operation");
            let expected = "expected one of sum, prod, min, max, avg, and, or, xor";
            assert_eq!(error.to_string(), format!("ReduceOp::from_str: name: {expected}, got {name:?}"));
        }
    }
}
