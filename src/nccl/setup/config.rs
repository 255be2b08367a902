//! How a communicator is made.

use std::ffi::{CString, c_int};
use std::fmt;
use std::sync::Arc;

#[cfg(nccl_ge_2_27)]
use super::choices::COPY_ENGINES;
use super::choices::MIXED;
use super::determinism;
use super::environment;
#[cfg(nccl_ge_2_27)]
use super::environment::NO_COPY_ENGINES;
use super::numbers::{CHANNELS, Numbers, UNSET};
use crate::error::{Error, Result};
use crate::known_bugs::MIN_CTAS_ALONE;
use crate::name::Name;
use crate::nccl::validate::split::Terms;
use crate::sys;

/// Wraps `ncclConfig_t`: a field that is not set keeps NCCL's own default, or what its environment variables say.
///
/// ```
/// # use gpucomm::nccl::{Config, InitOptions};
/// # use gpucomm::{Clique, Device};
/// # fn main() -> gpucomm::Result<()> {
/// let config = Config::new().with_min_ctas(1).with_max_ctas(16).with_cga_cluster_size(2).with_split_share(false);
/// let clique = Clique::init_all_with(&Device::all()?, &InitOptions::new().with_config(config))?;
/// # drop(clique);
/// # Ok(())
/// # }
/// ```
#[doc(alias = "ncclConfig_t")]
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Config {
    pub(super) numbers: Numbers,
    pub(super) net_name: Option<CString>,
    pub(super) name: Option<Name>,
    /// The name, as NCCL takes it.
    #[cfg(nccl_ge_2_27)]
    comm_name: Option<CString>,
    force_windows: bool,
    pub(super) deterministic: Option<bool>,
    change: Option<Change>,
    /// What says of all fields what this does not say.
    base: Option<Arc<Self>>,
}

/// What a user changes at last.
#[derive(Clone)]
struct Change(Arc<dyn Fn(&mut sys::ncclConfig_t) + Send + Sync>);

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Change")
    }
}

impl Config {
    /// NCCL's defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes windows ([`Communicator::alloc`](crate::nccl::Communicator::alloc)) with every version of NCCL that has them. By default they are
    /// made only with 2.29.7 and newer, because of `endless-windows` in [`known_bugs`](crate::known_bugs). The same on all ranks.
    ///
    /// ```
    /// use gpucomm::nccl::Config;
    ///
    /// // SAFETY: this program aborts no communicator while it goes on, and sends no messages from windows.
    /// let config = unsafe { Config::new().with_force_windows() };
    /// # drop(config);
    /// ```
    ///
    /// # Safety
    /// With NCCL before 2.29.7, until the process ends: no communicator of this configuration is aborted, by a timeout or an error of any
    /// rank either, while a collective on windows waits for a rank that does not come; its kernel would go on and use memory that is
    /// freed. With NCCL before 2.29.2, no collective uses a window that was part of a message, of an all_to_all, a gather or a scatter.
    pub unsafe fn with_force_windows(mut self) -> Self {
        self.force_windows = true;
        self
    }

    /// Has `change` set fields of the C struct that nothing here has a method for. It is called more than once, after all else is set.
    ///
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// use gpucomm::nccl::{Config, InitOptions};
    /// use gpucomm::{Clique, Device};
    ///
    /// # if Device::count().is_err() { return Ok(()) }
    /// // SAFETY: a number that NCCL takes for this field, the same on all ranks.
    /// let config = unsafe { Config::new().with_raw(|config| config.maxCTAs = 4) };
    /// let clique = Clique::init_all_with(&Device::all()?, &InitOptions::new().with_config(config))?;
    /// # drop(clique);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// What this crate could not answer for is an [`InvalidArgument`](Error::InvalidArgument) when a communicator is made: `blocking`
    /// other than 1, another `splitShare` or `shrinkShare` than its own methods say, and a `CTAPolicy` with the copy engines.
    ///
    /// # Safety
    /// It sets the same each time. The values are such as NCCL takes, on all ranks what NCCL wants the same; what it puts pointers to
    /// lives as long as the communicator, and those that are split off from it.
    pub unsafe fn with_raw(mut self, change: impl Fn(&mut sys::ncclConfig_t) + Send + Sync + 'static) -> Self {
        self.change = Some(Change(Arc::new(change)));
        self
    }

