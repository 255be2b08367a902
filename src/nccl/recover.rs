//! From a communicator that has failed to one of those ranks that are left.

use super::clique::Clique;
use super::communicator::Communicator;
use super::end::aborted;
use super::lifecycle::abort::{GRACE, abort};
use super::lifecycle::{start, start_over_exchange};
use super::raw::outside::outside_of_host_functions;
use super::setup::environment;
use super::setup::init_options::InitOptions;
use super::setup::unique_id::UniqueId;
use crate::cuda::Device;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::exchange::{Exchange, Vote};

const OPERATION: &str = "recover";

/// What a rank goes on with after [`Communicator::recover`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Recovered {
    /// The communicator of those that are left, numbered anew, with the options that the old one had.
    pub comm: Communicator,
    /// The exchange of the same ranks, with the same numbers: for the next time.
    pub exchange: Exchange,
    /// For each rank the one that it was in the communicator that has failed.
    pub survivors: Vec<usize>,
}

impl Communicator {
    /// From a communicator that has failed, or hangs, to one of the ranks that are left, in one call: it is aborted, the ranks find out over
    /// `exchange` who is left, and start anew.
    ///
    /// Every rank that still can calls it, each after its own calls have failed. The ranks wait for each other as long as
    /// [`Exchange::with_timeout`] says, or until the others are known to have ended. The abort takes at most half of that time, and at most
    /// 10 s. A rank that comes later is left out, and gets [`Error::Departed`]. If another rank is lost before all have started, those that are
    /// left begin again. All ranks get the same answer: none goes on unless all that it starts with have said that they do.
    ///
    /// A rank whose device is lost [withdraws](Exchange::withdraw): it gets that error, and the others go on without it.
    ///
    /// Unless the communicator is [checked](crate::nccl::InitOptions::with_checked), nobody who waits for the work of a rank is told that it has died: such a wait ends at its deadline, which is
    /// [`default_timeout`](crate::default_timeout), five minutes, where neither [`set_default_timeout`](crate::set_default_timeout) nor the call
    /// says less. Who is to know sooner has a thread wait for the others in `exchange`, which gets [`Error::Departed`] at once, and
    /// [abort](Self::aborter) the communicator.
    ///
    /// Some ranks may have done a step that others have not, or believe that they have, see [failures](crate::nccl#failures): ranks tell each
    /// other in the exchange that comes of this where they go on.
    ///
    /// Buffers that are windows of this communicator are to be dropped before. What is in other memory stays, and may be half written where an
    /// operation was under way.
    ///
    /// # Errors
    /// [`Error::Departed`] where this rank is left out, as it came too late; [`Error::DeviceLost`] where its device is; [`Error::Timeout`] where those that are left cannot start within their timeout, and [`Error::Exchange`] where the exchange
    /// fails. [`Error::InvalidUsage`] for a rank of a clique, for which there is [`Clique::recover`], and within a host function;
    /// [`Error::InvalidArgument`] where `exchange` is not one of as many ranks, in which this rank has the same number.
    ///
    /// # Examples
    /// ```
    /// # use gpucomm::exchange::Threads;
    /// # use gpucomm::{Device, UniqueId};
    /// # fn main() -> Result<()> {
    /// #     let ranks = Device::count()?.min(2);
    /// #     let place = Threads::new(ranks);
    /// #     std::thread::scope(|scope| {
    /// #         let start = |rank| {
    /// #             let store = place.store(rank).unwrap();
    /// #             scope.spawn(move || {
    /// #                 let exchange = Exchange::join(store)?;
    /// #                 let id = UniqueId::shared(&exchange)?;
    /// #                 // SAFETY: all ranks run this program.
    /// #                 train(unsafe { Communicator::init_rank(Device::new(rank)?, ranks, &id, rank)? }, exchange)
    /// #             })
    /// #         };
    /// #         let all: Vec<_> = (0..ranks).map(start).collect();
    /// #         all.into_iter().try_for_each(|rank| rank.join().expect("no panic"))
    /// #     })
    /// # }
    /// # fn step(number: u64, comm: &Communicator, stream: &Stream) -> Result<()> { comm.barrier(stream) }
    /// # fn load_checkpoint(before: u64) -> Result<()> { Ok(()) }
    /// use gpucomm::exchange::Exchange;
    /// use gpucomm::{Communicator, Result, Stream};
    ///
    /// fn train(mut comm: Communicator, mut exchange: Exchange) -> Result<()> {
    ///     let stream = Stream::new(comm.device())?;
    ///     let mut number = 0u64;
    ///     while number < 10 {
    ///         match step(number, &comm, &stream) {
    ///             Ok(()) => number += 1,
    ///             Err(error) => {
    ///                 eprintln!("rank {}: {error}", comm.rank());
    ///                 let recovered = comm.recover(&exchange)?;
    ///                 (comm, exchange) = (recovered.comm, recovered.exchange);
    ///                 // Some are a step ahead: all go back to the first that somebody has not done.
    ///                 for bytes in exchange.all_gather(&number.to_le_bytes())? {
    ///                     number = number.min(u64::from_le_bytes(bytes.try_into().expect("8 bytes")));
    ///                 }
    ///                 load_checkpoint(number)?;
    ///             }
    ///         }
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn recover(self, exchange: &Exchange) -> Result<Recovered> {
        outside_of_host_functions(OPERATION)?;
        let inner = self.inner();
        if inner.validation.in_process().is_some() {
            let reason = "this is a rank of a clique: Clique::recover is for all of them".to_owned();
            return Err(Error::InvalidUsage { operation: OPERATION, reason });
        }
        let (own, other) = ((self.rank(), self.size()), (exchange.rank(), exchange.size()));
        if own != other {
            let of = |(rank, size)| format!("rank {rank} of {size}");
            return Err(Error::argument(OPERATION, "exchange", of(own), of(other)));
        }
        let options = InitOptions::new()
            .with_timeout(self.timeout())
            .with_config(inner.local_ranks.config())
            .named(inner.name.recovered());
        let is_checked = inner.validation.over_exchange().is_some();
        let device = self.device();
        let cause = aborted(format!("rank {} recovers", self.rank()));
        // Work of this rank may still write after this, and may still hang. The other ranks wait for this
        // one no longer than the timeout of the exchange.
        let time = GRACE.min(exchange.timeout() / 2);
        let _ = abort(std::slice::from_ref(inner), &cause, &Deadline::after(time));
        // Since the abort, which has taken that long already.
        inner.limit_end(time);
        drop(self);
        if let Err(error) = device.memory_info() {
            // The others do not wait for who cannot start. Where this cannot be said, they do.
            let _ = exchange.withdraw();
            return Err(error);
        }
        let (comm, view) = begin(device, exchange, &options, is_checked)?;
        let old = exchange.store_ranks();
        let at = |rank: usize| old.iter().position(|&one| one == rank).unwrap_or(rank);
        let survivors = view.store_ranks().into_iter().map(at).collect();
        Ok(Recovered { comm, exchange: view, survivors })
    }
}

