//! Why ranks have not agreed on what one of them has come to.

use crate::error::Error;

/// Why something was not agreed on.
#[derive(Debug)]
pub(crate) enum NotAgreed {
    /// Nobody was told of it, or nobody relies on it any more, so this rank may come again.
    Nothing(Error),
    /// Others may wait for it, or have gone on with it.
    InPart(Error),
}

#[cfg_attr(not(nccl_ge_2_29_7), allow(dead_code))]
impl NotAgreed {
    /// Where nobody relies on this rank: one that is late may come again, whatever else is wrong ends it.
    pub(crate) fn late(error: Error) -> Self {
        match error {
            Error::Timeout { .. } => Self::Nothing(error),
            _ => Self::InPart(error),
        }
    }

    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Nothing(error) | Self::InPart(error) => error,
        }
    }
}

impl From<Error> for NotAgreed {
    fn from(error: Error) -> Self {
        Self::InPart(error)
    }
}