    /// The same, for the communicator of this name.
    pub(crate) fn named(&self, name: &Name) -> Self {
        Self {
            name: Some(name.clone()),
            #[cfg(nccl_ge_2_27)]
            comm_name: Some(name.to_c()),
            ..self.clone()
        }
    }

    /// The name that was set.
    pub(crate) fn name(&self) -> Option<&Name> {
        self.name.as_ref()
    }

    /// The same, with what `base` says where it says nothing.
    pub(crate) fn over(&self, base: Self) -> Self {
        let base = Some(Arc::new(match &self.base {
            Some(own) => own.over(base),
            None => base,
        }));
        Self { base, ..self.clone() }
    }

    /// What ranks compare of it where they make a communicator of another one: all that NCCL is told, but for a name.
    pub(crate) fn terms(&self) -> Terms {
        let numbers = Numbers::read(&self.to_raw()).into_iter().map(|(name, number)| (name, number.to_string()));
        let net_name = self.network().map(|name| ("net_name", name.to_string_lossy().into_owned()));
        let said = [("force_windows", self.forces_windows()), ("deterministic", self.is_deterministic())];
        let said = said.into_iter().filter(|(_, is_said)| *is_said).map(|(name, _)| (name, "true".to_owned()));
        Terms::new(numbers.chain(net_name).chain(said))
    }

    fn numbers(&self) -> Numbers {
        match &self.base {
            Some(base) => self.numbers.over(&base.numbers()),
            None => self.numbers.clone(),
        }
    }

    fn network(&self) -> Option<&CString> {
        self.net_name.as_ref().or_else(|| self.base.as_ref()?.network())
    }

    /// Whether communicators split from this one share its resources, as far as it says so.
    pub(crate) fn shares(&self) -> bool {
        self.numbers().split_share == Some(1)
    }

    /// Whether communicators shrunk from this one share its resources, as far as it says so.
    #[cfg(nccl_ge_2_27)]
    pub(crate) fn shrinks_share(&self) -> bool {
        self.numbers().shrink_share == Some(1)
    }

    pub(crate) fn forces_windows(&self) -> bool {
        self.force_windows || self.base.as_ref().is_some_and(|base| base.forces_windows())
    }

    /// Whether two runs are to be equal bit by bit.
    pub(crate) fn is_deterministic(&self) -> bool {
        self.deterministic.unwrap_or_else(|| self.base.as_ref().is_some_and(|base| base.is_deterministic()))
    }

    /// `graphUsageMode` as NCCL takes it: 0 for no graphs, 1 for one, 2 for any.
    pub(crate) fn uses_graphs(&self) -> c_int {
        match environment::mixes_graphs() {
            Some(true) => MIXED,
            // Before there were modes, that was for who has one graph.
            Some(false) => c_int::from(cfg!(not(nccl_ge_2_29))),
            None => self.graph_usage_as_made(),
        }
    }

    #[cfg(nccl_ge_2_29)]
    fn graph_usage_as_made(&self) -> c_int {
        Some(self.to_raw().graphUsageMode).filter(|usage| (0..MIXED).contains(usage)).unwrap_or(MIXED)
    }

    #[cfg(not(nccl_ge_2_29))]
    fn graph_usage_as_made(&self) -> c_int {
        MIXED
    }

