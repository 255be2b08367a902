//! What all PEs do together: barriers and collectives.

use gpucomm::ReduceOp;
use gpucomm::nvshmem::{SymmetricBuffer, Team, TeamPe, TeamReduce};

use super::kind::{Operation, Shape};
use super::member::{Member, draw};
use super::row::{Found, Row, Times};
use crate::failure::Result;
use crate::options::nvshmem::Issue;
use crate::perf::number::Number;
use crate::size::{Step, sweep};

/// Elements on each side of a result that nothing may write.
const GUARD: usize = 16;

struct Collective<'a, T: Number> {
    member: &'a Member<'a>,
    world: Team<'a>,
    source: SymmetricBuffer<'a, T>,
    dest: SymmetricBuffer<'a, T>,
}

/// Measures and checks each size; a barrier has none.
pub fn rows<T: Number + TeamReduce>(member: &Member<'_>, add: &mut dyn FnMut(Row) -> Result<()>) -> Result<()> {
    let options = member.options;
    let (operation, pes) = (options.operation, member.ctx.n_pes());
    let shape = |bytes| operation.shape(bytes, size_of::<T>(), pes);
    let largest = shape(options.max);
    let mut all = Collective::<T> {
        member,
        world: member.ctx.world()?,
        source: member.ctx.alloc(largest.source)?,
        dest: member.ctx.alloc(largest.dest + 2 * GUARD)?,
    };
    let sizes: Vec<usize> = match operation {
        Operation::Barrier => vec![0],
        _ => sweep(options.min, options.max, Step::Factor(options.factor)).collect(),
    };
    for (salt, size) in sizes.into_iter().enumerate() {
        let shape = shape(size);
        // Less than an element for each PE.
        if shape.bytes == 0 && size > 0 {
            continue;
        }
        let times = all.measure(shape)?;
        let mut row = member.row(operation, shape.bytes, shape.bytes / size_of::<T>(), times);
        for check in 0..options.checks {
            let found = all.check(shape, (salt * options.checks + check) as u64)?;
            *row.found.get_or_insert_default() += member.share(found)?;
        }
        add(row)?;
    }
    Ok(())
}

impl<T: Number + TeamReduce> Collective<'_, T> {
    fn call(&mut self, shape: Shape) -> gpucomm::Result<()> {
        let Self { member, world, source, dest } = self;
        let (stream, options) = (&member.stream, member.options);
        let source = source.symmetric(..shape.source);
        let dest = dest.symmetric_mut(GUARD..GUARD + shape.dest);
        let host = options.issue == Issue::Host;
        match (options.operation, host) {
            (Operation::Reduce, true) => world.reduce(dest, source, options.redop),
            (Operation::Reduce, false) => world.on(stream).reduce(dest, source, options.redop),
            (Operation::ReduceScatter, true) => world.reduce_scatter(dest, source, options.redop),
            (Operation::ReduceScatter, false) => world.on(stream).reduce_scatter(dest, source, options.redop),
            (Operation::Broadcast, true) => world.broadcast(dest, source, TeamPe(0)),
            (Operation::Broadcast, false) => world.on(stream).broadcast(dest, source, TeamPe(0)),
            (Operation::Fcollect, true) => world.fcollect(dest, source),
            (Operation::Fcollect, false) => world.on(stream).fcollect(dest, source),
            (Operation::AllToAll, true) => world.alltoall(dest, source),
            (Operation::AllToAll, false) => world.on(stream).alltoall(dest, source),
            (_, true) => world.barrier(),
            (_, false) => world.on(stream).barrier(),
        }
    }

    fn measure(&mut self, shape: Shape) -> Result<Times> {
        let member = self.member;
        let n = member.options.iterations;
        (0..member.options.warmup).try_for_each(|_| self.call(shape))?;
        member.stream.synchronize()?;
        member.meet()?;
        if member.options.operation == Operation::Barrier {
            // One behind the other: each is as long as the slowest PE makes it.
            let seconds = member.time(|| (0..n).try_for_each(|_| self.call(shape)))?;
            return Ok(Times { mean: seconds / n as f64, least_and_most: None });
        }
        let each = (0..n).map(|_| member.time(|| self.call(shape))).collect::<Result<Vec<f64>>>()?;
        let least = each.iter().copied().fold(f64::INFINITY, f64::min);
        let most = each.iter().copied().fold(0.0, f64::max);
        Ok(Times { mean: each.iter().sum::<f64>() / n as f64, least_and_most: Some((least, most)) })
    }

    /// What `pe` gives at `at`: small numbers, so that every result is exact.
    fn value(&self, salt: u64, pe: usize, at: usize) -> i64 {
        let drawn = draw(salt, pe, at);
        if self.member.options.redop == ReduceOp::Prod { 1 + (drawn % 2) as i64 } else { (drawn % 8) as i64 }
    }

    /// What this PE must have at `at`.
    fn expected(&self, salt: u64, shape: Shape, at: usize) -> i64 {
        let (me, pes) = (self.member.pe(), self.member.ctx.n_pes());
        let reduced = |at: usize| {
            let values = (0..pes).map(|pe| self.value(salt, pe, at));
            match self.member.options.redop {
                ReduceOp::Prod => values.fold(1, i64::wrapping_mul),
                ReduceOp::Min => values.fold(i64::MAX, i64::min),
                ReduceOp::Max => values.fold(i64::MIN, i64::max),
                _ => values.sum(),
            }
        };
        match self.member.options.operation {
            Operation::Reduce => reduced(at),
            Operation::ReduceScatter => reduced(me * shape.dest + at),
            Operation::Fcollect => self.value(salt, at / shape.source, at % shape.source),
            Operation::AllToAll => {
                let part = shape.dest / pes;
                self.value(salt, at / part, me * part + at % part)
            }
            _ => self.value(salt, 0, at),
        }
    }

    fn check(&mut self, shape: Shape, salt: u64) -> Result<Found> {
        let member = self.member;
        let stream = &member.stream;
        let given: Vec<T> = (0..shape.source).map(|at| T::of(self.value(salt, member.pe(), at))).collect();
        self.source.as_slice_mut().slice_mut(..shape.source).copy_from_slice(stream, &given)?;
        self.dest.fill(stream, T::POISON)?;
        stream.synchronize()?;
        member.meet()?;
        self.call(shape)?;
        stream.synchronize()?;
        // Some write to others, who may still be at it.
        member.meet()?;
        let want: Vec<T> = (0..shape.dest).map(|at| T::of(self.expected(salt, shape, at))).collect();
        Ok(Found::in_memory(&self.dest.to_vec(stream)?, GUARD, &want, T::POISON))
    }
}
