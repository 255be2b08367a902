//! What `gpucomm diagnose` makes of dumps that are written here by hand.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{fs, thread};

use crate::harness;
use crate::place::{Place, all_reduce, entry};

/// The exit status says whether a culprit was found, and the first line who it is.
#[test]
fn the_first_line_names_the_culprit() {
    let place = Place::new("status");
    place.write(0, 1, "null", "done");
    place.write(1, 1, "null", "done");
    assert_eq!(place.code(), Some(3), "{}", place.told());
    place.write(0, 1, "\"rank 0 waits for rank 1 to come to reduce of 5 f32\"", "done");
    let output = harness::run(&["diagnose", place.0.to_str().unwrap()]);
    assert_eq!(output.code, Some(0), "{}", output.err);
    let lines: Vec<_> = output.out.lines().collect();
    let said = "rank 0 waits in a comparison: rank 0 waits for rank 1 to come to reduce of 5 f32;";
    assert_eq!(lines[0], format!("communicator 000000, 2 ranks: {said}"));
    assert!(lines[1].starts_with("  rank 1 has issued alloc of 64 bytes last"), "{lines:?}");
}

/// Dumps of versions without names are read, too: those of all other tests here have none.
#[test]
fn the_names_of_the_communicator_are_told() {
    let place = Place::new("names");
    let told = |names: [&str; 2], part: &str| {
        for (rank, name) in names.into_iter().enumerate() {
            place.write(rank, 1, "null", if rank == 0 { "done" } else { "inside" });
            place.change("000000", rank, "\"part\": null", &format!("{name}\"part\": {part}"));
        }
        let told = place.told();
        told.split_once(", 2 ranks: all have come to collective 7").expect("the names come first").0.to_owned()
    };
    let tp = "\"name\": \"tp\", ";
    assert_eq!(told(["", ""], "null"), "communicator 000000");
    assert_eq!(told([tp, tp], "null"), "communicator \"tp\" (000000)");
    assert_eq!(told([tp, ""], "null"), "communicator \"tp\" (000000)");
    assert_eq!(told([tp, "\"name\": null, "], "null"), "communicator \"tp\" (000000)");
    assert_eq!(told([tp, "\"name\": \"größe\", "], "null"), "communicator \"größe\" or \"tp\" (000000)");
    assert_eq!(told([tp, tp], "\"of color 3\""), "communicator \"tp\" (000000, the part of color 3)");
    assert_eq!(told(["\"name\": 7, ", ""], "\"of color 3\""), "communicator 000000 (the part of color 3)");
    // What no rank has written does nothing to the terminal.
    assert_eq!(told(["\"name\": \"\\u001b[2J\", ", tp], "null"), "communicator \"\\u{1b}[2J\" or \"tp\" (000000)");
}

#[test]
fn who_is_inside_a_point_is_named() {
    let place = Place::new("inside");
    place.write(0, 1, "null", "done");
    place.write(1, 1, "null", "inside");
    let expected = "communicator 000000, 2 ranks: all have come to collective 7, alloc of 64 bytes; rank 1 is inside NCCL with it still, and \
                    rank 0 is not.";
    assert_eq!(place.told(), expected);
}

#[test]
fn who_waits_in_a_comparison_says_for_what() {
    let place = Place::new("compares");
    place.write(0, 1, "\"rank 0 waits for rank 1 to come to reduce of 5 f32\"", "done");
    place.write(1, 1, "null", "done");
    let expected = "communicator 000000, 2 ranks: rank 0 waits in a comparison: rank 0 waits for rank 1 to come to reduce of 5 f32; rank 1 has \
                    issued alloc of 64 bytes last, 0 ms before, and is in no call of this communicator now.";
    assert_eq!(place.told(), expected);
}

/// Who waits before its first operation does so at the time of its dump.
#[test]
fn who_has_issued_nothing_waits_now() {
    let place = Place::new("first");
    place.write_of("000000", (0, 2), 3_000_000_005, "\"rank 0 waits for rank 1\"", "");
    place.write(1, 1, "null", "done");
    let expected = "rank 0 waits in a comparison: rank 0 waits for rank 1; rank 1 has issued alloc of 64 bytes last, 3000 ms before, and is in \
                    no call of this communicator now.";
    assert!(place.told().ends_with(expected), "{}", place.told());
}

