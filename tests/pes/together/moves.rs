//! Broadcast, fcollect and alltoall.

use gpucomm::Element;
use gpucomm::nvshmem::{SymmetricBuffer, Team, TeamConfig, TeamPe};

use crate::support::random::{Bits, lengths, same};
use crate::support::{Here, each_type, with_context};

/// Where operands begin in their buffers.
const OFFSET: usize = 3;

/// Room for so many elements behind the offset; what is not given is poison.
fn buffer<'c, T: Bits>(here: &Here<'c>, room: usize, values: &[T]) -> SymmetricBuffer<'c, T> {
    let mut buffer = here.ctx.alloc_uninit::<T>(OFFSET + room).unwrap();
    buffer.fill(here.stream, T::poison()).unwrap();
    let mut whole = buffer.as_slice_mut();
    whole.slice_mut(OFFSET..OFFSET + values.len()).copy_from_slice(here.stream, values).unwrap();
    here.settle();
    buffer
}

/// The elements of the operand, beside which nothing was written.
fn read<T: Bits>(here: &Here<'_>, buffer: &SymmetricBuffer<'_, T>, len: usize) -> Vec<T> {
    let all = buffer.to_vec(here.stream).unwrap();
    let outside = all[..OFFSET].iter().chain(&all[OFFSET + len..]);
    assert!(outside.into_iter().all(|value| value.bits() == T::poison().bits()), "beside the operand");
    all[OFFSET..OFFSET + len].to_vec()
}

/// The members' values, by their places in the team.
fn values<T: Bits>(here: &Here<'_>, team: &Team<'_>, len: usize) -> Vec<Vec<T>> {
    let of = |pe| T::vector(&mut here.rng_of("moves", team.world_pe(TeamPe(pe)).unwrap().0), len);
    (0..team.n_pes()).map(of).collect()
}

fn moves<T: Bits + Element>(here: &Here<'_>, team: &mut Team<'_>, count: usize, host: bool) {
    let (n, me) = (team.n_pes(), team.pe().0);
    // All PEs allocate as much, whatever the size of their teams.
    let room = here.n_pes() * count;
    let (one, all_of_them) = (OFFSET..OFFSET + count, OFFSET..OFFSET + n * count);
    let what = |name| format!("{name} of {count} on {}", if host { "the host" } else { "a stream" });

    let all = values::<T>(here, team, count);
    let source = buffer(here, room, &all[me]);
    let root = TeamPe((count + 1) % n);
    let mut dest = buffer(here, room, &[]);
    let (to, from) = (dest.symmetric_mut(one.clone()), source.symmetric(one.clone()));
    match host {
        true => team.broadcast(to, from, root).unwrap(),
        false => team.on(here.stream).broadcast(to, from, root).unwrap(),
    }
    same(&what("broadcast"), &read(here, &dest, count), &all[root.0]);

    let mut place = buffer(here, room, &all[me]);
    match host {
        true => team.broadcast_in_place(place.symmetric_mut(one.clone()), root).unwrap(),
        false => team.on(here.stream).broadcast_in_place(place.symmetric_mut(one.clone()), root).unwrap(),
    }
    same(&what("broadcast in place"), &read(here, &place, count), &all[root.0]);

    let mut dest = buffer(here, room, &[]);
    let (to, from) = (dest.symmetric_mut(all_of_them.clone()), source.symmetric(one));
    match host {
        true => team.fcollect(to, from).unwrap(),
        false => team.on(here.stream).fcollect(to, from).unwrap(),
    }
    same(&what("fcollect"), &read(here, &dest, n * count), &all.concat());

    let all = values::<T>(here, team, n * count);
    let source = buffer(here, room, &all[me]);
    let mut dest = buffer(here, room, &[]);
    let (to, from) = (dest.symmetric_mut(all_of_them.clone()), source.symmetric(all_of_them));
    match host {
        true => team.alltoall(to, from).unwrap(),
        false => team.on(here.stream).alltoall(to, from).unwrap(),
    }
    let expected: Vec<Vec<T>> = all.iter().map(|other| other[me * count..(me + 1) * count].to_vec()).collect();
    same(&what("alltoall"), &read(here, &dest, n * count), &expected.concat());
    here.settle();
}

#[test]
fn on_a_stream() {
    with_context(|here| {
        if here.is_whole() {
            let mut world = here.ctx.world().unwrap();
            for count in lengths() {
                each_type!(moves(here, &mut world, count, false));
            }
        }
    });
}

#[test]
fn on_the_host() {
    with_context(|here| {
        if here.is_whole() {
            let mut world = here.ctx.world().unwrap();
            for count in lengths() {
                each_type!(moves(here, &mut world, count, true));
            }
        }
    });
}

/// Two teams at a time, of all PEs the even and the odd ones; memory is allocated by all.
#[test]
fn in_teams_of_some() {
    with_context(|here| {
        if !here.is_whole() {
            return;
        }
        let mut world = here.ctx.world().unwrap();
        let (even, odd) = (here.n_pes().div_ceil(2), here.n_pes() / 2);
        let mut team = world.split_strided(TeamPe(0), 2, even, &TeamConfig::default()).unwrap();
        if odd > 0 {
            let other = world.split_strided(TeamPe(1), 2, odd, &TeamConfig::default()).unwrap();
            team = team.or(other);
        }
        let mut team = team.unwrap();
        moves::<u16>(here, &mut team, 1021, false);
        moves::<f64>(here, &mut team, 77, true);
    });
}
