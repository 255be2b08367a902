//! How errors name what belongs to another communicator.

use super::inner::{Inner, LOCAL_RANKS};

/// What an operation of a rank expects, what it got instead, and how the error names the
/// communicator of that rank in its advice.
pub(crate) struct Foreign {
    pub(crate) expected: String,
    pub(crate) got: String,
    pub(crate) own: String,
}

/// Describes `found`, which belongs to the rank with the id `owner`, in an operation of `inner`
/// that expects `thing` of its own communicator.
#[cold]
pub(crate) fn foreign(inner: &Inner, owner: u64, thing: &str, found: &str) -> Foreign {
    let owner = LOCAL_RANKS.ranks().into_iter().find(|other| other.id == owner);
    let name = &inner.name;
    let expected = format!("{thing} of communicator {name}");
    let own = name.to_string();
    match owner {
        None => Foreign { expected, got: format!("{found} of a communicator that has ended"), own },
        Some(owner) if owner.local_ranks.lineage == inner.local_ranks.lineage => Foreign {
            expected: format!("{thing} of rank {} of communicator {name}", inner.rank),
            got: format!("{found} of its rank {}", owner.rank),
            own: format!("rank {}", inner.rank),
        },
        Some(owner) if owner.name == inner.name => Foreign {
            expected: format!("{thing} of this communicator {name}"),
            got: format!("{found} of another communicator {name} (InitOptions::with_name gives them different names)"),
            own: "this one".to_owned(),
        },
        Some(owner) => Foreign { expected, got: format!("{found} of communicator {}", owner.name), own },
    }
}