#[test]
fn a_wait_that_has_failed_long_ago_is_none() {
    let place = Place::new("past");
    let ended = |end: u64| format!("\"rank 0 waits for rank 1\", \"comparison_end_ns\": {end}");
    place.write(0, 9_000_000_000, &ended(2_000_000_000), "done");
    place.write(1, 9_000_000_000, "null", "done");
    assert!(place.told().contains("all have come to the same 7 collectives"), "{}", place.told());
    // That is what the dump was written for.
    place.write(0, 9_000_000_000, &ended(8_990_000_000), "done");
    assert!(place.told().contains("rank 0 waits in a comparison"), "{}", place.told());
}

/// Of checked communicators, whose ranks wait before they issue anything: nobody is behind.
#[test]
fn opposite_orders_of_checked_communicators_are_found() {
    let place = Place::new("crossing");
    let waits = |one, other| format!("\"rank {one} waits for rank {other}\"");
    place.write_of("aaaaaa", (0, 2), 1, &waits(0, 1), "");
    place.write_of("aaaaaa", (1, 2), 1, "null", "");
    place.write_of("bbbbbb", (0, 2), 1, "null", "");
    place.write_of("bbbbbb", (1, 2), 1, &waits(1, 0), "");
    let expected = "two communicators are used in opposite orders: rank 0 of communicator aaaaaa waits in a comparison (rank 0 waits for rank 1) \
                    there, before communicator bbbbbb; rank 1 of communicator bbbbbb waits in a comparison (rank 1 waits for rank 0) there, before \
                    communicator aaaaaa. All ranks have to issue the operations of both in one order.";
    assert_eq!(place.told(), expected);
    // Who waits in neither is waited for by both.
    place.write_of("aaaaaa", (0, 3), 1, &waits(0, 2), "");
    place.write_of("aaaaaa", (2, 3), 1, "null", "");
    place.write_of("bbbbbb", (2, 3), 1, "null", "");
    let told = place.told();
    assert!(!told.contains("opposite orders") && told.contains("rank 0 waits in a comparison"), "{told}");
}

/// Many messages with others drive collectives, and messages with one, out of the entries.
#[test]
fn what_is_no_longer_among_the_entries_was_done() {
    let place = Place::new("forgotten");
    let waits = [entry("all_reduce", 9, None, "issued", 1), entry("send", 4, Some(1), "issued", 2)].join(", ");
    let sent = r#"{"peer": 1, "sent": 4, "received": 0}"#;
    place.write_counted("000000", (0, 2), (9, "null"), (9, sent), &waits);
    let received = r#"{"peer": 0, "sent": 0, "received": 4}"#;
    place.write_counted("000000", (1, 2), (9, "null"), (9, received), "");
    let told = place.told();
    assert!(told.contains("all have come to the same 9 collectives"), "{told}");
    // One less of either is missed.
    place.write_counted("000000", (1, 2), (9, "null"), (8, received), "");
    assert!(place.told().contains("rank 1 has not come to collective 9"), "{}", place.told());
    let received = r#"{"peer": 0, "sent": 0, "received": 3}"#;
    place.write_counted("000000", (1, 2), (9, "null"), (9, received), "");
    assert!(place.told().contains("rank 1 has not made the other end"), "{}", place.told());
}

/// Rank 0 waits for rank 1, which waits for rank 2, which waits for nobody: in messages, and in a collective of a part.
#[test]
fn who_waits_itself_is_not_to_blame() {
    let place = Place::new("held");
    let none = (1, "null");
    let ring = |waits: String| [entry("all_reduce", 7, None, "done", 1), waits].join(", ");
    place.write_counted("000000", (0, 3), none, (7, ""), &ring(entry("send", 1, Some(1), "inside", 2)));
    place.write_counted("000000", (1, 3), none, (7, ""), &ring(entry("recv", 1, Some(2), "inside", 2)));
    place.write_counted("000000", (2, 3), none, (7, ""), &entry("all_reduce", 7, None, "done", 1));
    assert!(place.told().contains("rank 2 has not made the other end; rank 2 has issued"), "{}", place.told());
    // All wait for each other.
    place.write_counted("000000", (2, 3), none, (7, ""), &ring(entry("recv", 1, Some(0), "inside", 2)));
    assert!(place.told().contains("ranks 1, 2 and 0 wait for each other: rank 1 waits for rank 2"), "{}", place.told());
    // Ranks 1 and 2 are ranks of a part, where rank 1 waits for rank 2; the places of both are those of their numbers.
    let waits = |sequence| entry("all_reduce", sequence, None, "issued", 90_000_000);
    place.write_counted("000000", (0, 3), none, (8, ""), &waits(8));
    place.write_counted("000000", (1, 3), none, (7, ""), &entry("all_reduce", 7, None, "done", 1));
    place.write_counted("000000", (2, 3), none, (7, ""), &entry("all_reduce", 7, None, "done", 1));
    place.write_counted("aaaaaa", (1, 3), none, (1, ""), &waits(1));
    place.write_counted("aaaaaa", (0, 3), none, (1, ""), &waits(1));
    place.write_counted("aaaaaa", (2, 3), none, (0, ""), "");
    let told = place.told();
    assert!(told.contains("3 ranks: rank 2 has not come to collective 8"), "{told}");
    assert!(told.contains("rank 1 has not come to collective 8, all_reduce of 3 i32, but is held up"), "{told}");
    assert!(told.contains("rank 1 is rank 1 of communicator aaaaaa and waits for rank 2 there"), "{told}");
}

