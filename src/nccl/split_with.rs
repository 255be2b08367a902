//! Communicators that are made of others, and configured otherwise.

use std::collections::BTreeMap;

use super::children::child_config::ChildConfig;
#[cfg(nccl_ge_2_28_7)]
use super::children::regroup::split_revoked;
use super::children::split;
use super::children::split::Ask;
use super::clique::Clique;
use super::communicator::Communicator;
use super::rank::inner::Inner;
#[cfg(nccl_ge_2_28_7)]
use super::revoked::Revoked;
use super::setup::config::Config;
use super::split::by_color;
use crate::error::Result;

/// What `inner` asks for.
fn ask(operation: &'static str, inner: &Inner, color: Option<usize>, key: usize, config: &Config) -> Result<Ask> {
    let of_part = |color| ChildConfig::of(operation, inner, config, inner.name.part(color));
    let config = color.map(of_part).transpose()?;
    Ok(Ask { color, key, config })
}

/// With a configuration.
impl Communicator {
    /// Wraps `ncclCommSplit` with a configuration: as [`Communicator::split`], and the part is configured by `config`, such as one for few
    /// small collectives by fewer thread blocks.
    ///
    /// The [name](Communicator::name) of the part is that of [`Config::with_name`], or says how the
    /// part was made.
    ///
    /// What else `config` does not say is as in this communicator. NCCL would take its own default for that; here, passing an empty one is the same as
    /// [`Communicator::split`]. Of a communicator that was made elsewhere ([`Communicator::from_raw`]) it is not known how it is configured:
    /// there, what `config` does not say is as NCCL has it.
    ///
    /// All ranks of a part pass the same; other parts may pass something else. In a clique they compare it: every field but the name. Ranks
    /// of several processes have promised it, as they have promised the rest ([`Communicator::init_rank`]). A rank that will be in no part
    /// passes any.
    ///
    /// # Errors
    /// As [`Communicator::split`]. [`Error::Disagreement`](crate::Error::Disagreement) where ranks of a part in a clique pass something else, or one
    /// of them calls [`Communicator::split`]. [`Error::InvalidArgument`](crate::Error::InvalidArgument) for what NCCL does not take, and
    /// where [`Config::with_split_share`] or [`Config::with_shrink_share`](super::Config::with_shrink_share) differ from this communicator's: those that share
    /// with each other are looked after together, so what is made of one that shares nothing shares nothing either.
    ///
    /// # Examples
    /// Pairs for messages on the side, which are to leave the device to others:
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// use gpucomm::nccl::Config;
    /// use gpucomm::{Clique, Device};
    ///
    /// let clique = Clique::init_all(&Device::all()?[..4])?;
    /// let few = Config::new().with_min_ctas(1).with_max_ctas(2);
    /// clique.spmd(|comm| {
    ///     let pair = comm.split_with(Some(comm.rank() / 2), comm.rank(), &few)?.expect("every rank is in a pair");
    ///     assert_eq!(pair.size(), 2);
    ///     Ok(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ncclCommSplit")]
    pub fn split_with(&self, color: Option<usize>, key: usize, config: &Config) -> Result<Option<Self>> {
        const OPERATION: &str = "split_with";
        let ask = ask(OPERATION, self.inner(), color, key, config)?;
        let parts = split::split(OPERATION, &[self.inner()], &[ask])?;
        Ok(parts.into_iter().flatten().next().map(Self::from_inner))
    }

    /// Wraps `ncclCommShrink` (NCCL 2.27) with a configuration: as [`Communicator::shrink`], and what is left is configured by `config`. All ranks
    /// that are left pass the same. What it does not say is as in this communicator, see [`Communicator::split_with`].
    ///
    /// # Errors
    /// As [`Communicator::shrink`] and [`Communicator::split_with`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// use gpucomm::nccl::Config;
    /// use gpucomm::{Clique, Device};
    ///
    /// # if Device::count().is_ok_and(|count| count < 3) { return Ok(()) }
    /// let clique = Clique::init_all(&Device::all()?[..3])?;
    /// let config = Config::new().with_name("the rest")?;
    /// let sizes = clique.spmd(|comm| match comm.rank() {
    ///     1 => Ok(0),
    ///     _ => Ok(comm.shrink_with(&[1], &config)?.size()),
    /// })?;
    /// assert_eq!(sizes, [2, 0, 2]);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ncclCommShrink")]
    #[cfg(nccl_ge_2_27)]
    pub fn shrink_with(&self, without: &[usize], config: &Config) -> Result<Self> {
        const OPERATION: &str = "shrink_with";
        self.inner().refusal(OPERATION).map_or(Ok(()), Err)?;
        super::revoked::shrink_of(OPERATION, self, without, Some(config))
    }
}

