//! Where `gpucomm diagnose` says that ranks are: in their starts, inside NCCL, gone; by dumps that are written by hand.

use crate::place::{Place, all_reduce, entry};

const SECOND: u64 = 1_000_000_000;

/// A dump without entries, of a rank of two that is in this state.
fn bare(place: &Place, rank: usize, time: u64, state: &str) {
    place.write_ended((rank, 2), time.into(), (state, "null", "null"), "");
}

/// The dump of this rank says that a thread is inside NCCL since that time.
fn goes_inside(place: &Place, rank: usize, method: &str, since: u64) {
    let with = format!("\"inside\": \"{method}\", \"inside_since_ns\": {since}, \"ras\"");
    place.change("000000", rank, "\"ras\"", &with);
}

#[test]
fn a_start_that_nobody_gets_through_is_told() {
    let place = Place::new("start");
    bare(&place, 0, 3 * SECOND, "starting");
    bare(&place, 1, 3 * SECOND, "starting");
    let expected = "communicator 000000, 2 ranks: all 2 have come to the start, and none is through with it.";
    assert_eq!(place.told(), expected);
    bare(&place, 1, 7 * SECOND, "starting");
    assert!(place.told().ends_with("through with it; rank 1 has given up 4000 ms after rank 0."), "{}", place.told());
    bare(&place, 0, 3 * SECOND, "active");
    let expected = "rank 1 is not through with the start, to which all have come; rank 0 is.";
    assert!(place.told().ends_with(expected), "{}", place.told());
}

/// It is none of the entries.
#[test]
fn who_is_inside_nccl_for_a_shrink_is_named() {
    let place = Place::new("shrink");
    let done = entry("all_reduce", 7, None, "done", 1);
    let one = |rank| place.write_counted("000000", (rank, 3), (5 * u128::from(SECOND), "null"), (7, ""), &done);
    (0..3).for_each(one);
    assert!(place.told().contains("all have come to the same 7 collectives"), "{}", place.told());
    goes_inside(&place, 0, "shrink", 3 * SECOND);
    goes_inside(&place, 2, "shrink", 4 * SECOND);
    let expected = "3 ranks: ranks 0 and 2 are inside NCCL in shrink, since 2000 ms; rank 1 is not, as need not be who is left out: rank 1 has \
                    issued all_reduce of 3 i32 last, 2999 ms before, and is in no call of this communicator now.";
    assert!(place.told().ends_with(expected), "{}", place.told());
    // Nor is it in no call where others wait for it in a collective.
    let waits = [done.clone(), entry("all_reduce", 8, None, "issued", 2 * SECOND)].join(", ");
    place.write_counted("000000", (1, 3), (5 * u128::from(SECOND), "null"), (8, ""), &waits);
    let told = place.told();
    assert!(told.contains("ranks 0 and 2 have not come to collective 8"), "{told}");
    assert!(told.contains("rank 0 has issued all_reduce of 3 i32 last, 1999 ms before, and is inside NCCL in shrink now, since 2000 ms"), "{told}");
    // One that has just gone inside comes out.
    (0..3).for_each(one);
    goes_inside(&place, 0, "properties", 5 * SECOND - 1_000_000);
    assert!(place.told().contains("all have come to the same 7 collectives"), "{}", place.told());
}

#[test]
fn where_all_are_inside_that_is_told() {
    let place = Place::new("all-inside");
    place.write(0, 1, "null", "inside");
    place.write(1, 1, "null", "inside");
    let expected = "2 ranks: all have come to collective 7, alloc of 64 bytes, and all are inside NCCL with it still.";
    assert!(place.told().ends_with(expected), "{}", place.told());
}

/// A point counts as done for who has left it.
#[test]
fn who_has_not_come_to_a_point_that_is_done_is_named() {
    let place = Place::new("point");
    place.write(0, 1, "null", "done");
    place.write_counted("000000", (1, 2), (1, "null"), (6, ""), &entry("all_reduce", 6, None, "done", 4));
    let expected = "communicator 000000, 2 ranks: rank 0 has come to collective 7, alloc of 64 bytes; rank 1 has not; rank 1 has issued \
                    all_reduce of 3 i32 last, 0 ms before, and is in no call of this communicator now.";
    assert_eq!(place.told(), expected);
}

/// As far as anybody waits.
#[test]
fn what_is_waited_for_is_quoted() {
    let place = Place::new("waits");
    for rank in 0..6 {
        place.write_counted("000000", (rank, 6), (1, "null"), (1, ""), &all_reduce(1, 5));
        place.change("000000", rank, "\"waits\": null", &format!("\"waits\": \"rank {rank} waits for the device\""));
    }
    let expected = "6 ranks: all have come to the same 1 collectives and to each other's messages; rank 0 waits for the device; rank 1 waits for the \
                    device; rank 2 waits for the device; rank 3 waits for the device; 2 more wait.";
    assert!(place.told().ends_with(expected), "{}", place.told());
}