    /// Refuses what the rest of this crate could not answer for. Copy engines move data to where a rank alone thinks that the windows of
    /// the others begin, in operations for which ranks do not compare them; and the device waits for them in commands of streams, which
    /// an abort does not reach.
    pub(crate) fn check(&self, operation: &'static str) -> Result<()> {
        let numbers = self.numbers();
        numbers.check(operation)?;
        if let (Some(min), Some(max)) = (numbers.min_ctas, numbers.max_ctas)
            && min > max
        {
            return Err(Error::argument(operation, "min_ctas", format_args!("at most max_ctas, which is {max}"), min));
        }
        #[cfg(nccl_ge_2_27)]
        if let Some(policy) = numbers.cta_policy.filter(|&policy| policy & COPY_ENGINES != 0) {
            return Err(Error::argument(operation, "cta_policy", NO_COPY_ENGINES, policy));
        }
        #[cfg(nccl_ge_2_30_7)]
        if numbers.graph_stream_ordering == Some(0) && numbers.graph_usage.is_none_or(|usage| usage == MIXED) {
            let expected = "true, or graph_usage None or One with it: NCCL keeps to its own order else";
            return Err(Error::argument(operation, "graph_stream_ordering", expected, false));
        }
        let is_deterministic = self.is_deterministic();
        if is_deterministic {
            determinism::check_numbers(operation, &numbers)?;
            determinism::check(operation)?;
        }
        let Some(Change(change)) = &self.change else { return Ok(()) };
        let before = self.to_raw_unchanged();
        let mut raw = before;
        change(&mut raw);
        let kept = |what, expected: c_int, got: c_int| {
            if expected == got { Ok(()) } else { Err(Error::argument(operation, what, expected, got)) }
        };
        kept("blocking", before.blocking, raw.blocking)?;
        kept("splitShare", before.splitShare, raw.splitShare)?;
        #[cfg(nccl_ge_2_27)]
        kept("shrinkShare", before.shrinkShare, raw.shrinkShare)?;
        #[cfg(nccl_ge_2_27)]
        if raw.CTAPolicy >= 0 && raw.CTAPolicy & COPY_ENGINES != 0 {
            return Err(Error::argument(operation, "CTAPolicy", NO_COPY_ENGINES, raw.CTAPolicy));
        }
        if is_deterministic { determinism::check_kept(operation, &raw) } else { Ok(()) }
    }

    /// The C struct, for a communicator whose calls block. It points into `self`, and NCCL keeps `commName` without
    /// copying it: `self` must live as long as the communicator.
    pub(crate) fn to_raw(&self) -> sys::ncclConfig_t {
        let mut raw = self.to_raw_unchanged();
        if let Some(Change(change)) = &self.change {
            change(&mut raw);
        }
        raw
    }

    fn to_raw_unchanged(&self) -> sys::ncclConfig_t {
        let mut raw = self.base.as_ref().map_or_else(initial, |base| base.to_raw());
        raw.blocking = 1;
        self.numbers.write(&mut raw);
        if self.numbers.min_ctas.is_some() && raw.maxCTAs == UNSET && MIN_CTAS_ALONE.is_running() {
            raw.maxCTAs = CHANNELS;
        }
        if let Some(name) = &self.net_name {
            raw.netName = name.as_ptr();
        }
        #[cfg(nccl_ge_2_27)]
        if let Some(name) = &self.comm_name {
            raw.commName = name.as_ptr();
        }
        if self.is_deterministic() {
            determinism::write(&mut raw);
        }
        raw
    }
}

