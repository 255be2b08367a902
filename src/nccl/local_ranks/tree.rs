//! The tree of local ranks: one node for each communicator that has ranks in this process.
//!
//! A part that was split off is a child of the communicator that it came from, and ends with it. A
//! communicator that was shrunk, grown, or made of a revoked one is a root of its own: it lives on
//! when the old one ends.
//!
//! NCCL frees the ranks of one process together, when the last of them is aborted or destroyed.
//! Until then its kernels and threads may reach the memory of each rank. So whatever NCCL may still
//! read, such as configurations, lives as long as the node.
//!
//! The ranks of a node are aborted together, even if they were started one by one: when NCCL stops
//! the kernel of a rank, the kernels of its peers complete without the data that it has not sent.
//! So all ranks must be marked before the first is stopped.

use std::collections::BTreeMap;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use super::growth::Growth;
use super::lineage::{Child, Lineage};
use super::teardown::Teardown;
use crate::cuda::Device;
use crate::error::Error;
use crate::lock::{Mutex, MutexGuard};
use crate::nccl::setup::config::Config;
use crate::nccl::setup::unique_id::UniqueId;
use crate::nccl::validate::in_process::InProcess;

/// The ranks of one communicator that live in this process; `R` is a rank.
#[derive(Debug)]
pub(crate) struct LocalRanks<R> {
    /// The communicator that this one was split off from. NCCL goes on using its configurations.
    parent: Option<Arc<Self>>,
    /// The parts that were split off, in the order of their [`Child`]. Each lives as long as
    /// somebody else has it.
    children: Mutex<Vec<(Child, Weak<Self>)>>,
    pub(crate) lineage: Lineage,
    /// Decides when these ranks are freed. Communicators that share NCCL's resources have one in
    /// common.
    teardown: Arc<Teardown<R>>,
    /// What the ranks compare, if all of them live in this process.
    in_process: OnceLock<Arc<InProcess>>,
    pub(crate) growth: Growth,
    /// How many ranks NCCL has not freed, including those that are being started.
    open: AtomicUsize,
    /// The configurations that NCCL keeps pointers into. The ranks were started with the first.
    configs: Mutex<Vec<Arc<Config>>>,
    /// Whether the first configuration asks for results that are equal bit by bit.
    deterministic: AtomicBool,
    /// The devices of all ranks that have started, including those that have ended.
    devices: Mutex<Vec<Device>>,
    started: Mutex<Started<R>>,
}

#[derive(Debug)]
struct Started<R> {
    /// In the order of their numbers.
    ranks: Vec<(usize, Weak<R>)>,
    /// Why the ranks were aborted or revoked. Ranks that start later are aborted because of it.
    cause: Option<Error>,
}

impl<R> Started<R> {
    fn alive(&self) -> impl Iterator<Item = Arc<R>> {
        self.ranks.iter().filter_map(|(_, rank)| rank.upgrade())
    }
}

/// The roots of all trees of the process, by their lineages.
pub(crate) struct Roots<R>(Mutex<BTreeMap<Lineage, Weak<LocalRanks<R>>>>);

