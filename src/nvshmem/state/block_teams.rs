//! The teams that the library makes beside a team for which switches work, one for each block of its collectives: how many, and how many teams there may be.

use super::environment::number;
use crate::version::{Version, running_nvshmem};

/// As many blocks as a team is made for, if the environment does not say otherwise.
const BLOCKS: usize = 16;

/// Teams that there may be, if the environment does not say otherwise: from 3.5 on, and the least where switches work.
const MOST: usize = 128;
const LEAST: usize = 64;

/// The first version that makes all of a team's teams with it, and the first that is known to end them with it.
const AT_ONCE: Version = Version::new(3, 5, 0);
const GIVEN_BACK: Version = Version::new(3, 8, 0);

/// Whether the running library makes the teams for blocks with each team, and not with the first large collective.
pub(crate) fn at_once() -> bool {
    running_nvshmem().is_ok_and(|version| version >= AT_ONCE)
}

/// Whether it gives them back.
pub(super) fn given_back() -> bool {
    running_nvshmem().is_ok_and(|version| version >= GIVEN_BACK)
}

/// How many teams the library makes of one for which switches work.
pub(super) fn copies() -> usize {
    blocks_set().unwrap_or(BLOCKS)
}

/// How many there may be in all.
pub(super) fn most() -> usize {
    teams_set().unwrap_or(MOST)
}

/// The blocks for which the environment has a team made.
pub(crate) fn blocks_set() -> Option<usize> {
    at_least("NVSHMEM_MAX_CTAS", 1)
}

/// How many teams there may be where switches work, if the environment says so.
pub(crate) fn teams_set() -> Option<usize> {
    at_least("NVSHMEM_MAX_TEAMS", LEAST)
}

/// The number that a variable is set to, or `least` where that is less.
fn at_least(name: &str, least: usize) -> Option<usize> {
    number(name).map(|number| usize::try_from(number).map_or(least, |number| number.max(least)))
}
