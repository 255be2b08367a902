//! The ranks of a communicator that live in this process.
//!
//! NCCL frees what they share, and with it all of them, when the last one is aborted or destroyed; until then kernels and
//! threads of its own may reach the memory of each. So whatever NCCL may still look at is kept until all have ended.
//!
//! They are aborted together, also those that were made one by one: the kernel of a rank that is stopped goes on as if it were done, and
//! those that wait for it complete on what it has not sent. So all must know of the end before the first is stopped.

use std::collections::BTreeMap;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::children::{Child, Children};
use super::growth::Growth;
use super::together::Together;
use crate::cuda::Device;
use crate::error::Error;
use crate::exchange::digest;
use crate::nccl::setup::config::Config;
use crate::nccl::setup::unique_id::UniqueId;

/// What all ranks know a communicator by, in whatever process they are, and in whatever order their threads have made it: the id that
/// it goes back to, and each split from there on, or shrink. Ordered so that what was split off comes after what it was split off from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lineage {
    id: [u8; UniqueId::BYTES],
    splits: Vec<Child>,
}

impl Lineage {
    /// That of a child.
    fn with(&self, child: Child) -> Self {
        Self { id: self.id, splits: self.splits.iter().cloned().chain([child]).collect() }
    }

    /// It, in bytes: the same in all programs, whatever they were compiled with.
    pub(crate) fn bytes(&self) -> impl Iterator<Item = u8> {
        self.id.into_iter().chain(self.splits.iter().flat_map(Child::bytes))
    }

    /// What takes the place of an id for a child into which others come, who know no more of it.
    #[cfg_attr(not(nccl_ge_2_29), allow(dead_code))]
    pub(crate) fn key(&self, child: &Child) -> UniqueId {
        let part = |at: u8| digest(self.bytes().chain(child.bytes()).chain([at])).to_le_bytes();
        let parts: Vec<_> = (0..UniqueId::BYTES.div_ceil(16)).flat_map(|at| part(at as u8)).collect();
        UniqueId::from_bytes(std::array::from_fn(|at| parts[at]))
    }
}

/// The ranks that were started with one id, or split off together; `R` is a rank.
#[derive(Debug)]
pub(crate) struct Household<R> {
    /// That of the communicator that this one was split off from: whose configurations NCCL goes on using.
    parent: Option<Arc<Self>>,
    pub(crate) lineage: Lineage,
    /// Those that they end together with: of sharers all have one.
    together: Arc<Together<R>>,
    children: Children<Self>,
    /// Who has invited others.
    pub(crate) growth: Growth,
    /// How many NCCL has not let go of.
    open: AtomicUsize,
    /// NCCL keeps pointers into them.
    configs: Mutex<Vec<Arc<Config>>>,
    /// What the first of them says.
    deterministic: AtomicBool,
    /// Those of all that have started, also of those that have ended.
    devices: Mutex<Vec<Device>>,
    ranks: Mutex<Ranks<R>>,
}

#[derive(Debug)]
struct Ranks<R> {
    started: Vec<Weak<R>>,
    /// Why they were aborted.
    cause: Option<Error>,
}

/// All households of the process.
pub(crate) struct Households<R>(Mutex<BTreeMap<Lineage, Weak<Household<R>>>>);

impl<R> Households<R> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// That of the ranks of `id`, joined by `ranks` more, before any of them starts; whether what they have is shared by what is split off
    /// from them.
    pub(crate) fn join(&self, id: &UniqueId, ranks: usize, shares: bool) -> Arc<Household<R>> {
        let household = self.of(Lineage { id: *id.as_bytes(), splits: Vec::new() });
        household.expect(ranks);
        if shares {
            household.together.set_shared();
        }
        household
    }

    /// That of the ranks that come from `parent` as `child`, and go on without it, joined by one more, before any of them starts.
    pub(crate) fn part_from(&self, parent: &Household<R>, child: Child) -> Arc<Household<R>> {
        let household = self.of(parent.lineage.with(child));
        household.inherit(parent);
        household.expect(1);
        if parent.together.are_shared() {
            // The same goes for what is split off from it.
            household.together.set_shared();
        }
        household
    }

    /// That of the ranks that go by `key`, which others join by it, joined by one more of `parent`, before any of them starts.
    #[cfg_attr(not(nccl_ge_2_29), allow(dead_code))]
    pub(crate) fn grown_from(&self, parent: &Household<R>, key: &UniqueId) -> Arc<Household<R>> {
        let household = self.join(key, 1, parent.together.are_shared());
        household.inherit(parent);
        household
    }

    fn of(&self, lineage: Lineage) -> Arc<Household<R>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, household| household.strong_count() > 0);
        let household = all
            .get(&lineage)
            .and_then(Weak::upgrade)
            .unwrap_or_else(|| Arc::new(Household::new(None, lineage.clone(), Arc::new(Together::new()))));
        all.insert(lineage, Arc::downgrade(&household));
        household
    }

    /// All ranks of the process that have started.
    pub(crate) fn members(&self) -> Vec<Arc<R>> {
        let all: Vec<_> = {
            let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.values().filter_map(Weak::upgrade).collect()
        };
        let mut members = Vec::new();
        let mut add = |ranks: &mut Ranks<R>| members.extend(ranks.started.iter().filter_map(Weak::upgrade));
        all.iter().for_each(|household| household.visit(&mut add));
        members
    }
}