impl<R> Roots<R> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// Adds `ranks` ranks to the communicator of `id`, before any of them starts. `shares` says
    /// whether its parts share its resources.
    pub(crate) fn join(&self, id: &UniqueId, ranks: usize, shares: bool) -> Arc<LocalRanks<R>> {
        let local = self.root(Lineage::new(id));
        local.expect(ranks);
        if shares {
            local.teardown.set_shared();
        }
        local
    }

    /// Adds a rank of `parent` to `child`, which lives on without `parent`, before the rank starts.
    pub(crate) fn join_apart(&self, parent: &LocalRanks<R>, child: Child) -> Arc<LocalRanks<R>> {
        let local = self.root(parent.lineage.with(child));
        local.inherit(parent);
        local.expect(1);
        if parent.teardown.is_shared() {
            local.teardown.set_shared();
        }
        local
    }

    /// Adds a rank of `parent` to the grown communicator that goes by `key`, which ranks of other
    /// processes join by the same key.
    #[cfg_attr(not(nccl_ge_2_29), allow(dead_code))]
    pub(crate) fn join_grown(&self, parent: &LocalRanks<R>, key: &UniqueId) -> Arc<LocalRanks<R>> {
        let local = self.join(key, 1, parent.teardown.is_shared());
        local.inherit(parent);
        local
    }

    /// The communicator that goes by `key`, to which ranks are added later.
    #[cfg_attr(not(nccl_ge_2_29), allow(dead_code))]
    pub(crate) fn by_key(&self, key: &UniqueId) -> Arc<LocalRanks<R>> {
        self.root(Lineage::new(key))
    }

    fn root(&self, lineage: Lineage) -> Arc<LocalRanks<R>> {
        let mut all = self.0.lock();
        all.retain(|_, local| local.strong_count() > 0);
        let local = all
            .get(&lineage)
            .and_then(Weak::upgrade)
            .unwrap_or_else(|| Arc::new(LocalRanks::new(None, lineage.clone(), Arc::new(Teardown::new()))));
        all.insert(lineage, Arc::downgrade(&local));
        local
    }

    /// All ranks of the process that have started.
    pub(crate) fn ranks(&self) -> Vec<Arc<R>> {
        let roots: Vec<_> = {
            let all = self.0.lock();
            all.values().filter_map(Weak::upgrade).collect()
        };
        let mut ranks = Vec::new();
        roots.iter().for_each(|root| root.visit(&mut |started| ranks.extend(started.alive())));
        ranks
    }
}

/// The shape of the tree.
impl<R> LocalRanks<R> {
    fn new(parent: Option<Arc<Self>>, lineage: Lineage, teardown: Arc<Teardown<R>>) -> Self {
        Self {
            parent,
            children: Mutex::default(),
            lineage,
            teardown,
            in_process: OnceLock::new(),
            growth: Growth::default(),
            open: AtomicUsize::default(),
            configs: Mutex::default(),
            deterministic: AtomicBool::default(),
            devices: Mutex::default(),
            started: Mutex::new(Started { ranks: Vec::new(), cause: None }),
        }
    }

    /// Adds a rank to a part, before the rank starts. All ranks of the part that live here get the
    /// same node: NCCL has them meet before the first can be done with it.
    pub(crate) fn join_part(self: &Arc<Self>, child: Child) -> Arc<Self> {
        let part = {
            let mut children = self.children();
            children.retain(|(_, known)| known.strong_count() > 0);
            let at = children.partition_point(|(known, _)| *known < child);
            let known = children.get(at).filter(|(known, _)| *known == child).and_then(|(_, known)| known.upgrade());
            known.unwrap_or_else(|| {
                let shared = self.teardown.is_shared().then(|| Arc::clone(&self.teardown));
                let teardown = shared.unwrap_or_else(|| Arc::new(Teardown::new()));
                let part = Arc::new(Self::new(Some(Arc::clone(self)), self.lineage.with(child.clone()), teardown));
                part.inherit(self);
                children.insert(at, (child, Arc::downgrade(&part)));
                part
            })
        };
        part.expect(1);
        part
    }

