//! What errors look like.

use super::*;

/// What a `main` that returns it ends with.
#[test]
fn debug_is_one_line() {
    let error = Error::argument("all_reduce", "recv", "at least 2 elements", "1 elements");
    let want = "all_reduce: recv: expected at least 2 elements, got 1 elements [InvalidArgument]";
    assert_eq!((format!("{error:?}"), format!("{error:#?}")), (want.to_owned(), want.to_owned()));
    let last = Some("Bootstrap:\n  connection refused\n\n".to_owned());
    let error = Error::Nccl { operation: "ncclAllReduce", code: NcclCode(2), message: "system error".into(), last };
    let want = "ncclAllReduce: NCCL error 2 (system error): Bootstrap:; connection refused [Nccl]";
    assert_eq!(format!("{error:?}"), want);
}

/// The name of a kind is that of the variant.
#[test]
fn kinds_are_named_as_variants() {
    let error = Error::Cancelled { operation: "test" };
    assert_eq!((error.kind(), error.kind().to_string()), (ErrorKind::Cancelled, "Cancelled".to_owned()));
    let error = Error::Departed { operation: "test", rank: 2, how: "has died".into() };
    assert_eq!((error.kind(), format!("{:>9}", error.kind())), (ErrorKind::Departed, " Departed".to_owned()));
}

#[test]
fn accessors_tell_who_and_where() {
    let late = crate::deadline::Deadline::after(Duration::from_secs(1)).error("wait", "a peer");
    assert_eq!((late.operation(), late.rank(), late.peer()), ("wait", None, None));
    let late = late.between((Some(1), None)).between((None, Some(2)));
    assert_eq!((late.rank(), late.peer()), (Some(1), Some(2)));
    let left = Error::Departed { operation: "vote", rank: 3, how: "has died".into() };
    assert_eq!((left.operation(), left.rank(), left.peer()), ("vote", Some(3), None));
    let left = left.between((Some(1), Some(2)));
    assert_eq!((left.rank(), left.peer()), (Some(3), None), "it is no timeout");
    let cancelled = Error::Cancelled { operation: "submit" };
    assert_eq!((cancelled.operation(), cancelled.rank(), cancelled.peer()), ("submit", None, None));
}

/// Where the sources of an error lead to, and how many errors come before it.
fn first_of(error: &Error) -> (&Error, usize) {
    let all = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
    let errors: Vec<&Error> = all.filter_map(|error| error.downcast_ref()).collect();
    (errors[errors.len() - 1], errors.len() - 1)
}

/// However often it is passed on, and noted, the sources lead to the error that came first, which has none.
#[test]
fn later_errors_lead_to_the_first() {
    let firsts = [
        Error::Aborted { operation: "abort", reason: Cause::from("enough").of_rank(3) },
        Error::Revoked { operation: "revoke", reason: Cause::from("enough").of_rank(3) },
        Error::Departed { operation: "vote", rank: 3, how: "has died".into() },
    ];
    for first in firsts {
        assert_eq!((first_of(&first), first.rank()), ((&first, 0), Some(3)));
        let later = first.later("wait");
        let again = later.later("all_reduce").noted("2 s ago").noted("of a child").met_by("to_vec");
        for (later, operation) in [(&later, "wait"), (&again, "to_vec")] {
            assert_eq!(
                (first_of(later), later.operation(), later.rank()),
                ((&first, 1), operation, Some(3)),
                "{later}"
            );
        }
        assert!(again.to_string().ends_with(" (2 s ago) (of a child)"), "{again}");
        assert_eq!(first.met_by("to_vec").operation(), "to_vec");
    }
    let differs = Error::Disagreement {
        operation: "all_reduce",
        rank: 1,
        peer: 0,
        expected: "this".into(),
        got: "that".into(),
        departed: false,
        in_part: false,
    };
    let later = differs.later("wait");
    assert_eq!((first_of(&later), later.operation(), later.peer()), ((&later, 0), "wait", Some(0)));
}

#[test]
fn reasons_are_texts() {
    let cause = Error::Cancelled { operation: "submit" };
    let reason = Cause::because("it was cancelled", cause.clone()).with_text("; so it goes");
    assert_eq!(
        (&*reason, format!("{reason:?}").as_str()),
        ("it was cancelled; so it goes", "\"it was cancelled; so it goes\"")
    );
    assert_eq!((reason.error(), reason.to_string().len()), (Some(&cause), reason.len()));
    assert_eq!(Cause::from(cause.clone()).to_string(), cause.to_string());
    assert_eq!(Cause::from(String::from("a")), Cause::from("a"));
}