/// What those of `exchange` that are left begin who have no communicator any more, as after a recovery that has failed; and where they meet now. Who made
/// the one before has promised that they behave as one program.
pub(crate) fn begin_again(
    device: Device,
    exchange: &Exchange,
    options: &InitOptions,
) -> Result<(Communicator, Exchange)> {
    // As where they began first, when all had the same.
    begin(device, exchange, options, environment::checked(OPERATION)? || options.checked)
}

/// The communicator of those of `exchange` that are left, and their exchange.
fn begin(
    device: Device,
    exchange: &Exchange,
    options: &InitOptions,
    is_checked: bool,
) -> Result<(Communicator, Exchange)> {
    agree(exchange, |view, id| {
        start_over_exchange::with_id(OPERATION, device, view, id, options, is_checked).map(Communicator::from_inner)
    })
}

/// Has those of `exchange` that are left start something together, until all that do have said so.
fn agree(
    exchange: &Exchange,
    start: impl Fn(&Exchange, &UniqueId) -> Result<Communicator>,
) -> Result<(Communicator, Exchange)> {
    let mut view = exchange.survivors()?;
    // Each time that they begin again a rank is lost.
    for left in (0..view.size()).rev() {
        let made = UniqueId::shared(&view).and_then(|id| start(&view, &id));
        let vote = view.vote(made.as_ref().map(drop).map_err(Error::to_string))?;
        match made {
            Ok(made) if vote.unanimous() => return Ok((made, view)),
            Ok(made) => drop(made),
            Err(error) if left == 0 || is_own(&vote, view.rank()) => return Err(error),
            Err(_) => {}
        }
        view = go_on(&view, &vote)?;
    }
    let detail = format!("rank {}: whoever is left does not come to a start", exchange.rank());
    Err(Deadline::after(exchange.timeout()).error(OPERATION, detail).waited_by(exchange.rank()))
}

/// Whether this rank alone says no, though all have come: it is the one that cannot start.
fn is_own(vote: &Vote, rank: usize) -> bool {
    vote.missing.is_empty() && matches!(vote.no.as_slice(), [(one, _)] if *one == rank)
}

