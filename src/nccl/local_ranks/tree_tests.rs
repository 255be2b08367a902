use super::*;

#[test]
fn a_rank_that_starts_late_learns_the_cause() {
    let roots = Roots::new();
    let id = UniqueId::from_bytes([9; UniqueId::BYTES]);
    let (first, second) = (Arc::new(1), Arc::new(2));
    let local = roots.join(&id, 1, false);
    assert!(local.admit([(0, &first)]).is_none());
    let cause = Error::Aborted { operation: "abort", reason: "the test aborts".into() };
    assert_eq!(local.mark_failed(&cause), [Arc::clone(&first)]);
    let again = roots.join(&id, 1, false);
    let error = again.admit([(1, &second)]).expect("the cause");
    assert!(error.to_string().contains("the test aborts"), "{error}");
    drop(first);
    assert_eq!(local.mark_failed(&cause), [second]);
    local.withdraw();
    assert!(!local.are_freed());
    again.withdraw();
    assert!(local.are_freed());
}

#[test]
fn parts_end_with_their_parent() {
    let roots = Roots::new();
    let parent = roots.join(&UniqueId::from_bytes([8; UniqueId::BYTES]), 1, false);
    let (early, late) = (Arc::new(1), Arc::new(2));
    let child = parent.join_part(Child::Part(1, 5));
    assert!(Arc::ptr_eq(&child, &parent.join_part(Child::Part(1, 5))));
    let grandchild = child.join_part(Child::Part(1, 0));
    assert!(grandchild.admit([(0, &early)]).is_none());
    let cause = Error::Aborted { operation: "abort", reason: "the test aborts".into() };
    assert_eq!(parent.mark_failed(&cause), [early]);
    for one in [child, grandchild, parent.join_part(Child::Part(2, 0))] {
        assert!(one.admit([(0, &late)]).is_some());
    }
}

#[test]
fn a_parent_outlives_its_parts() {
    let parent = Roots::new().join(&UniqueId::from_bytes([7; UniqueId::BYTES]), 1, false);
    let cause = Error::Aborted { operation: "abort", reason: "the test aborts".into() };
    assert!(parent.join_part(Child::Part(1, 0)).mark_failed(&cause).is_empty());
    assert!(parent.admit([(0, &Arc::new(1))]).is_none());
}

#[test]
fn ranks_that_share_end_together() {
    let parent = Roots::new().join(&UniqueId::from_bytes([6; UniqueId::BYTES]), 1, true);
    let (whole, part, other) = (Arc::new(1), Arc::new(2), Arc::new(3));
    let [one, two] = [0, 5].map(|color| parent.join_part(Child::Part(1, color)));
    let of_two = two.join_part(Child::Part(1, 7));
    assert!(parent.admit([(0, &whole)]).is_none());
    assert!(one.admit([(0, &part)]).is_none());
    assert!(of_two.admit([(0, &other)]).is_none());
    let cause = Error::Aborted { operation: "abort", reason: "the test aborts".into() };
    assert_eq!(of_two.mark_failed(&cause), [whole, part, other]);
    for late in [parent, one, two] {
        assert!(late.admit([(0, &Arc::new(4))]).is_some());
    }
}

/// Two processes, the threads of which have split in different orders.
#[test]
fn the_order_of_lineages_is_the_same_for_all_ranks() {
    let order = |splits: [(u64, usize); 4]| {
        let whole = Roots::<u32>::new().join(&UniqueId::from_bytes([4; UniqueId::BYTES]), 1, true);
        let mut parts = splits.map(|(split, color)| whole.join_part(Child::Part(split, color))).to_vec();
        parts.push(parts[0].join_part(Child::Part(1, 0)));
        parts.push(whole);
        parts.sort_unstable_by(|one, other| one.lineage.cmp(&other.lineage));
        parts.iter().map(|part| part.part().unwrap_or_default()).collect::<Vec<_>>()
    };
    let (one, two) = ([(1, 3), (1, 8), (2, 0), (2, 3)], [(1, 3), (2, 3), (1, 8), (2, 0)]);
    assert_eq!(order(one), order(two));
    assert_eq!(order(one)[..4], ["", "of color 3", "of color 0 of the part of color 3", "of color 8"]);
}

#[test]
fn a_shrunk_communicator_outlives_the_old_one() {
    let roots = Roots::new();
    let whole = roots.join(&UniqueId::from_bytes([3; UniqueId::BYTES]), 1, false);
    let rest = || roots.join_apart(&whole, Child::Rest([1, 4].into(), 0));
    let (one, two) = (rest(), rest());
    assert!(Arc::ptr_eq(&one, &two) && !one.is_within(&whole));
    assert_eq!(one.part().as_deref(), Some("without ranks 1, 4"));
    let (first, second) = (Arc::new(1), Arc::new(2));
    assert!(whole.admit([(0, &first)]).is_none() && one.admit([(0, &second)]).is_none());
    let cause = Error::Aborted { operation: "abort", reason: "the test aborts".into() };
    assert_eq!(whole.mark_failed(&cause), [Arc::clone(&first)]);
    assert_eq!(roots.ranks().len(), 2);
    assert!(one.admit([(0, &Arc::new(3))]).is_none());
}

#[test]
fn parts_have_names() {
    let whole = Roots::<u32>::new().join(&UniqueId::from_bytes([5; UniqueId::BYTES]), 1, false);
    let part = whole.join_part(Child::Part(1, 3));
    let of_part = part.join_part(Child::Part(1, 0));
    let names = [&whole, &part, &of_part].map(|one| one.part());
    assert_eq!(
        names.each_ref().map(Option::as_deref),
        [None, Some("of color 3"), Some("of color 0 of the part of color 3")]
    );
    assert!(of_part.is_within(&whole) && part.is_within(&part) && !part.is_within(&of_part));
}

#[test]
fn a_part_is_made_once_and_forgotten() {
    let whole = Roots::<u32>::new().join(&UniqueId::from_bytes([2; UniqueId::BYTES]), 1, false);
    let first = whole.join_part(Child::Part(1, 0));
    assert!(Arc::ptr_eq(&first, &whole.join_part(Child::Part(1, 0))));
    let (later, other) = (whole.join_part(Child::Part(2, 0)), whole.join_part(Child::Part(1, 1)));
    let known = || {
        whole
            .children()
            .iter()
            .filter_map(|(child, part)| part.upgrade().and(Some(child.describe())))
            .collect::<Vec<_>>()
    };
    assert_eq!(known(), ["of color 0", "of color 1", "of color 0"]);
    drop((first, later, other));
    assert!(known().is_empty());
}

#[test]
fn ranks_stand_in_their_order() {
    let local = Roots::new().join(&UniqueId::from_bytes([1; UniqueId::BYTES]), 3, false);
    let ranks = [0, 1, 2].map(Arc::new);
    for number in [2, 0, 1] {
        assert!(local.admit([(number, &ranks[number])]).is_none());
    }
    assert_eq!(local.ranks(), ranks);
    assert_eq!(local.rank(1).as_deref(), Some(&1));
    assert!(local.rank(3).is_none());
}