/// One that has closed its communicator does nothing more, however long ago that was.
#[test]
fn who_has_closed_is_to_blame() {
    let place = Place::new("closed");
    let (now, done) = (60 * SECOND, entry("all_reduce", 7, None, "done", SECOND));
    place.write_counted(
        "000000",
        (0, 2),
        (now.into(), "null"),
        (8, ""),
        &entry("all_reduce", 8, None, "issued", 50 * SECOND),
    );
    place.write_counted("000000", (1, 2), ((2 * SECOND).into(), "null"), (7, ""), &done);
    assert!(place.told().contains("of rank 1 nothing is known since"), "{}", place.told());
    place.change("000000", 1, "\"active\"", "\"closed\"");
    let told = place.told();
    assert!(
        told.contains("rank 1 has not come to collective 8, all_reduce of 3 i32; rank 1 has issued all_reduce"),
        "{told}"
    );
    assert!(
        told.contains("49000 ms before, and has closed this communicator")
            || told.contains("49 s before, and has closed this communicator"),
        "{told}"
    );
    // What all have closed is well, and of no interest beside others.
    place.write_counted("000000", (0, 2), (now.into(), "null"), (7, ""), &done);
    place.change("000000", 0, "\"active\"", "\"closed\"");
    assert!(place.told().ends_with("each other's messages; it was closed."), "{}", place.told());
    place.write_of("aaaaaa", (0, 1), now.into(), "null", "");
    assert!(place.told().starts_with("communicator aaaaaa") && !place.told().contains("000000"), "{}", place.told());
}

/// Two communicators that are used in opposite orders, of ranks of these places.
fn cross(place: &Place, keys: [&str; 2], time: u64) {
    let waits = |sequence| entry("all_reduce", sequence, None, "issued", time);
    for (rank, key) in keys.iter().enumerate() {
        place.write_counted(key, (rank, 2), (time.into(), "null"), (1, ""), &waits(1));
        place.write_counted(key, (1 - rank, 2), (time.into(), "null"), (0, ""), "");
    }
}

#[test]
fn opposite_orders_do_not_hide_what_else_is_wrong() {
    let place = Place::new("beside");
    cross(&place, ["aaaaaa", "bbbbbb"], 5 * SECOND);
    let late = |time: u64| {
        place.write_counted(
            "cccccc",
            (0, 2),
            (time.into(), "null"),
            (8, ""),
            &entry("all_reduce", 8, None, "issued", time),
        );
        place.write_counted("cccccc", (1, 2), (time.into(), "null"), (7, ""), "");
        for rank in 0..2 {
            // They are elsewhere.
            place.change("cccccc", rank, "\"host\": \"here\"", "\"host\": \"there\"");
        }
    };
    late(5 * SECOND);
    let told = place.told();
    let lines: Vec<_> = told.lines().collect();
    assert_eq!(lines.len(), 2, "{told}");
    assert!(lines[0].starts_with("two communicators are used in opposite orders"), "{told}");
    assert!(lines[1].contains("rank 1 has not come to collective 8"), "{told}");
    // Those of an earlier run come last.
    late(400 * SECOND);
    let told = place.told();
    let lines: Vec<_> = told.lines().collect();
    assert!(lines[0].contains("rank 1 has not come to collective 8") && !lines[0].contains("earlier run"), "{told}");
    assert!(lines[1].starts_with("two communicators") && lines[1].ends_with("of an earlier run, perhaps."), "{told}");
}

/// Of whom nothing is known since then, nothing is said to be in another order.
#[test]
fn opposite_orders_are_not_made_of_old_dumps() {
    let place = Place::new("old-orders");
    cross(&place, ["aaaaaa", "bbbbbb"], 5 * SECOND);
    assert!(place.told().contains("opposite orders"), "{}", place.told());
    for (key, rank) in [("aaaaaa", 1), ("bbbbbb", 0)] {
        place.change(key, rank, "\"time_ns\": 5000000000,", "\"time_ns\": 5,");
    }
    assert!(!place.told().contains("opposite orders"), "{}", place.told());
}

/// Rank 1 lives on a host whose clock is half a minute ahead, and rank 2 has not come.
#[test]
fn a_clock_that_is_ahead_blames_nobody() {
    let place = Place::new("clocks");
    let ahead = 30 * SECOND;
    let done = |from: u64, last: u64| {
        let each = (1..=last).map(|number| entry("all_reduce", number, None, "done", from + number * SECOND));
        each.collect::<Vec<_>>().join(", ")
    };
    let waits = |from: u64| [done(from, 5), entry("all_reduce", 6, None, "issued", from + 6 * SECOND)].join(", ");
    place.write_counted("000000", (0, 3), ((7 * SECOND).into(), "null"), (6, ""), &waits(0));
    place.write_counted("000000", (1, 3), ((7 * SECOND + ahead).into(), "null"), (6, ""), &waits(ahead));
    place.write_counted("000000", (2, 3), ((7 * SECOND).into(), "null"), (5, ""), &done(0, 5));
    let old = "of rank 2 nothing is known since";
    // On one host all have one clock.
    assert!(!place.told().contains("The clock"), "{}", place.told());
    place.change("000000", 1, "\"host\": \"here\"", "\"host\": \"there\"");
    let told = place.told();
    let lines: Vec<_> = told.lines().collect();
    assert!(lines[0].contains("rank 2 has not come to collective 6") && !lines[0].contains(old), "{told}");
    assert!(lines[1].starts_with("The clock of host there is 30 s ahead of that of host here"), "{told}");
    // One that comes late at last is late.
    let late = [
        done(0, 4),
        entry("all_reduce", 5, None, "done", 35 * SECOND),
        entry("all_reduce", 6, None, "issued", 36 * SECOND),
    ];
    place.write_counted("000000", (1, 3), ((37 * SECOND).into(), "null"), (6, ""), &late.join(", "));
    place.change("000000", 1, "\"host\": \"here\"", "\"host\": \"there\"");
    assert!(!place.told().contains("The clock"), "{}", place.told());
}
