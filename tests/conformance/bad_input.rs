//! Arguments that cannot be right: refused before anything is submitted, by name, and nothing else is disturbed.

use gpucomm::nccl::Buffers;
use gpucomm::{
    Clique, Communicator, Device, DeviceBuffer, Error, InPlace, Layout, RecvOnly, ReduceOp, SendOnly, Stream, UniqueId,
    group,
};

use crate::support::{Rig, assert_argument, assert_names, rank_counts, skip, still_works, watched};

/// Runs `body` on the ranks of a clique of two (one where there is one device), then checks that the communicators and a
/// new clique still work.
fn refused(body: impl Fn(&Communicator, &Stream) -> gpucomm::Result<()> + Sync + Send + 'static) {
    watched(60.0, move || {
        let ranks = if crate::support::harness::devices() >= 2 { 2 } else { 1 };
        let rig = Rig::new(ranks);
        rig.run(&body);
        let sums = rig.run(|comm, stream| {
            let mut x = DeviceBuffer::from_slice(stream, &[1i32; 3])?;
            comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
            x.to_vec(stream)
        });
        assert_eq!(sums, vec![vec![ranks as i32; 3]; ranks], "the communicator was harmed");
        rig.close();
        still_works(ranks);
    });
}

fn zeros(stream: &Stream, len: usize) -> gpucomm::Result<DeviceBuffer<f32>> {
    DeviceBuffer::zeroed(stream, len)
}

#[test]
fn buffers_too_short() {
    refused(|comm, stream| {
        let n = comm.size();
        let send = zeros(stream, 4 * n)?;
        let mut short = zeros(stream, 4 * n - 1)?;
        let big = (4 * n).to_string();
        let (big, less) = (big.as_str(), (4 * n - 1).to_string());
        assert_argument(comm.all_reduce((&send, &mut short), ReduceOp::Sum, stream), "all_reduce", big, &less);
        assert_argument(comm.reduce((&send, &mut short), ReduceOp::Sum, comm.rank(), stream), "reduce", big, &less);
        assert_argument(comm.broadcast((&send, &mut short), comm.rank(), stream), "broadcast", &less, big);
        let part = zeros(stream, 4)?;
        assert_argument(comm.all_gather((&part, &mut short), stream), "all_gather", big, &less);
        assert_argument(comm.gather((&part, &mut short), comm.rank(), stream), "gather", big, &less);
        assert_argument(comm.all_to_all((&send, &mut short), stream), "all_to_all", big, &less);
        let mut small = zeros(stream, 3)?;
        assert_argument(comm.reduce_scatter((&send, &mut small), ReduceOp::Sum, stream), "reduce_scatter", "4", "3");
        let expected = (3 * n).to_string();
        assert_argument(comm.scatter((&send, &mut small), comm.rank(), stream), "scatter", &expected, big);
        Ok(())
    });
}

#[test]
fn reductions_that_nccl_does_not_have() {
    refused(|comm, stream| {
        let n = comm.size();
        let counts = &vec![1; n];
        for op in [ReduceOp::And, ReduceOp::Or, ReduceOp::Xor] {
            let bitwise = |result: gpucomm::Result<()>, operation| {
                let has = "Sum, Prod, Min, Max or Avg, which NCCL has";
                assert_argument(result, operation, has, &format!("{op:?}"));
            };
            let x = &mut DeviceBuffer::<u32>::zeroed(stream, n)?;
            bitwise(comm.all_reduce(InPlace(&mut *x), op, stream), "all_reduce");
            bitwise(comm.reduce(InPlace(&mut *x), op, 0, stream), "reduce");
            bitwise(comm.reduce_scatter(InPlace(&mut *x), op, stream), "reduce_scatter");
            bitwise(comm.reduce_scatter_v(InPlace(&mut *x), counts, op, stream), "reduce_scatter_v");
            bitwise(comm.all_reduce_many([InPlace(&mut *x)], op, stream), "all_reduce_many");
            bitwise(comm.all_reduce_scalar(1u32, op, stream).map(drop), "all_reduce_scalar");
            bitwise(comm.all_reduce_scalars([1u32; 3], op, stream).map(drop), "all_reduce_scalars");
            bitwise(group(|g| g.all_reduce(comm, InPlace(&mut *x), op, stream)), "all_reduce");
            bitwise(group(|g| g.reduce(comm, InPlace(&mut *x), op, 0, stream)), "reduce");
            bitwise(group(|g| g.reduce_scatter(comm, InPlace(&mut *x), op, stream)), "reduce_scatter");
            bitwise(group(|g| g.reduce_scatter_v(comm, InPlace(&mut *x), counts, op, stream)), "reduce_scatter_v");
            bitwise(group(|g| g.all_reduce_many(comm, [InPlace(&mut *x)], op, stream)), "all_reduce_many");
        }
        Ok(())
    });
}

