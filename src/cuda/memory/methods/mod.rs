//! The methods that all memory has, written once as macros. Each type of memory expands them, so that
//! users need no trait in scope, and its documentation shows examples with that type.

pub(crate) mod device;
pub(crate) mod parts;
pub(crate) mod pinned;
