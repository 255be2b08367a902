//! Finds the operations that wrote what the calls of a group read, before any of their streams is ordered.

use smallvec::SmallVec;

use crate::cuda::Origins;
use crate::cuda::carry;
use crate::nccl::calls::call::Call;
use crate::nccl::rank::works::Works;
use crate::nccl::validate::pair::End;

/// The origins for each call that reads the results of other operations. Usually empty.
pub(crate) struct Reads {
    /// By the places of the calls, which grow.
    some: SmallVec<[(usize, Origins); 1]>,
    /// How many of them were asked for.
    told: usize,
}

impl Reads {
    /// Of the calls of a group; `works` are those of a communicator, by its id.
    #[inline]
    pub(crate) fn of<'w>(calls: &[Call<'_>], works: impl Fn(u64) -> &'w Works) -> Self {
        // A message of a rank to itself brings what its other end reads, perhaps on another stream.
        let has_one_stream = |call: &Call<'_>| !call.is_to_itself() || call.stream == calls[0].stream;
        let reads_own = |call: &Call<'_>| call.reads_own(works(call.comm.id)) && has_one_stream(call);
        if calls.iter().all(reads_own) {
            return Self { some: SmallVec::new(), told: 0 };
        }
        Self::gather(calls, works)
    }

    #[cold]
    fn gather<'w>(calls: &[Call<'_>], works: impl Fn(u64) -> &'w Works) -> Self {
        let mut some = SmallVec::new();
        let mut sends = OwnSends::default();
        for (at, call) in calls.iter().enumerate().filter(|(_, call)| call.count > 0) {
            let works = works(call.comm.id);
            let origins = if is_own(call, End::Receiver) {
                let sent = sends.next(calls, call.comm.id).and_then(|send| send.send.as_ref());
                carry::reads(works.of(call.stream), call.stream.history(), [sent.map(|region| region.alloc.lineage())])
            } else {
                call.origins(works)
            };
            some.extend(origins.map(|origins| (at, origins)));
        }
        Self { some, told: 0 }
    }

    /// The calls may not come after those who wrote other bytes of the memory.
    #[cold]
    pub(crate) fn follow_nothing(&mut self) {
        self.some.iter_mut().for_each(|(_, origins)| origins.follow_nothing());
    }

    /// Of the call at `at`; to be asked from the first one to the last.
    pub(crate) fn next(&mut self, at: usize) -> Option<&Origins> {
        let (_, origins) = self.some.get(self.told).filter(|(place, _)| *place == at)?;
        self.told += 1;
        Some(origins)
    }
}

/// Whether it is this end of a message of a rank to itself.
#[inline]
fn is_own(call: &Call<'_>, wanted: End) -> bool {
    matches!(call.kind.message(), Some((end, peer)) if end == wanted && peer == call.comm.rank)
}

/// The sends of ranks to themselves, one after the other. NCCL gives the first one to the first receive from itself, and so
/// on.
#[derive(Default)]
struct OwnSends {
    /// Of each communicator, behind which of the calls the next one is to be looked for.
    from: SmallVec<[(u64, usize); 1]>,
}

impl OwnSends {
    fn next<'c, 'a>(&mut self, calls: &'c [Call<'a>], communicator: u64) -> Option<&'c Call<'a>> {
        let known = self.from.iter().position(|(id, _)| *id == communicator).unwrap_or_else(|| {
            self.from.push((communicator, 0));
            self.from.len() - 1
        });
        let from = &mut self.from[known].1;
        let rest = calls.iter().enumerate().skip(*from);
        let mut own =
            rest.filter(|(_, call)| call.comm.id == communicator && call.count > 0 && is_own(call, End::Sender));
        let (at, send) = own.next()?;
        *from = at + 1;
        Some(send)
    }
}