#[test]
fn lengths_that_do_not_divide() {
    refused(|comm, stream| {
        if comm.size() == 1 {
            return Ok(());
        }
        let odd = zeros(stream, 2 * comm.size() + 1)?;
        let mut out = zeros(stream, 100)?;
        let (n, len) = (comm.size().to_string(), odd.len().to_string());
        assert_argument(comm.reduce_scatter((&odd, &mut out), ReduceOp::Sum, stream), "reduce_scatter", &n, &len);
        assert_argument(comm.all_to_all((&odd, &mut out), stream), "all_to_all", &n, &len);
        assert_argument(comm.scatter((&odd, &mut out), comm.rank(), stream), "scatter", &n, &len);
        let mut odd = odd;
        assert_argument(comm.all_gather(InPlace(&mut odd), stream), "all_gather", &n, &len);
        assert_argument(comm.gather(InPlace(&mut odd), comm.rank(), stream), "gather", &n, &len);
        assert_argument(comm.reduce_scatter(InPlace(&mut odd), ReduceOp::Sum, stream), "reduce_scatter", &n, &len);
        assert_argument(comm.scatter(InPlace(&mut odd), comm.rank(), stream), "scatter", &n, &len);
        Ok(())
    });
}

#[test]
fn root_or_peer_out_of_range() {
    refused(|comm, stream| {
        let x = zeros(stream, 4)?;
        let mut y = zeros(stream, 4 * comm.size())?;
        for bad in [comm.size(), comm.size() + 5, usize::MAX, 1 << 32] {
            let got = bad.to_string();
            let got = got.as_str();
            assert_argument(comm.reduce((&x, &mut y), ReduceOp::Sum, bad, stream), "reduce", "", got);
            assert_argument(comm.broadcast((&x, &mut y), bad, stream), "broadcast", "", got);
            assert_argument(comm.gather((&x, &mut y), bad, stream), "gather", "", got);
            assert_argument(comm.scatter(RecvOnly(&mut y), bad, stream), "scatter", "", got);
            assert_argument(comm.send(&x, bad, stream), "send", "", got);
            assert_argument(comm.recv(&mut y, bad, stream), "recv", "", got);
            assert_argument(group(|g| g.send(comm, &x, bad, stream)), "send", "", got);
        }
        Ok(())
    });
}

/// A scatter of several messages, whose own part does not fit, leaves none of them in its group.
#[test]
fn nothing_of_what_was_refused_stays_in_a_group() {
    refused(|comm, stream| {
        let (x, mut short, mut sum) = (zeros(stream, 2 * comm.size())?, zeros(stream, 1)?, zeros(stream, 3)?);
        let counts = vec![2; comm.size()];
        group(|g| {
            if comm.rank() == 0 {
                let refused = g.scatter_v(comm, (&x, &mut short), &counts, 0, stream);
                assert_argument(refused, "scatter_v", "at least 2 elements", "1 elements");
            }
            g.all_reduce(comm, InPlace(&mut sum), ReduceOp::Sum, stream)
        })?;
        stream.synchronize()
    });
}

/// The root must give both sides or one buffer in place, the others their own side.
#[test]
fn the_wrong_side_for_the_root() {
    refused(|comm, stream| {
        let x = zeros(stream, 4)?;
        let mut y = zeros(stream, 4)?;
        let me = comm.rank();
        let send = |result: gpucomm::Result<()>, operation| {
            let error = result.expect_err("the root gave only one side");
            assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
            assert_names(&error, &[operation]);
        };
        send(comm.reduce(SendOnly(&x), ReduceOp::Sum, me, stream), "reduce");
        send(comm.gather(SendOnly(&x), me, stream), "gather");
        send(comm.broadcast(RecvOnly(&mut y), me, stream), "broadcast");
        send(comm.scatter(RecvOnly(&mut y), me, stream), "scatter");
        Ok(())
    });
}

