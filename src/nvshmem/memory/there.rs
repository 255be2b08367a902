//! Symmetric memory at a PE, as an operation is given it.

use std::ffi::c_int;
use std::fmt::Display;

use super::block::Block;
use super::slice::SymmetricSlice;
use crate::cuda::{Access, LentUses, Region, Slice};
use crate::element::Element;
use crate::error::{Error, Result};
use crate::nvshmem::pe::Pe;
use crate::nvshmem::state::inner::Inner;

/// The remote operand of an operation, checked.
pub(crate) struct There<'m> {
    /// Its place on this PE, by which the library knows the one at the other.
    pub(crate) region: Region<'m>,
    block: &'m Block,
    pub(crate) pe: c_int,
    /// It is this PE: memory of this process.
    pub(crate) own: bool,
}

impl<'m> There<'m> {
    /// `slice` on `pe`, which is an argument named `what`.
    pub(crate) fn new<T: Element>(
        inner: &Inner,
        operation: &'static str,
        (what, slice): (&'static str, SymmetricSlice<'m, T>),
        pe: Pe,
    ) -> Result<Self> {
        let number = inner.pe_of(operation, pe)?;
        slice.check(operation, what, inner)?;
        let own = pe.0 == inner.pe;
        Ok(Self { region: slice.local().region(), block: slice.block(), pe: number, own })
    }

    /// The same of one element.
    pub(crate) fn one<T: Element>(
        inner: &Inner,
        operation: &'static str,
        (what, slice): (&'static str, SymmetricSlice<'m, T>),
        pe: Pe,
    ) -> Result<Self> {
        one_element(operation, what, slice.len())?;
        Self::new(inner, operation, (what, slice), pe)
    }

    /// Adds the memory to the uses of a bracket, with `access`. Memory of another PE is kept alive, but not
    /// ordered: the program orders the accesses of PEs to each other's memory.
    pub(crate) fn add_to<'s>(&'s self, uses: &mut LentUses<'s>, access: Access) {
        let Region { alloc, address, bytes } = self.region;
        if self.own {
            uses.add(Slice::<u8>::of(alloc, address, bytes), access);
        } else {
            uses.add_used(self.block, Access::Read);
        }
    }
}

/// Fails where an argument is not one element.
pub(crate) fn one_element(operation: &'static str, what: &'static str, len: usize) -> Result<()> {
    if len == 1 { Ok(()) } else { Err(Error::argument(operation, what, "one element", len)) }
}

/// Fails where an argument has not as many elements as it has to by a `rule`, in words.
pub(crate) fn check_len(
    operation: &'static str,
    what: &'static str,
    expected: usize,
    rule: impl Display,
    got: usize,
) -> Result<()> {
    if expected == got {
        return Ok(());
    }
    Err(Error::argument(operation, what, format_args!("{expected} elements, {rule}"), got))
}
