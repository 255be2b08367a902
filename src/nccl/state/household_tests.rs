use super::*;

#[test]
fn who_starts_late_is_told() {
    let households = Households::new();
    let id = UniqueId::from_bytes([9; UniqueId::BYTES]);
    let (first, second) = (Arc::new(1), Arc::new(2));
    let household = households.join(&id, 1, false);
    assert!(household.admit(std::slice::from_ref(&first)).is_none());
    let cause = Error::Aborted { operation: "abort", reason: "the test aborts".into() };
    assert_eq!(household.fail(&cause), [Arc::clone(&first)]);
    let again = households.join(&id, 1, false);
    let told = again.admit(&[Arc::clone(&second)]).expect("the cause");
    assert!(told.to_string().contains("the test aborts"), "{told}");
    drop(first);
    assert_eq!(household.fail(&cause), [second]);
    household.withdraw();
    assert!(!household.is_empty());
    again.withdraw();
    assert!(household.is_empty());
}

#[test]
fn children_end_with_their_parent() {
    let households = Households::new();
    let parent = households.join(&UniqueId::from_bytes([8; UniqueId::BYTES]), 1, false);
    let (early, late) = (Arc::new(1), Arc::new(2));
    let child = parent.child(Child::Part(1, 5));
    assert!(Arc::ptr_eq(&child, &parent.child(Child::Part(1, 5))));
    let grandchild = child.child(Child::Part(1, 0));
    assert!(grandchild.admit(std::slice::from_ref(&early)).is_none());
    let cause = Error::Aborted { operation: "abort", reason: "the test aborts".into() };
    assert_eq!(parent.fail(&cause), [early]);
    for one in [child, grandchild, parent.child(Child::Part(2, 0))] {
        assert!(one.admit(std::slice::from_ref(&late)).is_some());
    }
}

#[test]
fn a_parent_goes_on_without_its_children() {
    let parent = Households::new().join(&UniqueId::from_bytes([7; UniqueId::BYTES]), 1, false);
    let cause = Error::Aborted { operation: "abort", reason: "the test aborts".into() };
    assert!(parent.child(Child::Part(1, 0)).fail(&cause).is_empty());
    assert!(parent.admit(&[Arc::new(1)]).is_none());
}

#[test]
fn who_shares_ends_with_any_of_them() {
    let parent = Households::new().join(&UniqueId::from_bytes([6; UniqueId::BYTES]), 1, true);
    let (whole, part, other) = (Arc::new(1), Arc::new(2), Arc::new(3));
    let [one, two] = [0, 5].map(|color| parent.child(Child::Part(1, color)));
    let of_two = two.child(Child::Part(1, 7));
    assert!(parent.admit(std::slice::from_ref(&whole)).is_none());
    assert!(one.admit(std::slice::from_ref(&part)).is_none());
    assert!(of_two.admit(std::slice::from_ref(&other)).is_none());
    let cause = Error::Aborted { operation: "abort", reason: "the test aborts".into() };
    assert_eq!(of_two.fail(&cause), [whole, part, other]);
    for late in [parent, one, two] {
        assert!(late.admit(&[Arc::new(4)]).is_some());
    }
}

/// Two processes, the threads of which have split in different orders.
#[test]
fn one_order_for_all_ranks() {
    let order = |splits: [(u64, usize); 4]| {
        let whole = Households::<u32>::new().join(&UniqueId::from_bytes([4; UniqueId::BYTES]), 1, true);
        let mut parts = splits.map(|(split, color)| whole.child(Child::Part(split, color))).to_vec();
        parts.push(parts[0].child(Child::Part(1, 0)));
        parts.push(whole);
        parts.sort_unstable_by(|one, other| one.lineage.cmp(&other.lineage));
        parts.iter().map(|part| part.describe()).collect::<Vec<_>>()
    };
    let (one, two) = ([(1, 3), (1, 8), (2, 0), (2, 3)], [(1, 3), (2, 3), (1, 8), (2, 0)]);
    assert_eq!(order(one), order(two));
    let after = ["the part of color 3", "the part of color 0 of the part of color 3", "the part of color 8"];
    assert_eq!(order(one)[..4], [&["the whole"][..], &after].concat());
}

#[test]
fn what_is_left_goes_on_without_what_it_comes_from() {
    let households = Households::new();
    let whole = households.join(&UniqueId::from_bytes([3; UniqueId::BYTES]), 1, false);
    let rest = || households.part_from(&whole, Child::Rest([1, 4].into(), 0));
    let (one, two) = (rest(), rest());
    assert!(Arc::ptr_eq(&one, &two) && !one.is_within(&whole));
    assert_eq!(one.describe(), "the part without ranks 1, 4");
    let (first, second) = (Arc::new(1), Arc::new(2));
    assert!(whole.admit(std::slice::from_ref(&first)).is_none() && one.admit(std::slice::from_ref(&second)).is_none());
    let cause = Error::Aborted { operation: "abort", reason: "the test aborts".into() };
    assert_eq!(whole.fail(&cause), [Arc::clone(&first)]);
    assert_eq!(households.members().len(), 2);
    assert!(one.admit(&[Arc::new(3)]).is_none());
}

#[test]
fn lineage_in_words() {
    let whole = Households::<u32>::new().join(&UniqueId::from_bytes([5; UniqueId::BYTES]), 1, false);
    let part = whole.child(Child::Part(1, 3));
    let of_part = part.child(Child::Part(1, 0));
    let names = [&whole, &part, &of_part].map(|one| one.describe());
    assert_eq!(names, ["the whole", "the part of color 3", "the part of color 0 of the part of color 3"]);
    assert!(of_part.is_within(&whole) && part.is_within(&part) && !part.is_within(&of_part));
}