/// A form that the compiler could not refuse, because it is a value.
#[test]
fn forms_that_an_operation_does_not_take() {
    fn send_only(x: &DeviceBuffer<f32>) -> Buffers<'_, f32> {
        Buffers::SendOnly(x.as_slice())
    }
    fn recv_only(y: &mut DeviceBuffer<f32>) -> Buffers<'_, f32> {
        Buffers::RecvOnly(y.as_slice_mut())
    }

    refused(|comm, stream| {
        let (n, sum) = (comm.size(), ReduceOp::Sum);
        let root = (comm.rank() + 1) % n;
        let x = zeros(stream, 4 * n)?;
        let mut y = zeros(stream, 4 * n)?;
        let counts = &vec![4; n];
        let both = "(send, recv) or InPlace(buffer)";
        for (sends, got) in [(true, "SendOnly(send)"), (false, "RecvOnly(recv)")] {
            macro_rules! one_sided {
                () => {
                    if sends { send_only(&x) } else { recv_only(&mut y) }
                };
            }
            assert_argument(comm.all_reduce(one_sided!(), sum, stream), "all_reduce", both, got);
            assert_argument(comm.all_gather(one_sided!(), stream), "all_gather", both, got);
            assert_argument(comm.reduce_scatter(one_sided!(), sum, stream), "reduce_scatter", both, got);
            assert_argument(comm.all_gather_v(one_sided!(), counts, stream), "all_gather_v", both, got);
            assert_argument(comm.reduce_scatter_v(one_sided!(), counts, sum, stream), "reduce_scatter_v", both, got);
            assert_argument(comm.all_to_all(one_sided!(), stream), "all_to_all", "(send, recv)", got);
            assert_argument(
                comm.all_to_all_v(one_sided!(), counts, counts, stream),
                "all_to_all_v",
                "(send, recv)",
                got,
            );
            assert_argument(comm.all_reduce_many([one_sided!()], sum, stream), "all_reduce_many", both, "of buffer 0");
            let grouped = group(|g| g.all_reduce(comm, one_sided!(), sum, stream));
            assert_argument(grouped, "all_reduce", both, got);
        }
        let (to, got) = ("(send, recv), InPlace(buffer) or SendOnly(send)", "RecvOnly(recv)");
        assert_argument(comm.reduce(recv_only(&mut y), sum, root, stream), "reduce", to, got);
        assert_argument(comm.gather(recv_only(&mut y), root, stream), "gather", to, got);
        assert_argument(comm.gather_v(recv_only(&mut y), counts, root, stream), "gather_v", to, got);
        let (from, got) = ("(send, recv), InPlace(buffer) or RecvOnly(recv)", "SendOnly(send)");
        assert_argument(comm.broadcast(send_only(&x), root, stream), "broadcast", from, got);
        assert_argument(comm.scatter(send_only(&x), root, stream), "scatter", from, got);
        assert_argument(comm.scatter_v(send_only(&x), counts, root, stream), "scatter_v", from, got);
        for (operation, refused) in [
            ("all_to_all", comm.all_to_all(Buffers::InPlace(y.as_slice_mut()), stream)),
            ("all_to_all_v", comm.all_to_all_v(Buffers::InPlace(y.as_slice_mut()), counts, counts, stream)),
        ] {
            assert_argument(refused, operation, "(send, recv)", "InPlace(buffer)");
        }
        Ok(())
    });
}

/// The same forms as values, and as forms, give the same.
#[test]
fn forms_as_values() {
    refused(|comm, stream| {
        let (n, rank) = (comm.size(), comm.rank());
        let own = DeviceBuffer::from_slice(stream, &[rank as i32 + 1])?;
        let mut sum = DeviceBuffer::<i32>::zeroed(stream, 1)?;
        let io = match rank {
            0 => Buffers::OutOfPlace { send: own.as_slice(), recv: sum.as_slice_mut() },
            _ => Buffers::SendOnly(own.as_slice()),
        };
        comm.reduce(io, ReduceOp::Sum, 0, stream)?;
        let of_all = (n * (n + 1) / 2) as i32;
        assert_eq!(sum.to_vec(stream)?, [if rank == 0 { of_all } else { 0 }]);
        let io = match rank {
            0 => Buffers::InPlace(sum.as_slice_mut()),
            _ => Buffers::RecvOnly(sum.as_slice_mut()),
        };
        comm.broadcast(io, 0, stream)?;
        assert_eq!(sum.to_vec(stream)?, [of_all]);
        let (all, mut turned) =
            (DeviceBuffer::from_slice(stream, &vec![rank as i32; n])?, DeviceBuffer::zeroed(stream, n)?);
        comm.all_to_all(Buffers::OutOfPlace { send: all.as_slice(), recv: turned.as_slice_mut() }, stream)?;
        assert_eq!(turned.to_vec(stream)?, (0..n as i32).collect::<Vec<_>>());
        Ok(())
    });
}

