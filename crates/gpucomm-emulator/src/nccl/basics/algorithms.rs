//! Which algorithms a call may ask for by name.

use super::kind::Kind;

const ALL_REDUCE: &[&str] = &[
    "tree_ll",
    "tree_ll128",
    "tree_simple",
    "ring_ll",
    "ring_ll128",
    "ring_simple",
    "collnet_direct_simple",
    "collnet_chain_simple",
    "nvls_simple",
    "nvlstree_simple",
    "symk_agxll_r",
    "symk_agxllmc_r",
    "symk_rsxtmald_agxtmast",
    "symk_rsxld_agxst",
    "symk_rsxldmc_agxstmc",
];
const ALL_GATHER: &[&str] = &[
    "ring_ll",
    "ring_ll128",
    "ring_simple",
    "collnet_direct_simple",
    "nvls_simple",
    "pat_simple",
    "symk_ll",
    "symk_llmc",
    "symk_tmast",
    "symk_st",
    "symk_tmastmc",
    "symk_stmc",
    "symk_railring_lsastmc",
];
const REDUCE_SCATTER: &[&str] = &[
    "ring_ll",
    "ring_ll128",
    "ring_simple",
    "collnet_direct_simple",
    "nvls_simple",
    "pat_simple",
    "symk_ll",
    "symk_tmald",
    "symk_ld",
    "symk_ldmc",
    "symk_raila2a_lsald",
    "symk_raila2a_lsaldmc",
];
const RING: &[&str] = &["ring_ll", "ring_ll128", "ring_simple"];

/// The beginnings of those that this machine has, as one without switches, networks and windows.
const HERE: [&str; 2] = ["tree_", "ring_"];

/// The names for a kind of operation; what is made of messages has none.
fn names(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::AllReduce => ALL_REDUCE,
        Kind::AllGather => ALL_GATHER,
        Kind::ReduceScatter => REDUCE_SCATTER,
        Kind::Broadcast | Kind::Reduce => RING,
        _ => &[],
    }
}

/// Whether `selection` (`,` or, `+` and, `^` not; beginnings of names) leaves an algorithm for an operation. One whose words nobody
/// knows leaves none.
pub(super) fn has_any(kind: Kind, selection: &str) -> bool {
    let word = |word: &str| word.trim().trim_start_matches('^').trim().to_owned();
    let known = |word: &str| {
        !word.is_empty()
            && [ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER].into_iter().flatten().any(|name| name.starts_with(word))
    };
    if !selection.split([',', '+']).all(|text| known(&word(text))) {
        return false;
    }
    let holds = |name: &str, text: &str| name.starts_with(&*word(text)) != text.trim().starts_with('^');
    let selected = |name: &&&str| selection.split(',').any(|all| all.split('+').all(|text| holds(name, text)));
    names(kind).iter().filter(|name| HERE.iter().any(|here| name.starts_with(here))).any(|name| selected(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selections() {
        for (kind, selection, any) in [
            (Kind::AllReduce, "tree", true),
            (Kind::AllReduce, "tree,ring", true),
            (Kind::AllReduce, "ring + ^ring_ll128", true),
            (Kind::AllReduce, "ring+^ring", false),
            (Kind::AllReduce, "^symk", true),
            (Kind::AllReduce, "nvls", false),
            (Kind::AllReduce, "rung", false),
            (Kind::AllReduce, "ring,", false),
            (Kind::Broadcast, "tree", false),
            (Kind::Broadcast, "ring_simple", true),
            (Kind::AlltoAll, "ring", false),
        ] {
            assert_eq!(has_any(kind, selection), any, "{kind:?} {selection}");
        }
    }
}
