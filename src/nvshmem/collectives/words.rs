//! What the library has switches do by words of 4 bytes: where the words do not begin at multiples of that it does nothing, and says so to nobody.

use super::blocks::Blocks;
use super::team_reduce::BySwitch;
use crate::error::{Error, Result};
use crate::nvshmem::state::teams::TeamState;

/// A word, and a pair.
const WORD: usize = 4;

/// Up to so many elements each member adds all of them, if the environment does not say otherwise; more they divide.
const WHOLE: usize = 2048;

/// Fails where switches reduce elements in pairs that do not lie on words. Offsets, lengths and the environment are the same on all members, and so is this.
pub(super) fn check_pairs(
    team: &TeamState,
    operation: &'static str,
    by_switch: BySwitch,
    blocks: Blocks,
    (count, dest, source): (usize, usize, usize),
) -> Result<()> {
    if !team.multicast || by_switch != BySwitch::Pairs {
        return Ok(());
    }
    let chosen = ["NVSHMEM_REDUCE_ALGO", "NVSHMEM_REDUCE_NVLS_THRESHOLD"];
    let divided_from = if chosen.iter().any(|name| std::env::var_os(name).is_some()) { 0 } else { WHOLE };
    let blocks = blocks.of(2 * count);
    if parts(count, blocks).all(|part| is_right(part, (dest, source), team.members.len(), divided_from)) {
        return Ok(());
    }
    Err(off_words(operation, "add floats of 2 bytes in pairs", blocks, (count, dest, source)))
}

/// Whether switches scatter `count` elements for each member. Fails where they would, and get it wrong; or where the library has several blocks do it
/// itself, all of which begin at the same place. It is the same on all members.
pub(super) fn check_scattered(
    team: &TeamState,
    operation: &'static str,
    by_switch: BySwitch,
    (blocks, bytes): (Blocks, usize),
    (count, dest, source): (usize, usize, usize),
) -> Result<bool> {
    let n_pes = team.members.len();
    if !team.multicast || by_switch == BySwitch::Right {
        return Ok(team.multicast);
    }
    if by_switch == BySwitch::Wrong {
        let needs = "a team without multicast, floats, or a reduce instead: NVSHMEM has switches add integers as if they were f32, or two of them as one, and compares two of 4 bytes as one; NVSHMEM_DISABLE_NVLS in the environment does without switches";
        return Err(Error::Unsupported { operation, needs: needs.to_owned() });
    }
    let blocks = blocks.of(bytes);
    let in_pairs = |&(_, count): &(usize, usize)| count >= 2 && count.is_multiple_of(2);
    let parts: Vec<_> = parts(count, blocks).filter(|(_, count)| *count > 0).collect();
    let switched = by_switch == BySwitch::Pairs && n_pes.is_multiple_of(2) && parts.iter().all(in_pairs);
    if !switched && parts.len() > 1 {
        let needs = format!(
            "less than a MiB in all, or NVSHMEM_MAX_CTAS=1 in the environment: of {blocks} blocks each would begin with the first elements, where no switch does it"
        );
        return Err(Error::Unsupported { operation, needs });
    }
    let mut places = parts.iter().flat_map(|(from, _)| [dest + 2 * from, source + 2 * from]);
    if switched && !places.all(|place| place.is_multiple_of(WORD)) {
        return Err(off_words(operation, "add floats of 2 bytes in pairs", blocks, (count, dest, source)));
    }
    Ok(switched)
}

/// Fails where switches would spread `bytes` of each member, and do not lie on words. It is the same on all members.
pub(super) fn check_gathered(
    team: &TeamState,
    operation: &'static str,
    blocks: Blocks,
    (bytes, dest, source): (usize, usize, usize),
) -> Result<()> {
    if !team.multicast {
        return Ok(());
    }
    let n_pes = team.members.len();
    let blocks = blocks.of(bytes * n_pes);
    // What is no multiple of a word, the library spreads itself.
    let by_words = parts(bytes, blocks).filter(|(_, count)| *count > 0 && count.is_multiple_of(WORD));
    let mut places = by_words.flat_map(|(from, _)| {
        let targets = (0..n_pes).map(move |pe| dest + pe * bytes + from);
        std::iter::once(source + from).chain(targets)
    });
    if places.all(|place| place.is_multiple_of(WORD)) {
        return Ok(());
    }
    Err(off_words(operation, "spread words", blocks, (bytes, dest, source)))
}

#[cold]
fn off_words(operation: &'static str, how: &str, blocks: usize, (count, dest, source): (usize, usize, usize)) -> Error {
    let needs = format!(
        "another length or place: switches {how}, which must begin at multiples of {WORD} bytes for each of {blocks} blocks and each member; \
         here there are {count}, from byte {} and {} of such a word on in dest and source",
        dest % WORD,
        source % WORD,
    );
    Error::Unsupported { operation, needs }
}