/// Rank 1 is inside NCCL with rank 2, which has made the other end, and is there with rank 3, which has not come.
#[test]
fn who_is_inside_with_one_that_is_held_up_is_not_to_blame() {
    let place = Place::new("inside-held");
    let none = (1, "null");
    let done = entry("all_reduce", 7, None, "done", 1);
    place.write_counted("000000", (0, 4), none, (8, ""), &entry("all_reduce", 8, None, "issued", 2));
    let first = entry("send", 1, Some(2), "inside", 2);
    place.write_counted("000000", (1, 4), none, (7, ""), &[done.clone(), first].join(", "));
    let both = [done.clone(), entry("recv", 1, Some(1), "inside", 2), entry("send", 1, Some(3), "inside", 2)];
    place.write_counted("000000", (2, 4), none, (7, ""), &both.join(", "));
    place.write_counted("000000", (3, 4), none, (7, ""), &done);
    let told = place.told();
    assert!(
        told.contains("rank 2 has called send of 3 i32 to rank 3, and rank 3 has not made the other end"),
        "{told}"
    );
    // It has died.
    fs::remove_file(place.0.join("gpucomm-000000-3.json")).unwrap();
    let told = place.told();
    assert!(told.contains("4 ranks: rank 3 has left no dump"), "{told}");
    assert!(
        told.contains("ranks 1 and 2 have not come to collective 8, all_reduce of 3 i32, but are held up"),
        "{told}"
    );
    // Nobody waits in a collective.
    place.write_counted("000000", (0, 4), none, (7, ""), &entry("send", 1, Some(2), "inside", 2));
    let told = place.told();
    assert!(told.contains("rank 2 has not made the other end; but is held up"), "{told}");
    assert!(told.contains("; rank 3 has left no dump"), "{told}");
}

/// Rank 1 has sent to rank 2, and nobody has looked whether that is done; it has not sent to rank 0, nor received from rank 2.
#[test]
fn what_both_ends_have_come_to_holds_nobody_up() {
    let place = Place::new("met");
    let none = (1, "null");
    place.write_counted("000000", (0, 3), none, (0, ""), &entry("recv", 1, Some(1), "issued", 2));
    place.write_counted("000000", (1, 3), none, (0, ""), &entry("send", 1, Some(2), "issued", 1));
    let both = ["recv", "send"].map(|kind| entry(kind, 1, Some(1), "issued", 1));
    let waits = [both.join(", "), entry("recv", 1, Some(0), "issued", 2)].join(", ");
    place.write_counted("000000", (2, 3), none, (0, ""), &waits);
    let told = place.told();
    assert!(
        told.contains("and rank 1 has not made the other end; rank 1 has issued send of 3 i32 to rank 2 last"),
        "{told}"
    );
    assert!(!told.contains("itself"), "{told}");
}

/// A dump of long before says nothing of what the rank did since.
#[test]
fn an_old_dump_blames_nobody() {
    let place = Place::new("old");
    let waits = entry("all_reduce", 8, None, "issued", 9_000_000_000);
    place.write_counted("000000", (0, 3), (9_500_000_000, "null"), (8, ""), &waits);
    let done = entry("all_reduce", 7, None, "done", 1);
    place.write_counted("000000", (1, 3), (6_000_000_000, "null"), (7, ""), &done);
    place.write_counted("000000", (2, 3), (9_500_000_000, "null"), (7, ""), &done);
    let told = place.told();
    assert!(told.contains("3 ranks: rank 2 has not come to collective 8"), "{told}");
    assert!(
        told.contains("of rank 1 nothing is known since 3000 ms before that, when its dump was written (asked for)"),
        "{told}"
    );
}

