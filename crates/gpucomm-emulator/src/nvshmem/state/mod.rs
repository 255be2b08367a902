//! What a PE is and has.

pub(crate) mod boot;
pub(crate) mod circle;
pub(crate) mod deed;
pub(crate) mod heap;
pub(crate) mod inject;
pub(crate) mod internal;
pub(crate) mod late;
pub(crate) mod life;
pub(crate) mod pe;
pub(crate) mod plan;
pub(crate) mod regions;
pub(crate) mod space;
pub(crate) mod team;