impl<R> Household<R> {
    fn new(parent: Option<Arc<Self>>, lineage: Lineage, together: Arc<Together<R>>) -> Self {
        Self {
            parent,
            lineage,
            together,
            children: Children::default(),
            growth: Growth::default(),
            open: AtomicUsize::default(),
            configs: Mutex::default(),
            deterministic: AtomicBool::default(),
            devices: Mutex::default(),
            ranks: Mutex::new(Ranks { started: Vec::new(), cause: None }),
        }
    }

    /// Ranks have started on `devices`.
    pub(crate) fn lie_on(&self, devices: impl Iterator<Item = Device>) {
        let mut all = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        devices.for_each(|device| {
            if !all.contains(&device) {
                all.push(device)
            }
        });
    }

    /// The devices on which NCCL frees something when the last of them ends.
    pub(crate) fn devices(&self) -> Vec<Device> {
        self.devices.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps a configuration that ranks are started with.
    pub(crate) fn keep(&self, config: Config) -> Arc<Config> {
        let config = Arc::new(config);
        self.keep_first(|configs| configs.push(Arc::clone(&config)));
        config
    }

    /// They are started with `config`, which is kept with those that they have besides.
    pub(crate) fn prefer(&self, config: &Arc<Config>) {
        self.keep_first(|configs| configs.insert(0, Arc::clone(config)));
    }

    fn keep_first(&self, change: impl FnOnce(&mut Vec<Arc<Config>>)) {
        let mut configs = self.configs();
        change(&mut configs);
        self.deterministic.store(configs.first().is_some_and(|config| config.is_deterministic()), Ordering::Relaxed);
    }

    /// Whether two runs are to be equal bit by bit.
    #[inline]
    pub(crate) fn is_deterministic(&self) -> bool {
        self.deterministic.load(Ordering::Relaxed)
    }

    /// NCCL goes on using the configurations, for as long as nobody here knows: they are kept for ever.
    pub(crate) fn leave_configs(&self) {
        self.configs().iter().for_each(|config| std::mem::forget(Arc::clone(config)));
        self.parent.iter().for_each(|parent| parent.leave_configs());
    }

    /// It has the configurations of `parent`, which NCCL copies with all that they point to.
    fn inherit(&self, parent: &Self) {
        let theirs = parent.configs().clone();
        self.keep_first(|own| {
            for config in theirs {
                if !own.iter().any(|known| Arc::ptr_eq(known, &config)) {
                    own.push(config);
                }
            }
        });
    }

    /// What they were started with.
    pub(crate) fn config(&self) -> Config {
        self.configs().first().map(|config| Config::clone(config)).unwrap_or_default()
    }

    fn configs(&self) -> MutexGuard<'_, Vec<Arc<Config>>> {
        self.configs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether what NCCL shrinks shares its resources, as far as their configurations say so.
    #[cfg(nccl_ge_2_27)]
    pub(crate) fn shrinks_share(&self) -> bool {
        self.configs().iter().any(|config| config.shrinks_share())
    }

    /// So many more ranks are about to start.
    fn expect(&self, ranks: usize) {
        self.open.fetch_add(ranks, Ordering::Relaxed);
        self.together.join(ranks);
    }

    /// Never held across a call.
    fn ranks(&self) -> MutexGuard<'_, Ranks<R>> {
        self.ranks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// That of the ranks that are split off together as `child`, joined by one more, before any of them starts.
    pub(crate) fn child(self: &Arc<Self>, child: Child) -> Arc<Self> {
        let one = self.children.of(child.clone(), || {
            let lineage = self.lineage.with(child);
            let together = self.sharers().map_or_else(|| Arc::new(Together::new()), Arc::clone);
            let child = Self::new(Some(Arc::clone(self)), lineage, together);
            child.inherit(self);
            child
        });
        one.expect(1);
        one
    }

    /// Those that they share what NCCL has for them with.
    pub(crate) fn sharers(&self) -> Option<&Arc<Together<R>>> {
        Some(&self.together).filter(|together| together.are_shared())
    }

    /// Those that they end together with.
    pub(crate) fn together(&self) -> &Arc<Together<R>> {
        &self.together
    }

    /// The first of those that share.
    fn top(&self) -> &Self {
        let shares = |parent: &&Arc<Self>| Arc::ptr_eq(&self.together, &parent.together);
        self.parent.as_ref().filter(shares).map_or(self, |parent| parent.top())
    }

    /// Whether it is `other`, or was split off from that, or from what was.
    pub(crate) fn is_within(&self, other: &Self) -> bool {
        ptr::eq(self, other) || self.parent.as_ref().is_some_and(|parent| parent.is_within(other))
    }

    /// Which part it is, in words: "of color" and so on; `None` of what was not split off.
    pub(crate) fn part(&self) -> Option<String> {
        let parts: Vec<_> = self.lineage.splits.iter().rev().map(Child::describe).collect();
        (!parts.is_empty()).then(|| parts.join(" of the part "))
    }

    /// Which communicator it is, for an error of another one.
    pub(crate) fn describe(&self) -> String {
        self.part().map_or_else(|| "the whole".to_owned(), |part| format!("the part {part}"))
    }

    /// `ranks` have started; why they must be aborted, if the others were, or those that they were split off from.
    pub(crate) fn admit(&self, ranks: &[Arc<R>]) -> Option<Error> {
        let mut all = self.ranks();
        all.started.retain(|rank| rank.strong_count() > 0);
        all.started.extend(ranks.iter().map(Arc::downgrade));
        let cause = all.cause.clone();
        drop(all);
        self.together.admit(ranks.len());
        // Who fails a parent writes that down before it looks for children.
        cause.or_else(|| self.parent.as_ref()?.failure())
    }

    /// Why the ranks, or those that they were split off from, were aborted.
    fn failure(&self) -> Option<Error> {
        let cause = self.ranks().cause.clone();
        cause.or_else(|| self.parent.as_ref()?.failure())
    }

    /// All ranks that have started, those that they share with, and those that were split off from them. They are aborted because of
    /// `cause`, and so is who starts from now on.
    pub(crate) fn fail(&self, cause: &Error) -> Vec<Arc<R>> {
        let mut failed = Vec::new();
        self.top().visit(&mut |all| {
            all.cause.get_or_insert_with(|| cause.clone());
            failed.extend(all.started.iter().filter_map(Weak::upgrade));
        });
        failed
    }

    /// The ranks that have started, which are revoked because of `cause`; who starts from now on is aborted.
    #[cfg(nccl_ge_2_28_7)]
    pub(crate) fn stop(&self, cause: &Error) -> Vec<Arc<R>> {
        let mut all = self.ranks();
        all.cause.get_or_insert_with(|| cause.clone());
        all.started.iter().filter_map(Weak::upgrade).collect()
    }

    /// The ranks that have started.
    pub(crate) fn members(&self) -> Vec<Arc<R>> {
        self.ranks().started.iter().filter_map(Weak::upgrade).collect()
    }

    /// The ranks that have started, and those that they share with.
    pub(crate) fn all(&self) -> Vec<Arc<R>> {
        let mut all = Vec::new();
        self.top().visit(&mut |ranks| all.extend(ranks.started.iter().filter_map(Weak::upgrade)));
        all
    }

    /// The ranks, and then those that were split off.
    fn visit(&self, see: &mut impl FnMut(&mut Ranks<R>)) {
        see(&mut self.ranks());
        self.children.all().iter().for_each(|child| child.visit(see));
    }

    /// NCCL has let go of `rank`.
    pub(crate) fn leave(&self, rank: &R) {
        self.open.fetch_sub(1, Ordering::AcqRel);
        self.together.leave(rank);
    }

    /// One rank has not started, and will not.
    pub(crate) fn withdraw(&self) {
        self.open.fetch_sub(1, Ordering::AcqRel);
        self.together.withdraw();
    }

    /// Whether NCCL has let go of all of them.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.load(Ordering::Acquire) == 0
    }
}

#[cfg(test)]
#[path = "household_tests.rs"]
mod tests;
