//! A message to a neighbour that does not expect it, in an exchange with both: the error names the ends that have no other.

use gpucomm::{Clique, Communicator, DeviceBuffer, Error, PinnedBuffer, Result, Stream, group};

use crate::support::process::{Role, spawn};
use crate::support::{Rig, assert_names, places, rank_counts, slower, watched};
use crate::waiting::{assert_waited, errors, limit};

const CHILD: &str = "neighbours::child";

/// What a child process does; nothing when the tests are run by hand with `--ignored`.
#[test]
#[ignore = "the body of child processes"]
fn child() {
    if let Some(role) = Role::of_this_process("halo") {
        halo(role).unwrap();
    }
}

/// Rank 1 takes rank 3 for its neighbour.
fn exchange(comm: &Communicator, stream: &Stream, wrong: bool) -> Result<DeviceBuffer<f32>> {
    let (rank, size) = (comm.rank(), comm.size());
    let right = if wrong && rank == 1 { (rank + 2) % size } else { (rank + 1) % size };
    let own = DeviceBuffer::from_slice(stream, &[rank as f32; 10])?;
    let mut got = DeviceBuffer::zeroed(stream, 10)?;
    group(|g| {
        g.send(comm, &own, right, stream)?;
        g.recv(comm, &mut got, (rank + size - 1) % size, stream)
    })?;
    Ok(got)
}

/// Which send has no receive, and which receive no send: at first, where the ranks meet, and on the device.
#[test]
fn a_wrong_neighbour() {
    watched(120.0, || {
        for ranks in rank_counts(&[3, 4]) {
            let wrong = 3 % ranks;
            let send = |place: &str| format!("send of 10 f32 to rank {wrong} (its operation {place}");
            let recv = |place: &str| format!("recv of 10 f32 from rank 1 (its operation {place}");
            let (no_recv, no_send) =
                (format!("for which rank {wrong} has issued no recv"), "for which rank 1 has issued no send");
            let errors_of = |rig, before| {
                let errors = errors(rig, |comm, stream| {
                    (0..before).try_for_each(|_| exchange(comm, stream, false).map(drop))?;
                    exchange(comm, stream, true)?;
                    stream.synchronize_timeout(limit())
                });
                [errors[1].clone(), errors[2].clone()]
            };
            // NCCL takes a message this small off the sender's hands, wherever it goes, if it may try.
            let sender = |error: Option<Error>| {
                assert!(error.is_some() || !cfg!(feature = "emulator"), "rank 1 waits for nobody");
                error
            };
            let [one, two] = errors_of(Rig::unconnected(ranks), 0);
            for error in sender(one).into_iter().chain([two.expect("a message that nobody sends")]) {
                assert_waited(&error);
                assert_names(&error, &[&send("1, message 1 from rank 1 to rank "), &no_recv]);
                assert_names(&error, &[&recv("2, message 1 from rank 1 to rank 2)"), no_send]);
            }
            // One message of each pair was to connect them.
            let [one, two] = errors_of(Rig::new(ranks), 3);
            if let Some(one) = sender(one) {
                assert_names(
                    &one,
                    &["Stream::synchronize_timeout", &format!("rank 1 waits for {}", send("")), &no_recv],
                );
                assert_names(
                    &one,
                    &[&format!("rank 2 has issued {}", recv("")), ", message 5 from rank 1 to rank 2)", no_send],
                );
            }
            let two = two.expect("a message that nobody sends");
            assert_names(&two, &["Stream::synchronize_timeout", &format!("rank 2 waits for {}", recv("")), no_send]);
            assert_names(
                &two,
                &[&format!("rank 1 has issued {}", send("")), ", message 2 from rank 1 to rank ", &no_recv],
            );
        }
    });
}

/// The same as a program has it, which reads what came from pinned memory.
fn halo(role: Role) -> Result<()> {
    let clique = Clique::init_all(&places()[..role.size])?;
    gpucomm::set_default_timeout(slower(1.5));
    clique.ranks().iter().for_each(|comm| comm.set_timeout(slower(1.5)));
    let end = std::sync::Barrier::new(role.size);
    let errors = clique.spmd(|comm| {
        let stream = Stream::new(comm.device())?;
        let mut pinned = PinnedBuffer::zeroed(10)?;
        exchange(comm, &stream, false)?.copy_to_pinned(&stream, &mut pinned)?;
        pinned.as_slice()?;
        // Whom rank 1 takes for its neighbour it has to know.
        let x = DeviceBuffer::from_slice(&stream, &[0u8; 1])?;
        let mut y = DeviceBuffer::<u8>::zeroed(&stream, comm.size())?;
        let counts = vec![1; comm.size()];
        comm.all_gather_v((&x, &mut y), &counts, &stream)?;
        let all = DeviceBuffer::<u8>::zeroed(&stream, comm.size())?;
        comm.all_to_all_v((&all, &mut y), &counts, &counts, &stream)?;
        exchange(comm, &stream, true)?.copy_to_pinned(&stream, &mut pinned)?;
        // What comes from no message waits as well, behind it.
        let mut other = PinnedBuffer::<u8>::zeroed(1)?;
        x.copy_to_pinned(&stream, &mut other)?;
        let errors = (pinned.as_slice().err(), other.as_slice().err());
        // Who leaves is told of at once.
        end.wait();
        Ok(errors)
    })?;
    let error = |error: &Option<Error>| error.clone().expect("a message without another end");
    for (error, what) in [(error(&errors[2].0), "copies to 10 elements"), (error(&errors[2].1), "copies to 1 elements")]
    {
        assert_names(
            &error,
            &["PinnedBuffer::as_slice", what, "; rank 2 waits for recv of 10 f32 from rank 1 (its op"],
        );
        assert_names(
            &error,
            &["rank 1 has issued send of 10 f32 to rank 3 (its op", "for which rank 3 has issued no recv"],
        );
    }
    drop(clique);
    Ok(())
}

#[test]
fn a_halo_exchange_with_a_wrong_neighbour() {
    watched(90.0, || {
        for ranks in rank_counts(&[4]) {
            let id = gpucomm::UniqueId::new().unwrap();
            spawn(CHILD, "halo", (0, ranks), &id, &[]).finish(slower(60.0)).assert_success();
        }
    });
}
