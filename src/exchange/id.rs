//! What one rank makes for all, and what all tell each other before they begin something: or why a rank cannot.

#[cfg(any(feature = "nccl", feature = "nvshmem"))]
use super::collectives::kind;
use super::handle::Exchange;
#[cfg(feature = "nccl")]
use super::vote::No;
#[cfg(feature = "nccl")]
use crate::deadline::Deadline;
use crate::error::{Error, Result};

impl Exchange {
    /// The bytes that rank 0 has made, on all ranks, for `operation`.
    ///
    /// # Errors
    /// As [`share`](Self::share).
    pub(crate) fn share_id<const N: usize>(
        &self,
        operation: &'static str,
        make: impl FnOnce() -> Result<[u8; N]>,
    ) -> Result<[u8; N]> {
        let bytes = self.share(operation, || Ok(make()?.to_vec()))?;
        <[u8; N]>::try_from(&*bytes).map_err(|_| Error::Exchange {
            operation,
            key: "rank 0".to_owned(),
            reason: format!("expected an id of {N} bytes, got {}", bytes.len()),
        })
    }

    /// The same of any number of bytes.
    ///
    /// # Errors
    /// Where rank 0 cannot make them: its error there, and on the others at once an [`Error::Exchange`] that says why.
    pub(crate) fn share(&self, operation: &'static str, make: impl FnOnce() -> Result<Vec<u8>>) -> Result<Vec<u8>> {
        if self.rank() == 0 {
            let made = make();
            // The others wait for either.
            let told = self.broadcast(&say(&made), 0);
            return made.and_then(|made| told.map(|_| made));
        }
        said(operation, 0, self.broadcast(&[], 0)?)
    }

    /// All ranks say something before they begin `operation`, or that they cannot: what all have said, where all can, beside what this one
    /// is ready with.
    ///
    /// # Errors
    /// What a rank is not `ready` for, there and at once; on the others an [`Error::Exchange`] that says why. As [`all_gather`](Self::all_gather).
    #[cfg(any(feature = "nccl", feature = "nvshmem"))]
    pub(crate) fn gather_ready<T>(
        &self,
        operation: &'static str,
        ready: Result<(T, Vec<u8>)>,
    ) -> Result<(T, Vec<Vec<u8>>)> {
        let (ready, own) = match ready {
            Ok((ready, own)) => (ready, say(&Ok(own))),
            Err(error) => {
                // The others wait for it, and it for nobody.
                let (round, own, deadline) = (self.view.round(), cannot(&error), self.deadline());
                let _ = self.put_counted(round.number, operation, kind::ALL_GATHER, &own, &deadline);
                return Err(error);
            }
        };
        let (round, deadline, gather) = (self.view.round(), self.deadline(), "Exchange::all_gather");
        let all = round
            .wait_for_turn(gather, &deadline, || false)
            .and_then(|()| self.gather_in(round.number, gather, kind::ALL_GATHER, &own, &deadline));
        if let Err(error @ Error::Timeout { .. }) = &all {
            // A rank that is late would go on with what this one has said, without it.
            let soon = self.soon();
            let _ = self.put(round.number, operation, kind::ALL_GATHER, &cannot(error), &soon);
        }
        let all = all?.into_iter().enumerate();
        Ok((ready, all.map(|(rank, bytes)| said(operation, rank, bytes)).collect::<Result<_>>()?))
    }