/// Who goes on where not all have started: without those that did not come to the vote, or the one that alone said no; where all came, and
/// several could not start, all try again.
fn go_on(view: &Exchange, vote: &Vote) -> Result<Exchange> {
    let mut lost: Vec<_> = vote.missing.iter().map(|(rank, _)| *rank).collect();
    if let ([], [(one, _)]) = (lost.as_slice(), vote.no.as_slice()) {
        lost.push(*one);
    }
    if lost.contains(&view.rank()) {
        let how = "has come too late: the others went on without it".to_owned();
        return Err(Error::Departed { operation: OPERATION, rank: view.rank(), how });
    }
    let left: Vec<_> = (0..view.size()).filter(|rank| !lost.contains(rank)).collect();
    view.subset(&left)
}

impl Clique {
    /// From a clique that has failed, or hangs, to one on those of its devices that answer, but for those of the ranks in `without`; and for each
    /// rank of it the one that it was. The old one is aborted.
    ///
    /// Where a kernel has trapped, no device of the process answers (seen with driver 580): who is to survive that has a process for each rank, and
    /// [`Communicator::recover`].
    ///
    /// # Errors
    /// Those of [`Clique::init_all`]; the first device's where none answers. [`Error::InvalidArgument`] where `without` leaves none, or names a rank that there is not.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// # use gpucomm::{Clique, Device, Stream};
    /// let clique = Clique::init_all(&Device::all()?)?;
    /// # if clique.size() < 2 { return Ok(()) }
    /// let failed = clique.try_spmd(|comm| -> Result<(), Box<dyn std::error::Error + Send + Sync>> { match comm.rank() {
    ///     0 => Err("rank 0 cannot go on".into()),
    ///     _ => Ok(comm.barrier(&Stream::new(comm.device())?)?),
    /// }});
    /// assert!(failed.is_err());
    /// let (clique, survivors) = clique.recover(&[0])?;
    /// assert_eq!(survivors[0], 1);
    /// clique.spmd(|comm| comm.barrier(&Stream::new(comm.device())?))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn recover(self, without: &[usize]) -> Result<(Self, Vec<usize>)> {
        const OPERATION: &str = "Clique::recover";
        outside_of_host_functions(OPERATION)?;
        let Some(first) = self.ranks().first() else {
            return Err(Error::argument(OPERATION, "the clique", "at least one rank", "none"));
        };
        for &rank in without {
            first.inner().check_rank(OPERATION, "without", rank)?;
        }
        let options = InitOptions::new()
            .with_timeout(first.timeout())
            .with_config(first.inner().local_ranks.config())
            .named(first.inner().name.recovered());
        let left = self.ranks().iter().filter(|comm| !without.contains(&comm.rank()));
        let left: Vec<_> = left.map(|comm| (comm.rank(), comm.device())).collect();
        if left.is_empty() {
            let expected = format!("fewer than all of the {} ranks", self.size());
            return Err(Error::argument(OPERATION, "without", expected, format_args!("{without:?}")));
        }
        let _ = self.abort("the clique recovers");
        let answers: Vec<_> = left.iter().map(|(_, device)| device.memory_info()).collect();
        let well: Vec<_> =
            left.into_iter().zip(&answers).filter(|(_, answer)| answer.is_ok()).map(|(one, _)| one).collect();
        if let (true, Some(Err(error))) = (well.is_empty(), answers.into_iter().next()) {
            return Err(error);
        }
        let (survivors, devices): (Vec<_>, Vec<_>) = well.into_iter().unzip();
        let members = start::all_ranks(OPERATION, &devices, &options)?;
        Ok((Self::of(members), survivors))
    }
}

#[cfg(all(test, gpucomm_emulator))]
mod tests {
    use super::*;
    use crate::exchange::Threads;

    /// Ranks without a communicator meet, checked where they are to be, as often as they like.
    #[test]
    fn those_without_a_communicator() {
        let place = Threads::new(2);
        let run = |rank: usize| {
            let exchange = Exchange::join(place.store(rank).unwrap()).unwrap();
            for checked in [true, false, true] {
                let options = InitOptions::new().with_checked(checked);
                let (comm, view) = begin_again(Device::new(rank).unwrap(), &exchange, &options).unwrap();
                assert_eq!((comm.size(), view.size(), comm.is_checked()), (2, 2, checked));
            }
        };
        std::thread::scope(|scope| [0, 1].map(|rank| scope.spawn(move || run(rank))).map(|one| one.join().unwrap()));
    }
}
