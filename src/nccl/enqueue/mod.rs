//! From calls to NCCL: agreed on with the other ranks, put in order, made and recorded.

pub(crate) mod agreement;
pub(crate) mod connect;
pub(crate) mod itself;
pub(crate) mod launch;
pub(crate) mod parts;
pub(crate) mod point;
pub(crate) mod reads;
pub(crate) mod submit;
pub(crate) mod weight;