#[test]
fn buffers_and_streams_of_another_device() {
    refused(|comm, stream| {
        if comm.size() == 1 {
            skip("buffers of another device: this machine has one");
            return Ok(());
        }
        let (here, there) = (comm.device(), Device::new(1 - comm.rank())?);
        let other = Stream::new(there)?;
        let mut far = zeros(&other, 4)?;
        let mut near = zeros(stream, 4)?;
        let (near_name, far_name) = (here.ordinal().to_string(), there.ordinal().to_string());
        let sum = ReduceOp::Sum;
        assert_argument(comm.all_reduce(InPlace(&mut far), sum, stream), "all_reduce", &near_name, &far_name);
        assert_argument(comm.all_reduce((&far, &mut near), sum, stream), "all_reduce", &near_name, &far_name);
        assert_argument(comm.all_reduce((&near, &mut far), sum, stream), "all_reduce", &near_name, &far_name);
        assert_argument(comm.all_reduce(InPlace(&mut near), sum, &other), "all_reduce", &near_name, &far_name);
        assert_argument(comm.send(&far, 0, stream), "send", &near_name, &far_name);
        assert_argument(comm.recv(&mut far, 0, stream), "recv", &near_name, &far_name);
        assert!(comm.alloc::<f32>(&other, 10).is_err(), "a buffer made on a stream of another device");
        assert_argument(comm.alloc_local::<f32>(&other, 10).map(drop), "alloc_local", &near_name, &far_name);
        Ok(())
    });
}

#[test]
fn layouts_that_do_not_fit() {
    refused(|comm, stream| {
        let n = comm.size();
        let x = zeros(stream, 10 * n)?;
        let mut y = zeros(stream, 10 * n)?;
        let tens = vec![10; n];
        let packed = Layout { counts: &tens, offsets: None };

        // A count too few or too many.
        let more = vec![1; n + 1];
        let (want, got) = (n.to_string(), (n + 1).to_string());
        let wrong = Layout { counts: &more, offsets: None };
        assert_argument(comm.all_to_all_v((&x, &mut y), wrong, packed, stream), "all_to_all_v", &want, &got);
        assert_argument(comm.all_to_all_v((&x, &mut y), packed, wrong, stream), "all_to_all_v", &want, &got);
        assert_argument(comm.all_gather_v((x.slice(0..10), &mut y), wrong, stream), "all_gather_v", &want, &got);
        let wrong = Layout { counts: &tens, offsets: Some(&more) };
        assert_argument(comm.all_to_all_v((&x, &mut y), wrong, packed, stream), "all_to_all_v", &want, &got);

        // Parts beyond the end.
        let beyond = vec![11; n];
        let wrong = Layout { counts: &beyond, offsets: None };
        let (need, have) = ((11 * n).to_string(), (10 * n).to_string());
        assert_argument(comm.all_to_all_v((&x, &mut y), wrong, packed, stream), "all_to_all_v", &need, &have);
        assert_argument(comm.all_gather_v((&x.slice(0..10), &mut y), wrong, stream), "all_gather_v", "", "");
        assert_argument(comm.scatter_v((&x, &mut y), wrong, comm.rank(), stream), "scatter_v", &need, &have);
        if n > 1 {
            assert_argument(
                comm.gather_v((x.slice(..11), &mut y), wrong, comm.rank(), stream),
                "gather_v",
                &need,
                &have,
            );
        }
        let sum = ReduceOp::Sum;
        assert_argument(comm.reduce_scatter_v((&x, &mut y), wrong, sum, stream), "reduce_scatter_v", &need, &have);
        let far = vec![10 * n; n];
        let wrong = Layout { counts: &tens, offsets: Some(&far) };
        let need = (10 * n + 10).to_string();
        assert_argument(comm.all_to_all_v((&x, &mut y), wrong, packed, stream), "all_to_all_v", &need, &have);
        Ok(())
    });
}

