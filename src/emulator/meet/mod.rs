//! Where threads and processes of one machine meet.

pub(crate) mod control;
pub(crate) mod futex;
pub(crate) mod process;
pub(crate) mod stranded;