    /// Waits until all ranks have come to `operation`, which is about this `matter`, and are ready for it. Unlike in a gather, a
    /// rank whose exchange [refuses](Self::unless) waits no longer, and the others learn why.
    ///
    /// # Errors
    /// Returns the error of `ready` or of the refusal on that rank, and [`Error::Exchange`] with its text on the others;
    /// [`Error::Departed`] if a rank has ended, [`Error::Timeout`] if a rank does not come in time, and the errors of the store.
    #[cfg(feature = "nccl")]
    #[cfg_attr(not(nccl_ge_2_29), allow(dead_code))]
    pub(crate) fn meet_ready<T>(&self, operation: &'static str, matter: &str, ready: Result<T>) -> Result<T> {
        let own = ready.as_ref().err().cloned();
        let ballot = own.as_ref().map_or(Ok(()), |error| Err(No { why: error.to_string(), is_not_ready: false }));
        // A rank that is not ready waits for nobody.
        let exchange = match own {
            Some(error) => self.unless(move || Some(error.clone())),
            None => self.clone(),
        };
        let vote = exchange.vote_on(matter, ballot);
        let ready = ready?;
        // A store that is slow does not hide why this rank waits no longer.
        let vote = vote.map_err(|error| self.refusal().unwrap_or(error))?;
        if vote.unanimous() {
            return Ok(ready);
        }
        if let Some(error) = self.refusal() {
            return Err(error);
        }
        if let Some((rank, why)) = vote.no.first() {
            return Err(not_there(operation, *rank, format!("it cannot go on: {why}")));
        }
        let ended = vote.missing.iter().find(|(rank, _)| !vote.late.contains(rank));
        if let Some((rank, how)) = ended {
            return Err(Error::Departed { operation, rank: *rank, how: how.clone() });
        }
        Err(Deadline::after(self.timeout()).error(operation, vote.to_string()))
    }
}

/// What a rank tells the others that cannot go on.
fn cannot(error: &Error) -> Vec<u8> {
    [&[0], error.to_string().as_bytes()].concat()
}

/// What a rank tells the others.
fn say(made: &Result<Vec<u8>>) -> Vec<u8> {
    match made {
        Ok(bytes) => [&[1], &**bytes].concat(),
        Err(error) => cannot(error),
    }
}

/// What `rank` has told this one.
fn said(operation: &'static str, rank: usize, mut bytes: Vec<u8>) -> Result<Vec<u8>> {
    let reason = match bytes.split_first() {
        Some((1, _)) => {
            bytes.remove(0);
            return Ok(bytes);
        }
        Some((0, why)) => format!("it cannot go on: {}", String::from_utf8_lossy(why)),
        _ => format!("expected what it says, got {} bytes that are something else", bytes.len()),
    };
    Err(not_there(operation, rank, reason))
}