#[test]
fn parts_of_another_length_than_the_layout_says() {
    refused(|comm, stream| {
        let (n, me) = (comm.size(), comm.rank());
        let x = zeros(stream, 11 * n)?;
        let mut y = zeros(stream, 10 * n)?;
        let tens = vec![10; n];
        let packed = Layout { counts: &tens, offsets: None };
        for len in [9, 11] {
            let (part, got) = (x.slice(..len), len.to_string());
            assert_argument(comm.all_gather_v((part, &mut y), packed, stream), "all_gather_v", "10", &got);
            assert_argument(comm.gather_v((part, &mut y), packed, me, stream), "gather_v", "10", &got);
            if n > 1 {
                let root = (me + 1) % n;
                assert_argument(comm.gather_v(SendOnly(part), packed, root, stream), "gather_v", "10", &got);
            }
        }
        let sum = ReduceOp::Sum;
        let short = y.slice_mut(..9);
        assert_argument(comm.reduce_scatter_v((&x, short), packed, sum, stream), "reduce_scatter_v", "10", "9");
        assert_argument(comm.scatter_v((&x, y.slice_mut(..9)), packed, me, stream), "scatter_v", "10", "9");
        if n > 1 {
            let (root, short) = ((me + 1) % n, RecvOnly(y.slice_mut(..9)));
            assert_argument(comm.scatter_v(short, packed, root, stream), "scatter_v", "10", "9");
        }
        Ok(())
    });
}

#[test]
fn counts_that_overflow() {
    refused(|comm, stream| {
        let n = comm.size();
        let x = zeros(stream, 10)?;
        let mut y = zeros(stream, 10)?;
        let ones = vec![1; n];
        let fine = Layout { counts: &ones, offsets: None };
        for count in [usize::MAX, usize::MAX / 2 + 1, usize::MAX / 4 + 1, isize::MAX as usize] {
            let counts = vec![count; n];
            let huge = Layout { counts: &counts, offsets: None };
            assert_argument(comm.all_to_all_v((&x, &mut y), huge, fine, stream), "all_to_all_v", "", "");
            assert_argument(comm.all_to_all_v((&x, &mut y), fine, huge, stream), "all_to_all_v", "", "");
            assert_argument(comm.all_gather_v((&x, &mut y), huge, stream), "all_gather_v", "", "");
            assert_argument(comm.gather_v((&x, &mut y), huge, comm.rank(), stream), "gather_v", "", "");
            assert_argument(comm.scatter_v((&x, &mut y), huge, comm.rank(), stream), "scatter_v", "", "");
            let sum = ReduceOp::Sum;
            assert_argument(comm.reduce_scatter_v((&x, &mut y), huge, sum, stream), "reduce_scatter_v", "", "");
            let offsets = vec![count; n];
            let far = Layout { counts: &ones, offsets: Some(&offsets) };
            assert_argument(comm.all_to_all_v((&x, &mut y), far, fine, stream), "all_to_all_v", "", "");
        }
        // An allocation whose size in bytes is no size at all.
        for len in [usize::MAX, usize::MAX / 4 + 1, isize::MAX as usize] {
            assert!(DeviceBuffer::<f32>::uninit(stream, len).is_err());
            assert!(DeviceBuffer::<f64>::zeroed(stream, len).is_err());
            assert!(gpucomm::PinnedBuffer::<f32>::zeroed(len).is_err());
            assert!(comm.alloc::<f32>(stream, len).is_err());
            let length = len.to_string();
            assert_argument(comm.alloc_local::<f32>(stream, len).map(drop), "alloc_local", "", &length);
            assert_argument(comm.alloc_symmetric::<f32>(stream, len).map(drop), "alloc_symmetric", "", &length);
            assert_argument(gpucomm::nccl::alloc::<f32>(stream, len).map(drop), "alloc", "", &length);
        }
        // The product is zero in 64 bits.
        let error = DeviceBuffer::<[u8; 1 << 20]>::zeroed(stream, 1 << 50).map(drop);
        assert_argument(error, "DeviceBuffer::zeroed", "", &(1_u64 << 50).to_string());
        Ok(())
    });
}