    fn children(&self) -> MutexGuard<'_, Vec<(Child, Weak<Self>)>> {
        self.children.lock()
    }

    /// Visits this communicator, and then its parts.
    fn visit(&self, see: &mut impl FnMut(&mut Started<R>)) {
        see(&mut self.started());
        let children: Vec<_> = self.children().iter().filter_map(|(_, child)| child.upgrade()).collect();
        children.iter().for_each(|child| child.visit(see));
    }

    /// The first of the communicators that share resources with this one.
    fn first_sharer(&self) -> &Self {
        let shares = |parent: &&Arc<Self>| Arc::ptr_eq(&self.teardown, &parent.teardown);
        self.parent.as_ref().filter(shares).map_or(self, |parent| parent.first_sharer())
    }

    /// Whether it is `other`, or a part of it at any depth.
    pub(crate) fn is_within(&self, other: &Self) -> bool {
        ptr::eq(self, other) || self.parent.as_ref().is_some_and(|parent| parent.is_within(other))
    }

    /// Names the part in words that follow "the part". `None` for a communicator that was not made
    /// from another one.
    pub(crate) fn part(&self) -> Option<String> {
        self.lineage.part()
    }

    /// What the ranks compare, if all of them live in this process.
    pub(crate) fn in_process(&self) -> Option<&Arc<InProcess>> {
        self.in_process.get()
    }

    /// Has the ranks, all of which live in this process, compare what they are about to do. The
    /// first rank calls `make`.
    pub(crate) fn set_in_process(&self, make: impl FnOnce() -> InProcess) {
        self.in_process.get_or_init(|| Arc::new(make()));
    }
}

/// From the start of its ranks to their end.
impl<R> LocalRanks<R> {
    /// `ranks` more ranks are about to start. For each, [`admit`](Self::admit) or
    /// [`withdraw`](Self::withdraw) follows.
    fn expect(&self, ranks: usize) {
        self.open.fetch_add(ranks, Ordering::Relaxed);
        self.teardown.expect(ranks);
    }

    /// Adds ranks that have started, with their numbers. Returns why the caller must abort them:
    /// the others were aborted before, or the communicator that they were split off from.
    pub(crate) fn admit<'a>(&self, ranks: impl IntoIterator<Item = (usize, &'a Arc<R>)>) -> Option<Error>
    where
        R: 'a,
    {
        let mut started = self.started();
        started.ranks.retain(|(_, rank)| rank.strong_count() > 0);
        let before = started.ranks.len();
        started.ranks.extend(ranks.into_iter().map(|(number, rank)| (number, Arc::downgrade(rank))));
        let more = started.ranks.len() - before;
        started.ranks.sort_by_key(|(number, _)| *number);
        let cause = started.cause.clone();
        drop(started);
        self.teardown.started(more);
        // `mark_failed` writes the cause into a parent before it looks for children.
        cause.or_else(|| self.parent.as_ref()?.failure())
    }

    /// A rank has not started, and will not.
    pub(crate) fn withdraw(&self) {
        self.open.fetch_sub(1, Ordering::AcqRel);
        self.teardown.withdraw();
    }

    /// Why these ranks, or those that they were split off from, were aborted.
    fn failure(&self) -> Option<Error> {
        let cause = self.started().cause.clone();
        cause.or_else(|| self.parent.as_ref()?.failure())
    }

    /// Records that these ranks fail because of `cause`, with all that share their resources and
    /// all parts of either. Returns the ranks that the caller must abort. Ranks that start later
    /// learn the cause from [`admit`](Self::admit).
    pub(crate) fn mark_failed(&self, cause: &Error) -> Vec<Arc<R>> {
        let mut failed = Vec::new();
        self.first_sharer().visit(&mut |started| {
            started.cause.get_or_insert_with(|| cause.clone());
            failed.extend(started.alive());
        });
        failed
    }

    /// Records that these ranks are revoked because of `cause`, and returns them. Ranks that start
    /// later are aborted.
    #[cfg(nccl_ge_2_28_7)]
    pub(crate) fn mark_revoked(&self, cause: &Error) -> Vec<Arc<R>> {
        let mut started = self.started();
        started.cause.get_or_insert_with(|| cause.clone());
        started.alive().collect()
    }

    /// NCCL has freed `rank`.
    pub(crate) fn remove(&self, rank: &R) {
        self.open.fetch_sub(1, Ordering::AcqRel);
        self.teardown.remove(rank);
    }

    /// Whether NCCL has freed all of them.
    pub(crate) fn are_freed(&self) -> bool {
        self.open.load(Ordering::Acquire) == 0
    }

    /// Decides when these ranks are freed, with those that share their resources.
    pub(crate) fn teardown(&self) -> &Teardown<R> {
        &self.teardown
    }

    /// Never held across a call.
    fn started(&self) -> MutexGuard<'_, Started<R>> {
        self.started.lock()
    }

    /// The ranks that have started, in the order of their numbers.
    pub(crate) fn ranks(&self) -> Vec<Arc<R>> {
        self.started().alive().collect()
    }

    /// The rank of this number, if it has started and still exists.
    pub(crate) fn rank(&self, number: usize) -> Option<Arc<R>> {
        let started = self.started();
        started.ranks.iter().filter(|(known, _)| *known == number).find_map(|(_, rank)| rank.upgrade())
    }

    /// The ranks that have started, of this communicator and of those that share its resources.
    pub(crate) fn sharing_ranks(&self) -> Vec<Arc<R>> {
        let mut ranks = Vec::new();
        self.first_sharer().visit(&mut |started| ranks.extend(started.alive()));
        ranks
    }
}