/// What an earlier run has left in the same directory comes last, and is said to be old.
#[test]
fn an_earlier_run_is_told_as_such() {
    let place = Place::new("earlier");
    let late = entry("all_reduce", 8, None, "issued", 1);
    for (key, time) in [("aaaaaa", 1), ("bbbbbb", 200_000_000_000)] {
        place.write_counted(key, (0, 2), (time, "null"), (8, ""), &late);
        place.write_counted(key, (1, 2), (time, "null"), (7, ""), "");
    }
    let told = place.told();
    let lines: Vec<_> = told.lines().collect();
    assert!(lines[0].starts_with("communicator bbbbbb") && !lines[0].contains("earlier run"), "{told}");
    assert!(lines[1].starts_with("communicator aaaaaa") && lines[1].contains("written 199 s or more before"), "{told}");
}

/// One that was cut off is told of, and says nothing of the others.
#[test]
fn a_dump_that_cannot_be_read_does_not_hide_the_others() {
    let place = Place::new("cut");
    place.write_counted("000000", (0, 2), (1, "null"), (8, ""), &entry("all_reduce", 8, None, "issued", 1));
    let cut = place.0.join("gpucomm-000000-1.json");
    fs::write(&cut, "{\"schema\": \"gpucomm-du").unwrap();
    let output = harness::run(&["diagnose", place.0.to_str().unwrap()]);
    assert!(output.code == Some(0) && output.out.contains("rank 1 has left no dump"), "{}", output.out);
    assert!(output.err.contains("gpucomm-000000-1.json: not valid JSON"), "{}", output.err);
    // That was asked for by its name.
    assert_eq!(harness::run(&["diagnose", cut.to_str().unwrap()]).code, Some(1));
}

/// Opening a pipe would wait for a writer.
#[test]
fn pipes_among_the_files_are_refused() {
    let place = Place::new("pipes");
    place.write_counted("000000", (0, 2), (1, "null"), (8, ""), &entry("all_reduce", 8, None, "issued", 1));
    for name in ["gpucomm-000000-1.json", "ras-here-1.json"] {
        let pipe = place.0.join(name);
        let path = CString::new(pipe.as_os_str().as_bytes()).unwrap();
        // SAFETY: the path is a C string.
        assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0, "{name}");
        let output = harness::run(&["diagnose", place.0.to_str().unwrap()]);
        assert!(output.code == Some(0) && output.out.contains("rank 1 has left no dump"), "{}", output.out);
        assert!(output.err.contains(&format!("{name}: not a regular file")), "{}", output.err);
        assert_eq!(harness::run(&["diagnose", pipe.to_str().unwrap()]).code, Some(1));
    }
}

#[test]
fn dumps_that_are_on_their_way_are_waited_for() {
    let place = Place::new("later");
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
    place.write(0, now(), "null", "done");
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(500));
            place.write(1, now(), "null", "done");
        });
        assert!(place.told().contains("all have come to the same 7 collectives"), "{}", place.told());
    });
    // Not for those of ranks that have died long ago.
    fs::remove_file(place.0.join("gpucomm-000000-1.json")).unwrap();
    place.write(0, now() - 60_000_000_000, "null", "inside");
    let start = Instant::now();
    let told = place.told();
    assert!(told.contains("rank 1 has left no dump"), "{told}");
    assert!(start.elapsed() < Duration::from_millis(1500), "{:?}", start.elapsed());
}

/// Where dumps cannot be written, that is said once.
#[test]
fn a_directory_that_cannot_be_written_is_told() {
    let place = Place::new("refused");
    let file = place.0.join("file");
    fs::write(&file, "").unwrap();
    let mut command =
        harness::command(&["perf", "all_reduce", "-b", "64K", "-e", "64K", "-n", "50", "-T", "1", "-t", "2"]);
    command.env("GPUCOMM_DUMP", &file).env("GPUCOMM_EMULATOR_FAULTS", "hang=rank1@op5");
    let pipe = std::process::Stdio::piped;
    let output = harness::finish(command.stdout(pipe()).stderr(pipe()).spawn().unwrap());
    assert_eq!(output.err.matches("dumps of the flight recorder are lost").count(), 1, "{}", output.err);
}

