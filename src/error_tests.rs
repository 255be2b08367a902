//! What errors look like.

use super::*;

/// What a `main` that returns it ends with.
#[test]
fn debug_is_one_line() {
    let error = Error::argument("all_reduce", "recv", "at least 2 elements", "1 elements");
    let want = "all_reduce: recv: expected at least 2 elements, got 1 elements [InvalidArgument]";
    assert_eq!((format!("{error:?}"), format!("{error:#?}")), (want.to_owned(), want.to_owned()));
    let last = Some("Bootstrap:\n  connection refused\n\n".to_owned());
    let error = Error::Nccl { operation: "ncclAllReduce", code: 2, message: "system error".into(), last };
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
