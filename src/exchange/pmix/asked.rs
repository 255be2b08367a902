//! Calls that may not come back, with a deadline.

use std::sync::mpsc::{TryRecvError, sync_channel};
use std::thread;

use crate::deadline::Deadline;
use crate::error::Result;

/// What `call` gives; `None` at the deadline, and what `look` says where it fails before. The thread that calls is left behind then, with all that it uses.
pub(super) fn asked<T: Send + 'static>(
    deadline: &Deadline,
    mut look: impl FnMut() -> Result<()>,
    call: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<Option<Result<T, String>>> {
    let (sender, answer) = sync_channel(1);
    let thread = thread::Builder::new().name("gpucomm-pmix".to_owned()).spawn(move || {
        // Nobody may wait any more.
        let _ = sender.send(call());
    });
    if let Err(error) = thread {
        return Ok(Some(Err(format!("no thread to ask it: {error}"))));
    }
    deadline.until(|| match answer.try_recv() {
        Ok(answer) => Ok(Some(answer)),
        Err(TryRecvError::Empty) => look().map(|()| None),
        Err(TryRecvError::Disconnected) => Ok(Some(Err("the thread that asks it has panicked".to_owned()))),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::error::Error;

    #[test]
    fn who_does_not_answer_is_left() {
        let (keep, never) = channel::<()>();
        let call = move || never.recv().map_err(|error| error.to_string());
        assert!(matches!(asked(&Deadline::after(Duration::from_millis(20)), || Ok(()), call), Ok(None)));
        drop(keep);
    }

    #[test]
    fn who_answers_is_heard_and_what_fails_meanwhile_too() {
        let deadline = Deadline::after(Duration::from_secs(60));
        assert_eq!(asked(&deadline, || Ok(()), || Ok(7)).unwrap(), Some(Ok(7)));
        let failed = asked(&deadline, || Ok(()), || Err::<(), _>("no".to_owned())).unwrap();
        assert_eq!(failed, Some(Err("no".to_owned())));
        let gone = || Err(Error::Gone { operation: "a test", rank: 3, how: "has died".to_owned() });
        let (keep, never) = channel::<()>();
        let call = move || never.recv().map_err(|error| error.to_string());
        let begin = Instant::now();
        assert!(matches!(asked(&deadline, gone, call), Err(Error::Gone { rank: 3, .. })));
        assert!(begin.elapsed() < Duration::from_secs(30));
        drop(keep);
    }
}