/// What must outlive NCCL's use of the ranks.
impl<R> LocalRanks<R> {
    /// Keeps a configuration that ranks are started with.
    pub(crate) fn keep_config(&self, config: Config) -> Arc<Config> {
        let config = Arc::new(config);
        self.change_configs(|configs| configs.push(Arc::clone(&config)));
        config
    }

    /// Keeps a configuration that takes the place of those that were inherited.
    pub(crate) fn set_config(&self, config: &Arc<Config>) {
        self.change_configs(|configs| configs.insert(0, Arc::clone(config)));
    }

    fn change_configs(&self, change: impl FnOnce(&mut Vec<Arc<Config>>)) {
        let mut configs = self.configs();
        change(&mut configs);
        self.deterministic.store(configs.first().is_some_and(|config| config.is_deterministic()), Ordering::Relaxed);
    }

    /// Keeps the configurations of `parent`: NCCL copies their pointers into the child.
    fn inherit(&self, parent: &Self) {
        let theirs = parent.configs().clone();
        self.change_configs(|own| {
            for config in theirs {
                if !own.iter().any(|known| Arc::ptr_eq(known, &config)) {
                    own.push(config);
                }
            }
        });
    }

    /// Leaks the configurations: another library has the communicators now, and nobody here knows
    /// for how long NCCL needs them.
    pub(crate) fn leak_configs(&self) {
        self.configs().iter().for_each(|config| std::mem::forget(Arc::clone(config)));
        self.parent.iter().for_each(|parent| parent.leak_configs());
    }

    /// The configuration that the ranks were started with.
    pub(crate) fn config(&self) -> Config {
        self.configs().first().map(|config| Config::clone(config)).unwrap_or_default()
    }

    fn configs(&self) -> MutexGuard<'_, Vec<Arc<Config>>> {
        self.configs.lock()
    }

    /// Whether the configuration asks for results that are equal bit by bit.
    #[inline]
    pub(crate) fn is_deterministic(&self) -> bool {
        self.deterministic.load(Ordering::Relaxed)
    }

    /// Whether a configuration has NCCL share the resources with what is shrunk from these ranks.
    #[cfg(nccl_ge_2_27)]
    pub(crate) fn shrinks_share(&self) -> bool {
        self.configs().iter().any(|config| config.shrinks_share())
    }

    /// Adds the devices of ranks that have started.
    pub(crate) fn add_devices(&self, devices: impl Iterator<Item = Device>) {
        let mut all = self.devices.lock();
        devices.for_each(|device| {
            if !all.contains(&device) {
                all.push(device)
            }
        });
    }

    /// The devices on which NCCL frees memory when the last rank ends.
    pub(crate) fn devices(&self) -> Vec<Device> {
        self.devices.lock().clone()
    }
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