/// Where each block begins, and how many elements it has.
fn parts(count: usize, blocks: usize) -> impl Iterator<Item = (usize, usize)> {
    let each = count / blocks;
    let last = blocks - 1;
    (0..blocks).map(move |block| (each * block, if block == last { each + count % blocks } else { each }))
}

/// Whether what a block does is right, whatever of it the library does by switches.
fn is_right((from, count): (usize, usize), (dest, source): (usize, usize), n_pes: usize, divided_from: usize) -> bool {
    // It adds an odd number itself.
    if count % 2 == 1 {
        return true;
    }
    let on_words = [dest, source].iter().all(|place| (place + 2 * from) % WORD == 0);
    let divides = count > divided_from && count % n_pes == 0;
    on_words && !(divides && count / n_pes % 2 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_all_elements() {
        assert_eq!(parts(7, 1).collect::<Vec<_>>(), [(0, 7)]);
        assert_eq!(parts(11, 4).collect::<Vec<_>>(), [(0, 2), (2, 2), (4, 2), (6, 5)]);
    }

    fn team(n_pes: usize, multicast: bool) -> TeamState {
        let members = (0..n_pes).collect();
        TeamState { multicast, ..TeamState::new(7, 1, 0, members, crate::nvshmem::state::order::Order::new()) }
    }

    #[test]
    fn what_switches_scatter() {
        let blocks = Blocks { threshold: 1 << 20, blocks: 16 };
        let check = |n_pes, by, count, dest, source| {
            let places = (count, dest, source);
            check_scattered(&team(n_pes, true), "test", by, (blocks, 2 * count * n_pes), places).ok()
        };
        assert_eq!(check(2, BySwitch::Wrong, 4, 0, 0), None);
        assert_eq!(check(2, BySwitch::Right, 5, 0, 4), Some(true));
        assert_eq!(check(2, BySwitch::Never, 1 << 17, 0, 2), Some(false));
        assert_eq!(check(2, BySwitch::Never, 1 << 18, 0, 0), None, "several blocks begin at the same place");
        // Pairs: all or none of them on words, and all of one way where there are several blocks.
        assert_eq!((check(2, BySwitch::Pairs, 6, 0, 4), check(2, BySwitch::Pairs, 6, 0, 2)), (Some(true), None));
        assert_eq!(
            (check(2, BySwitch::Pairs, 7, 0, 2), check(3, BySwitch::Pairs, 6, 2, 2)),
            (Some(false), Some(false))
        );
        assert_eq!(check(2, BySwitch::Pairs, 1 << 18, 0, 0), Some(true));
        assert_eq!(
            (check(2, BySwitch::Pairs, (1 << 18) + 16, 0, 0), check(2, BySwitch::Pairs, (1 << 18) + 1, 0, 0)),
            (None, None)
        );
        let plain = check_scattered(&team(2, false), "test", BySwitch::Wrong, (blocks, 16), (2, 2, 2));
        assert_eq!(plain.ok(), Some(false));
    }

    #[test]
    fn what_switches_gather() {
        let blocks = Blocks { threshold: 1 << 20, blocks: 16 };
        let check = |multicast, bytes, dest, source| {
            check_gathered(&team(2, multicast), "test", blocks, (bytes, dest, source)).is_ok()
        };
        assert!(check(true, 8, 4, 12) && !check(true, 8, 4, 1) && !check(true, 8, 2, 0));
        assert!(check(true, 7, 1, 3), "the library does it itself");
        assert!(check(false, 8, 1, 1));
        assert!(check(true, 1 << 20, 0, 0) && check(true, (1 << 20) + 16, 0, 0));
        // The last block has a multiple of words, and begins beside one.
        assert!(!check(true, 16 * 65_537 + 3, 0, 0));
    }

    #[test]
    fn pairs_lie_on_words() {
        assert!(is_right((0, 8), (16, 32), 2, WHOLE));
        assert!(!is_right((0, 8), (18, 32), 2, WHOLE) && !is_right((0, 8), (16, 34), 2, WHOLE));
        // What begins at an odd element, in memory that begins half way as well.
        assert!(!is_right((3, 8), (16, 32), 2, WHOLE) && is_right((3, 8), (18, 34), 2, WHOLE));
        // Without switches.
        assert!(is_right((0, 7), (18, 34), 2, WHOLE));
    }

    #[test]
    fn members_that_divide_have_pairs() {
        let places = (16, 16);
        assert!(is_right((0, 6), places, 2, WHOLE) && !is_right((0, 6), places, 2, 0));
        assert!(!is_right((0, 2 * 1025), places, 2, WHOLE) && is_right((0, 2 * 1026), places, 2, WHOLE));
        assert!(is_right((0, 4098), places, 4, WHOLE), "it is not divisible, and done without switches");
    }
}