#[test]
fn more_memory_than_there_is() {
    watched(30.0, || {
        let device = Device::new(0).unwrap();
        let stream = Stream::new(device).unwrap();
        let bytes = device.total_memory().unwrap() + (1 << 30);
        let error = DeviceBuffer::<u8>::uninit(&stream, bytes).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory { .. }), "{error:?}");
        assert_names(&error, &[&bytes.to_string(), "device 0"]);
        assert_eq!(DeviceBuffer::from_slice(&stream, &[3u8; 5]).unwrap().to_vec(&stream).unwrap(), [3; 5]);
        still_works(1);
    });
}

/// Zero elements are no error in any operation; the matrix of `collectives` and `movement` has that length as well.
#[test]
fn nothing_is_a_length() {
    refused(|comm, stream| {
        let mut x = zeros(stream, 0)?;
        let y = zeros(stream, 0)?;
        comm.all_reduce((&y, &mut x), ReduceOp::Avg, stream)?;
        comm.all_gather(InPlace(&mut x), stream)?;
        let window = comm.alloc::<u8>(stream, 0)?;
        assert!(window.to_vec(stream)?.is_empty());
        let mut window = window;
        comm.all_reduce(InPlace(&mut window), ReduceOp::Sum, stream)?;
        let none = vec![0; comm.size()];
        let layout = Layout { counts: &none, offsets: None };
        comm.all_to_all_v((&y, &mut x), layout, layout, stream)
    });
}

/// A buffer belongs to the communicator that allocated it: its window is nothing to another one, not even to a part of it. Memory of
/// `alloc_local` is no window, and works with all of them.
#[test]
fn buffers_of_another_communicator() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2]) {
            let (one, two) = (Rig::new(ranks), Rig::new(ranks));
            one.run(|comm, stream| {
                let other = two.clique.rank(comm.rank());
                let part = comm.split(Some(0), 0)?.expect("a part");
                let mut window = comm.alloc_from(stream, &[1.0f32; 8])?;
                let mut local = comm.alloc_local::<f32>(stream, 8)?;
                let sum = ReduceOp::Sum;
                let refused = |result: gpucomm::Result<()>, (expected, got, own): (&str, &str, &str)| {
                    let text = result.as_ref().expect_err("memory of another").to_string();
                    let advice = "or use a DeviceBuffer, which works with any communicator";
                    assert!(text.contains(&format!("; allocate it from {own}, {advice}")), "{text}");
                    assert_argument(result, "all_reduce", expected, got);
                };
                // The other clique has the same name.
                let another = (
                    "memory of this communicator \"world\"",
                    "a buffer of another communicator \"world\" (",
                    "this one",
                );
                let parent = (
                    "memory of communicator \"world/split(color=0)\"",
                    "a buffer of communicator \"world\"; ",
                    "\"world/split(color=0)\"",
                );
                let child = (
                    "memory of communicator \"world\"",
                    "a buffer of communicator \"world/split(color=0)\"; ",
                    "\"world\"",
                );
                for (foreign, names) in [(other, another), (&part, parent)] {
                    refused(foreign.all_reduce(InPlace(&mut window), sum, stream), names);
                    local.fill(stream, 1.0)?;
                    foreign.all_reduce(InPlace(&mut local), sum, stream)?;
                    assert_eq!(local.to_vec(stream)?, [foreign.size() as f32; 8]);
                    refused(group(|g| g.all_reduce(foreign, InPlace(&mut window), ReduceOp::Sum, stream)), names);
                }
                // The other way round, too.
                let mut of_part = part.alloc::<f32>(stream, 8)?;
                refused(comm.all_reduce(InPlace(&mut of_part), sum, stream), child);
                let mut of_part = part.alloc_local::<f32>(stream, 8)?;
                comm.all_reduce(InPlace(&mut of_part), sum, stream)?;
                let operator = comm.pre_mul_sum(2.0f32)?;
                let mut plain = zeros(stream, 8)?;
                let foreign = &operator;
                assert_argument(
                    other.all_reduce(InPlace(&mut plain), foreign, stream),
                    "all_reduce",
                    "a PreMulSum of this communicator \"world\"",
                    "one of another communicator \"world\"",
                );
                // What the advice says works.
                part.all_reduce(InPlace(&mut of_part), ReduceOp::Sum, stream)?;
                part.all_reduce(InPlace(&mut plain), ReduceOp::Sum, stream)?;
                comm.all_reduce(InPlace(&mut window), ReduceOp::Sum, stream)?;
                assert_eq!(window.to_vec(stream)?, [ranks as f32; 8]);
                Ok(())
            });
            two.run(|comm, stream| comm.all_reduce(InPlace(&mut zeros(stream, 3)?), ReduceOp::Sum, stream));
            two.close();
            one.close();
            still_works(ranks);
        }
    });
}

