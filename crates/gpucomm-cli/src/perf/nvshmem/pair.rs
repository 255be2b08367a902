//! What PE 0 does to PE 1: puts, gets, and puts with a signal.

use gpucomm::nvshmem::{Pe, SignalOp, SymmetricBuffer, SymmetricSignals};

use super::kind::Operation;
use super::member::{Member, draw};
use super::row::{Found, Row, Times};
use crate::failure::Result;
use crate::options::nvshmem::Issue;
use crate::size::{Step, sweep};

/// Bytes on each side that nothing may write.
const GUARD: usize = 64;
const POISON: u8 = 0xa5;
/// So many transfers are under way at a time, at most.
const AT_ONCE: usize = 64;
/// What is got side by side needs a place each: bytes for all of them.
const LANES: usize = 16 << 20;

const OTHER: Pe = Pe(1);

struct Pair<'a> {
    member: &'a Member<'a>,
    source: SymmetricBuffer<'a, u8>,
    dest: SymmetricBuffer<'a, u8>,
    signals: SymmetricSignals<'a>,
}

/// Measures and checks each size.
pub fn rows(member: &Member<'_>, add: &mut dyn FnMut(Row) -> Result<()>) -> Result<()> {
    let options = member.options;
    let lanes =
        if options.operation == Operation::Get { LANES.min(AT_ONCE.min(options.iterations) * options.max) } else { 0 };
    let mut pair = Pair {
        member,
        source: member.ctx.alloc(options.max)?,
        dest: member.ctx.alloc(options.max.max(lanes) + 2 * GUARD)?,
        signals: member.ctx.alloc_signals(1)?,
    };
    for (salt, size) in sweep(options.min, options.max, Step::Factor(options.factor)).enumerate() {
        // PE 1 has nothing to do meanwhile.
        let (seconds, each) = if member.pe() == 0 { (pair.latency(size)?, pair.burst(size)?) } else { (0.0, 0.0) };
        member.meet()?;
        let mut row = member.row(options.operation, size, size, Times { mean: seconds, least_and_most: None });
        (row.algbw, row.busbw) = options.operation.bandwidth(size, 2, each);
        for check in 0..options.checks {
            let found = pair.check(size, (salt * options.checks + check) as u64)?;
            *row.found.get_or_insert_default() += member.share(found)?;
        }
        add(row)?;
    }
    Ok(())
}

impl Pair<'_> {
    /// One transfer, which is waited for before the next one begins.
    fn once(&mut self, size: usize) -> gpucomm::Result<()> {
        let Member { ctx, stream, options, .. } = self.member;
        let place = GUARD..GUARD + size;
        let source = self.source.symmetric(..size);
        match (options.operation, options.issue) {
            (Operation::Get, issue) => {
                let mut whole = self.dest.as_slice_mut();
                let dest = whole.slice_mut(place);
                match issue {
                    Issue::Host => ctx.get(dest, source, OTHER),
                    Issue::OnStream => ctx.on(stream).get(dest, source, OTHER),
                }
            }
            (Operation::PutSignal, issue) => {
                let (dest, signal, op) = (self.dest.symmetric(place), self.signals.at(0), SignalOp::Add(1));
                match issue {
                    Issue::Host => ctx.put_signal(dest, source, signal, op, OTHER),
                    Issue::OnStream => ctx.on(stream).put_signal(dest, source, signal, op, OTHER),
                }
            }
            (_, Issue::Host) => ctx.put(self.dest.symmetric(place), source, OTHER),
            (_, Issue::OnStream) => ctx.on(stream).put(self.dest.symmetric(place), source, OTHER),
        }
    }

    /// So many transfers side by side, and a wait for all of them: how many that were.
    fn several(&mut self, size: usize, count: usize) -> gpucomm::Result<usize> {
        let Member { ctx, stream, options, .. } = self.member;
        let source = self.source.symmetric(..size);
        let on_host = options.issue == Issue::Host;
        if options.operation == Operation::Get {
            let bytes = self.dest.len() - 2 * GUARD;
            let mut whole = self.dest.as_slice_mut();
            let mut lanes = whole.slice_mut(GUARD..GUARD + bytes);
            let count = count.min(bytes / size.max(1));
            let parts = lanes.chunks_mut(size.max(1)).take(count);
            if on_host {
                ctx.nonblocking(|scope| parts.into_iter().try_for_each(|part| scope.get(part, source, OTHER)))?;
            } else {
                ctx.on(stream)
                    .nonblocking(|scope| parts.into_iter().try_for_each(|part| scope.get(part, source, OTHER)))?;
            }
            return Ok(count);
        }
        let dest = self.dest.symmetric(GUARD..GUARD + size);
        let signal = self.signals.at(0);
        macro_rules! puts {
            ($scope:ident) => {
                (0..count).try_for_each(|_| match options.operation {
                    Operation::PutSignal => $scope.put_signal(dest, source, signal, SignalOp::Add(1), OTHER),
                    _ => $scope.put(dest, source, OTHER),
                })
            };
        }
        match options.issue {
            Issue::Host => ctx.nonblocking(|scope| puts!(scope))?,
            Issue::OnStream => ctx.on(stream).nonblocking(|scope| puts!(scope))?,
        }
        Ok(count)
    }

    /// Seconds of one transfer by itself.
    fn latency(&mut self, size: usize) -> Result<f64> {
        let member = self.member;
        let times = member.options.iterations;
        (0..member.options.warmup).try_for_each(|_| self.once(size))?;
        let seconds = member.time(|| {
            (0..times).try_for_each(|_| self.once(size))?;
            if member.options.issue == Issue::Host { member.ctx.quiet() } else { Ok(()) }
        })?;
        Ok(seconds / times as f64)
    }

    /// Seconds of one transfer among others.
    fn burst(&mut self, size: usize) -> Result<f64> {
        let member = self.member;
        self.all(size, member.options.warmup)?;
        let times = member.options.iterations;
        let seconds = member.time(|| self.all(size, times))?;
        Ok(seconds / times as f64)
    }

    fn all(&mut self, size: usize, times: usize) -> gpucomm::Result<()> {
        let mut left = times;
        while left > 0 {
            left -= self.several(size, left.min(AT_ONCE))?.max(1);
        }
        Ok(())
    }

    /// What one transfer leaves, and what lies beside.
    fn check(&mut self, size: usize, salt: u64) -> Result<Found> {
        let member = self.member;
        let (pe, stream) = (member.pe(), &member.stream);
        let from = usize::from(member.options.operation == Operation::Get);
        let values: Vec<u8> = (0..size).map(|at| draw(salt, from, at) as u8).collect();
        if pe == from {
            self.source.as_slice_mut().slice_mut(..size).copy_from_slice(stream, &values)?;
        }
        self.dest.fill(stream, POISON)?;
        self.signals.reset(stream)?;
        stream.synchronize()?;
        member.meet()?;
        if pe == 0 {
            self.once(size)?;
            match member.options.issue {
                Issue::Host => member.ctx.quiet()?,
                Issue::OnStream => {
                    member.ctx.on(stream).quiet()?;
                    stream.synchronize()?;
                }
            }
        }
        member.meet()?;
        if pe == from {
            return Ok(Found::default());
        }
        let mut found = Found::in_memory(&self.dest.to_vec(stream)?, GUARD, &values, POISON);
        if member.options.operation == Operation::PutSignal && member.ctx.signal_fetch(self.signals.at(0))? != 1 {
            found.wrong += 1;
        }
        Ok(found)
    }
}