/// The cause of a rank that was dropped, and what else stands beside it.
const DROPPED: &str = "\"drop: the communicator was aborted: rank 0 was dropped with work in flight\", \
                       \"cause_reason\": \"rank 0 was dropped with work in flight\", \"aborted_by\": \"drop\"";

/// Three ranks: the last one has issued one collective less, and has ended first, for this reason; its victims have ended by a drop.
fn one_behind(name: &str, (state, cause, kind): (&str, &str, &str)) -> String {
    let place = Place::new(name);
    let both = [all_reduce(1, 5), all_reduce(2, 6)].join(", ");
    for rank in 0..2 {
        place.write_ended((rank, 3), 9_000_000_000, ("aborting", DROPPED, "\"Aborted\""), &both);
    }
    place.write_ended((2, 3), 1_000_000_000, (state, cause, kind), &all_reduce(1, 5));
    place.told()
}

#[test]
fn why_a_communicator_has_ended_comes_before_who_is_behind() {
    let behind = "rank 2 has not come to collective 2, all_reduce of 64 f32, sum; rank 2 has issued all_reduce of 64 f32, sum last, 0 ms before";
    let waits = "; ranks 0 and 1 have come to collective 2, all_reduce of 64 f32, sum.";
    let cause = "\"abort: the communicator was aborted: rank 2 panicked: it is broken\", \
                 \"cause_reason\": \"rank 2 panicked: it is broken\", \"aborted_by\": \"call\"";
    let expected = format!(
        "communicator 000000, 3 ranks: it has ended: rank 2 panicked: it is broken; {behind}, and is in no call of this communicator now{waits}"
    );
    assert_eq!(one_behind("panicked", ("aborting", cause, "\"Aborted\"")), expected);
    // That it was late says the rest; that its victims were dropped explains nothing.
    let late = "\"all_reduce: not done within 5s: rank 2 waits\"";
    let told = one_behind("timeout", ("aborting", late, "\"Timeout\""));
    assert!(told.contains("3 ranks: rank 2 has not come") && !told.contains("ended"), "{told}");
    let told = one_behind("closes", ("closing", "null", "null"));
    assert!(told.contains("3 ranks: rank 2 has not come") && !told.contains("ended"), "{told}");
    assert!(told.contains("before, and closes this communicator now; ranks 0"), "{told}");
    // What NCCL says comes behind.
    let nccl = "\"ncclCommGetAsyncError: NCCL error 6 (remote error)\"";
    let told = one_behind("remote", ("aborting", nccl, "\"Nccl\""));
    assert!(told.ends_with("sum. It has ended: ncclCommGetAsyncError: NCCL error 6 (remote error)."), "{told}");
}

/// All have come in the end, one of them after the others had given up.
#[test]
fn who_was_late_is_named() {
    let place = Place::new("late");
    let second = 1_000_000_000;
    for (rank, delay) in [(0, 0), (1, 20), (2, 0)] {
        // A moment before that, and another one later, are nothing.
        let entries =
            [all_reduce(1, 3 * second), all_reduce(2, (5 + delay) * second), all_reduce(3, (5 + delay) * second)];
        let time = u128::from((15 + delay) * second + rank);
        let ended = ("aborting", DROPPED, "\"Aborted\"");
        place.write_ended((usize::try_from(rank).unwrap(), 3), time, ended, &entries.join(", "));
    }
    let expected = "communicator 000000, 3 ranks: rank 1 has come to collective 2, all_reduce of 64 f32, sum, 20 s after ranks 0 and 2. It has \
                    ended: rank 0 was dropped with work in flight.";
    assert_eq!(place.told(), expected);
}

#[test]
fn how_far_ranks_that_disagree_have_agreed_is_told() {
    let place = Place::new("agreed");
    let cause = "\"all_reduce: rank 1 disagrees with rank 0: expected this, got that\"";
    for rank in 0..2 {
        let ended = ("aborting", cause, "\"Disagreement\"");
        place.write_ended((rank, 2), 1, ended, &all_reduce(4, 5));
    }
    assert!(place.told().ends_with("got that; up to collective 4 they agree."), "{}", place.told());
}