fn not_there(operation: &'static str, rank: usize, reason: String) -> Error {
    Error::Exchange { operation, key: format!("rank {rank}"), reason }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::exchange::Threads;

    const LONG: Duration = Duration::from_secs(600);

    fn refusal() -> Error {
        Error::InvalidUsage { operation: "test", reason: "it has no id".to_owned() }
    }

    /// Runs `f` as each of three ranks, whose calls may take long, and checks that they do not.
    fn as_ranks<R: Send>(f: impl Fn(&Exchange) -> R + Sync) -> Vec<R> {
        let (place, f, begin) = (Threads::new(3), &f, Instant::now());
        let run = &|rank| f(&Exchange::join(place.store(rank).unwrap()).unwrap().with_timeout(LONG));
        let all = std::thread::scope(|scope| {
            let ranks = [0, 1, 2].map(|rank| scope.spawn(move || run(rank)));
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        });
        assert!(begin.elapsed() < LONG / 10, "{:?}", begin.elapsed());
        all
    }

    fn is_told(error: &Error, of: usize) {
        assert!(matches!(error, Error::Exchange { operation: "test", .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(&format!("rank {of}")) && text.contains("it has no id"), "{text}");
    }

    #[test]
    fn all_are_told_that_rank_0_has_nothing_to_share() {
        let all = as_ranks(|exchange| {
            let failed = exchange.share_id::<4>("test", || Err(refusal())).unwrap_err();
            (failed, exchange.share_id("test", || Ok([1, 2, 3, 4])).unwrap())
        });
        for (rank, (failed, shared)) in all.iter().enumerate() {
            assert_eq!(*shared, [1, 2, 3, 4]);
            match rank {
                0 => assert!(matches!(failed, Error::InvalidUsage { .. }), "{failed:?}"),
                _ => is_told(failed, 0),
            }
        }
    }

    /// Many ranks, whose values are combined.
    #[cfg(any(feature = "nccl", feature = "nvshmem"))]
    #[test]
    fn many_are_told_at_once_that_one_is_not_ready() {
        for size in [17, 64, 130] {
            let (place, begin) = (Threads::new(size), Instant::now());
            let run = &|rank| {
                let exchange = Exchange::join(place.store(rank).unwrap()).unwrap().with_timeout(LONG);
                let own = if rank == 1 { Err(refusal()) } else { Ok(((), Vec::new())) };
                let failed = exchange.gather_ready("test", own).unwrap_err();
                // The next one of the same ranks is right.
                exchange.barrier().unwrap();
                failed
            };
            let errors: Vec<_> = std::thread::scope(|scope| {
                let ranks: Vec<_> = (0..size).map(|rank| scope.spawn(move || run(rank))).collect();
                ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
            });
            errors.iter().enumerate().filter(|(rank, _)| *rank != 1).for_each(|(_, error)| is_told(error, 1));
            assert!(begin.elapsed() < Duration::from_secs(3), "{size} ranks: {:?}", begin.elapsed());
        }
    }

    /// Ranks of which one is late try again until they meet: the late one does not go on with what the other had said.
    #[cfg(any(feature = "nccl", feature = "nvshmem"))]
    #[test]
    fn one_that_is_late_meets_the_others_when_they_try_again() {
        for size in [2, 20] {
            let place = Threads::new(size);
            let run = &|rank| {
                let exchange = Exchange::join(place.store(rank).unwrap()).unwrap().with_timeout(LONG);
                let short = exchange.with_timeout(Duration::from_millis(100));
                let mut said = Vec::new();
                // One that has not given up could still meet it.
                let all_others = (size - 1).to_string().into_bytes();
                while rank == 1 && exchange.try_get("given up").unwrap().as_ref() != Some(&all_others) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                for attempt in 0..10_u8 {
                    let told =
                        if attempt == 0 { &short } else { &exchange }.gather_ready("test", Ok(((), vec![attempt])));
                    if rank != 1 && attempt == 0 {
                        exchange.add("given up", 1).unwrap();
                    }
                    match told {
                        Ok(((), all)) => {
                            said = all;
                            break;
                        }
                        Err(Error::Timeout { .. }) => assert!(rank != 1 && attempt == 0),
                        // Another one had given up before.
                        Err(error) => assert!(
                            matches!(error, Error::Exchange { operation: "test", .. })
                                && error.to_string().contains("rank 1 of")
                                && attempt == 0,
                            "rank {rank}, attempt {attempt}: {error}"
                        ),
                    }
                }
                said
            };
            let all: Vec<_> = std::thread::scope(|scope| {
                let ranks: Vec<_> = (0..size).map(|rank| scope.spawn(move || run(rank))).collect();
                ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
            });
            all.iter().for_each(|said| assert_eq!(*said, vec![[1_u8]; size], "{all:?}"));
        }
    }

    #[cfg(any(feature = "nccl", feature = "nvshmem"))]
    #[test]
    fn all_are_told_that_one_is_not_ready() {
        let all = as_ranks(|exchange| {
            let own = if exchange.rank() == 1 { Err(refusal()) } else { Ok(((), Vec::new())) };
            let failed = exchange.gather_ready("test", own).unwrap_err();
            (failed, exchange.gather_ready("test", Ok(((), vec![exchange.rank() as u8]))).unwrap().1)
        });
        for (rank, (failed, said)) in all.iter().enumerate() {
            assert_eq!(*said, [[0], [1], [2]]);
            match rank {
                1 => assert!(matches!(failed, Error::InvalidUsage { .. }), "{failed:?}"),
                _ => is_told(failed, 1),
            }
        }
    }
}