/// A C struct in which nothing is set.
fn initial() -> sys::ncclConfig_t {
    let mut raw = std::mem::MaybeUninit::uninit();
    // SAFETY: the shim writes the whole struct.
    unsafe {
        sys::gpucommNcclConfigInit(raw.as_mut_ptr());
        raw.assume_init()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_is_as_in_the_base() {
        // SAFETY: numbers that NCCL takes.
        let base = unsafe { Config::new().with_min_ctas(2).with_cga_cluster_size(1).with_raw(|raw| raw.maxCTAs = 16) };
        let base = base.with_net_name("Socket").unwrap().with_split_share(true);
        let heir = Config::new().over(base.clone());
        let raw = heir.to_raw();
        assert_eq!((raw.minCTAs, raw.maxCTAs, raw.cgaClusterSize, raw.splitShare, raw.blocking), (2, 16, 1, 1, 1));
        assert_eq!(heir.network().map(|name| name.as_ptr()), Some(raw.netName));
        assert_eq!(heir.network(), Some(&CString::from(c"Socket")));
        // What is said comes after what a user has changed of the base; and so does what is changed of this.
        let own = Config::new().with_max_ctas(8).with_net_name("IB").unwrap();
        let heir = own.over(base.clone());
        let raw = heir.to_raw();
        assert_eq!((raw.minCTAs, raw.maxCTAs), (2, 8));
        assert_eq!(heir.network(), Some(&CString::from(c"IB")));
        assert_eq!(heir.network().map(|name| name.as_ptr()), Some(raw.netName));
        // SAFETY: as above.
        let raw = unsafe { own.clone().with_raw(|raw| raw.minCTAs = 3) }.over(heir).to_raw();
        assert_eq!((raw.minCTAs, raw.maxCTAs, raw.cgaClusterSize), (3, 8, 1));
        assert!(own.over(base.clone()).shares() && !own.with_split_share(false).over(base).shares());
    }

    #[test]
    fn limits_hold_for_what_comes_from_both() {
        let refused =
            |config: Config| config.over(Config::new().with_max_ctas(4)).check("a test").unwrap_err().to_string();
        assert!(
            refused(Config::new().with_min_ctas(5)).contains("min_ctas: expected at most max_ctas, which is 4, got 5")
        );
        assert!(refused(Config::new().with_max_ctas(0)).contains("max_ctas: expected at least 1"));
    }

    #[test]
    fn determinism_is_what_nccl_is_told_and_inherited() {
        let parent = Config::new().with_deterministic(true);
        let child = Config::new().with_max_ctas(4).over(parent.clone());
        for config in [&parent, &child] {
            assert!(config.is_deterministic());
            #[cfg(nccl_ge_2_27)]
            assert_eq!((config.to_raw().collnetEnable, config.to_raw().CTAPolicy), (0, 0));
            #[cfg(nccl_ge_2_32)]
            assert_eq!(config.to_raw().nvlsHostMode, sys::ncclNvlsHostMode_t::ncclNvlsHostModeDisable.0);
        }
        let other = Config::new().with_deterministic(false).over(parent.clone());
        assert!(!other.is_deterministic());
        assert_ne!(other.terms(), parent.terms());
        #[cfg(nccl_ge_2_27)]
        {
            let policy = crate::nccl::CtaPolicy::Efficiency;
            // SAFETY: a number that NCCL takes.
            let raw = unsafe { Config::new().with_raw(|raw| raw.collnetEnable = 1) };
            for (name, refused) in [
                ("collnet_enable: expected false", Config::new().with_collnet_enable(true)),
                ("cta_policy: expected CtaPolicy::Default", Config::new().with_cta_policy(policy)),
            ] {
                let error = refused.over(parent.clone()).check("a test").unwrap_err().to_string();
                assert!(error.contains(name), "{error}");
            }
            let raw = raw.over(parent.clone());
            assert!(
                determinism::check_kept("a test", &raw.to_raw()).unwrap_err().to_string().contains("collnetEnable")
            );
        }
    }

    #[test]
    fn terms_are_what_nccl_is_told() {
        let of = |config: &Config| config.over(Config::new().with_max_ctas(4)).terms();
        assert_eq!(of(&Config::new().with_max_ctas(4)), of(&Config::new()));
        // SAFETY: a number that NCCL takes.
        assert_eq!(of(&unsafe { Config::new().with_raw(|raw| raw.maxCTAs = 4) }), of(&Config::new()));
        // SAFETY: as above.
        let raw = unsafe { Config::new().with_raw(|raw| raw.maxCTAs = 5) };
        for other in [Config::new().with_max_ctas(5), raw, Config::new().with_net_name("IB").unwrap()] {
            assert_ne!(of(&other), of(&Config::new()), "{other:?}");
        }
    }
}