#[test]
fn cliques_and_ranks_that_cannot_be() {
    watched(60.0, || {
        let device = Device::new(0).unwrap();
        let error = Clique::init_all(&[]).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
        let error = Clique::init_all(&[device, device]).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
        assert_names(&error, &["init_all", "device 0"]);
        let count = Device::count().unwrap();
        let error = Device::new(count).unwrap_err();
        assert_names(&error, &[&count.to_string()]);

        let id = UniqueId::new().unwrap();
        for (size, rank) in [(0, 0), (1, 1), (2, 2), (2, usize::MAX), (usize::MAX, 0), (1 << 40, 3)] {
            // SAFETY: no other rank exists, and the arguments are refused.
            let error = unsafe { Communicator::init_rank(device, size, &id, rank) }.unwrap_err();
            assert!(matches!(error, Error::InvalidArgument { .. }), "{size} {rank}: {error:?}");
            assert_names(&error, &["init_rank"]);
        }
        still_works(1);
    });
}

#[test]
fn an_id_of_nobody() {
    watched(60.0, || {
        let device = Device::new(0).unwrap();
        let timeout = crate::support::slower(3.0);
        let options = gpucomm::nccl::InitOptions::new().with_timeout(timeout);
        for bytes in [[0u8; 128], [0xff; 128]] {
            let id = UniqueId::from_bytes(bytes);
            assert_eq!(id.as_bytes(), &bytes);
            let error = crate::support::quick(timeout, || {
                // SAFETY: no other rank exists.
                unsafe { Communicator::init_rank_with(device, 2, &id, 0, &options) }.unwrap_err()
            });
            let text = error.to_string();
            assert!(text.contains("init_rank") || text.contains("ncclCommInitRankConfig"), "{text}");
            still_works(1);
        }
    });
}

#[test]
fn ranges_beyond_a_buffer() {
    watched(30.0, || {
        let stream = Stream::new(Device::new(0).unwrap()).unwrap();
        let mut x = zeros(&stream, 10).unwrap();
        for range in [0..11, 11..11, 5..usize::MAX, usize::MAX - 1..usize::MAX] {
            assert!(matches!(x.try_slice(range.clone()), Err(Error::InvalidArgument { .. })), "{range:?}");
            assert!(matches!(x.try_slice_mut(range.clone()), Err(Error::InvalidArgument { .. })), "{range:?}");
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| x.slice(range.clone()).len()));
            assert!(caught.is_err(), "{range:?} of ten");
        }
        assert_eq!(x.slice(10..10).len(), 0);
        let mut host = [0.0f32; 9];
        assert!(x.copy_to_slice(&stream, &mut host).is_err(), "nine elements cannot take ten");
        assert!(x.copy_from_slice(&stream, &[0.0; 11]).is_err(), "ten elements cannot take eleven");
        assert_eq!(x.to_vec(&stream).unwrap(), [0.0; 10]);
    });
}

/// Counts and offsets are not cut to 32 bits. Memory that nobody touches takes none.
#[test]
fn more_elements_than_32_bits_count() {
    const MANY: usize = (1 << 32) + 5;
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let rig = Rig::new(ranks);
            let result = rig.try_run(|comm, stream| {
                let mut x = DeviceBuffer::<u8>::uninit(stream, MANY)?;
                x.slice_mut(MANY - 5..).fill(stream, comm.rank() as u8 + 1)?;
                comm.all_reduce(InPlace(x.slice_mut(MANY - 3..)), ReduceOp::Sum, stream)?;
                assert_eq!(x.slice(MANY - 5..).to_vec(stream)?, [[1, 1, 3, 3, 3], [2, 2, 3, 3, 3]][comm.rank()]);
                // The low halves of these counts are the same.
                let len = if comm.rank() == 0 { MANY } else { 5 };
                comm.broadcast(InPlace(x.slice_mut(..len)), 0, stream)
            });
            let error = result.map(drop).expect_err("the ranks differ");
            assert!(matches!(error, Error::Disagreement { .. }), "{error:?}");
            assert_names(&error, &[&format!("of {MANY} u8"), "of 5 u8"]);
            still_works(ranks);
        }
    });
}