/// With a configuration.
#[cfg(nccl_ge_2_28_7)]
impl Revoked<'_> {
    /// Wraps `ncclCommShrink` with a configuration: [`Communicator::shrink_with`] of a communicator that was revoked.
    ///
    /// # Errors
    /// As [`Communicator::shrink_with`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// # use gpucomm::{Clique, Device};
    /// # use gpucomm::nccl::Config;
    /// let clique = Clique::init_all(&Device::all()?)?;
    /// # if clique.size() < 2 { return Ok(()) }
    /// let config = Config::new().with_name("without the first")?;
    /// clique.spmd(|comm| {
    ///     let revoked = comm.revoke("rank 0 is too slow")?;
    ///     if comm.rank() > 0 {
    ///         assert_eq!(revoked.shrink_with(&[0], &config)?.size(), comm.size() - 1);
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ncclCommShrink")]
    pub fn shrink_with(&self, without: &[usize], config: &Config) -> Result<Communicator> {
        super::revoked::shrink_of("Revoked::shrink_with", self.0, without, Some(config))
    }

    /// Wraps `ncclCommSplit` with a configuration: [`Communicator::split_with`] of a communicator that was revoked.
    ///
    /// # Errors
    /// As [`Communicator::split_with`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// # use gpucomm::{Clique, Device};
    /// # use gpucomm::nccl::Config;
    /// let clique = Clique::init_all(&Device::all()?)?;
    /// let config = Config::new().with_max_ctas(4);
    /// let sizes = clique.spmd(|comm| {
    ///     let revoked = comm.revoke("to be divided")?;
    ///     let part = revoked.split_with(Some(comm.rank() % 2), comm.rank(), &config)?.expect("a part");
    ///     Ok(part.size())
    /// })?;
    /// assert_eq!(sizes[0], clique.size().div_ceil(2));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ncclCommSplit")]
    pub fn split_with(&self, color: Option<usize>, key: usize, config: &Config) -> Result<Option<Communicator>> {
        const OPERATION: &str = "Revoked::split_with";
        let ask = ask(OPERATION, self.0.inner(), color, key, config)?;
        let parts = split_revoked(OPERATION, &[self.0.inner()], &[ask])?;
        Ok(parts.into_iter().flatten().next().map(Communicator::from_inner))
    }
}

/// With a configuration.
impl Clique {
    /// Wraps `ncclCommSplit` with a configuration, on all ranks, for one thread that drives them all: as [`Clique::split`], and the part of each
    /// colour is configured by what `config` says for that; see [`Communicator::split_with`].
    ///
    /// # Errors
    /// As [`Communicator::split_with`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// use gpucomm::nccl::Config;
    /// use gpucomm::{Clique, Device};
    ///
    /// let clique = Clique::init_all(&Device::all()?[..4])?;
    /// // The first half does most of the work.
    /// let config = |half| if half == 0 { Config::new() } else { Config::new().with_max_ctas(2) };
    /// let halves = clique.split_with(|rank| Some((rank / 2, rank)), config)?;
    /// assert_eq!(halves[&1].size(), 2);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ncclCommSplit")]
    pub fn split_with(
        &self,
        asks: impl Fn(usize) -> Option<(usize, usize)>,
        config: impl Fn(usize) -> Config,
    ) -> Result<BTreeMap<usize, Self>> {
        const OPERATION: &str = "Clique::split_with";
        let members: Vec<_> = self.ranks().iter().map(Communicator::inner).collect();
        let mut configs = BTreeMap::new();
        let asks = members.iter().map(|inner| match asks(inner.rank) {
            Some((color, key)) => {
                let config = configs.entry(color).or_insert_with(|| config(color));
                ask(OPERATION, inner, Some(color), key, config)
            }
            None => Ok(Ask { color: None, key: 0, config: None }),
        });
        let asks = asks.collect::<Result<Vec<_>>>()?;
        Ok(by_color(split::split(OPERATION, &members, &asks)?, &asks))
    }

    /// Wraps `ncclCommShrink` with a configuration, on all ranks but those in `without`, for one thread that drives them all: as
    /// [`Clique::shrink`], and what is left is configured by `config`; see [`Communicator::shrink_with`].
    ///
    /// # Errors
    /// As [`Communicator::shrink_with`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// # use gpucomm::{Clique, Device};
    /// # use gpucomm::nccl::Config;
    /// let clique = Clique::init_all(&Device::all()?)?;
    /// # if clique.size() < 2 { return Ok(()) }
    /// let rest = clique.shrink_with(&[0], &Config::new().with_max_ctas(8))?;
    /// assert_eq!(rest.size(), clique.size() - 1);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ncclCommShrink")]
    #[cfg(nccl_ge_2_27)]
    pub fn shrink_with(&self, without: &[usize], config: &Config) -> Result<Self> {
        self.shrunk("Clique::shrink_with", without, Some(config))
    }
}
