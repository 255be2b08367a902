use super::*;

fn all_reduce(element: ElementKind, op: u64, group: u64) -> Signature {
    Signature([1 | (element as u64) << ELEMENT | op << REDUCTION | group << GROUP, 0, 0, 0, 0, 0])
}

#[test]
fn in_which_windows_and_where_is_part_of_it() {
    let of = |[window, offset, to_window, to_offset]: [u64; 4]| {
        let send = Place { window, offset };
        let recv = Place { window: to_window, offset: to_offset };
        Signature::new(head(1, Type::of::<f32>(), None, None), 5, 1, Memory::At { send, recv }).0
    };
    let one = of([1, 8, 2, 16]);
    assert_eq!(one, of([1, 8, 2, 16]));
    for other in [[3, 8, 2, 16], [1, 4, 2, 16], [1, 8, 3, 16], [1, 8, 2, 4]] {
        assert_ne!(one, of(other), "{other:?}");
    }
    let within = |is| Signature::new(head(1, Type::of::<f32>(), None, None), 5, 1, Memory::InWindows(is)).0;
    assert_ne!(within(true), within(false));
}

#[test]
#[cfg(nccl_ge_2_22)]
fn what_is_simulated_is_connected_as_what_is_done() {
    let real = all_reduce(ElementKind::F32, SUM, 1);
    let Signature([first, rest @ ..]) = real;
    let [a, b, c, d, e] = rest;
    let other = Signature([simulated(first), a, b, c, d, e]);
    assert_ne!(real, other);
    assert_eq!(real.class(1 << 20), other.class(1 << 20));
    assert!(is_point(other.head()) && !is_point(real.head()));
    assert_eq!(other.describe(), "simulated all_reduce of 0 f32, sum");
}

#[test]
fn classes_tell_apart_what_nccl_may_do_otherwise() {
    use ElementKind::{F32, I32, U8};
    let class = |element, op, group, bytes| all_reduce(element, op, group).class(bytes);
    let small = class(I32, SUM, 1, 4);
    assert_eq!(class(F32, SUM, 1, 30_000), small);
    assert_eq!(class(I32, MAX, 1, 1), small);
    for other in [
        class(F32, MAX, 1, 4),
        class(U8, SUM, 1, 4),
        class(I32, SUM, 2, 4),
        class(I32, SUM, 1, 40_000),
        Signature([2 | all_reduce(I32, SUM, 1).0[0] & !0xff, 0, 0, 0, 0, 0]).class(4),
        Signature([all_reduce(I32, SUM, 1).0[0], 0, 1, 0, 2, 0]).class(4),
        Signature([all_reduce(I32, SUM, 1).0[0], 0, 1, 2, 2, 0]).class(4),
        Signature([all_reduce(I32, SUM, 1).0[0], 0, 1 | REGISTERED, 0, 2 | REGISTERED, 0]).class(4),
    ] {
        assert_ne!(other, small);
    }
    assert_eq!(class(I32, SUM, 2, 4), class(I32, SUM, 7, 4));
    let mut sizes: Vec<_> = (0..64).map(|bits| class(I32, SUM, 1, 1 << bits)).collect();
    sizes.dedup();
    assert_eq!(sizes.len(), 64 - 14);
}

#[test]
fn what_is_captured_tells_its_memory() {
    use crate::cuda::Backing::{Allocated, Apart, Mapped};
    let of = |send, recv, in_place| Backings { send, recv, in_place };
    let whole =
        |place| Signature::new(head(1, Type::of::<f32>(), None, None), 5, 1, Memory::At { send: place, recv: place });
    let plain = whole(Place::NONE);
    let all: Vec<_> = [Apart, Allocated, Mapped]
        .into_iter()
        .flat_map(|send| [Apart, Allocated, Mapped].map(|recv| of(send, recv, false)))
        .chain([of(Mapped, Mapped, true)])
        .collect();
    for one in &all {
        let signature = plain.captured(*one);
        assert_eq!(signature.count(), 5);
        assert_eq!(signature.class(20) == plain.class(20), [one.send, one.recv] == [Apart; 2], "{one:?}");
        for other in &all {
            let theirs = plain.captured(*other);
            assert_eq!(signature == theirs, one == other);
            assert_eq!(signature.against(&theirs) == theirs.against(&signature), one == other, "{one:?}, {other:?}");
        }
    }
    // It is not asked where the memory is not registered, or lies in a window.
    assert_eq!(plain.captured(of(Mapped, Apart, true)), plain.captured(of(Mapped, Apart, false)));
    let window = whole(Place { window: 3, offset: 8 });
    assert_eq!(window.captured(of(Mapped, Mapped, true)), window.captured(Backings::default()));
    assert!(!window.captured(of(Mapped, Mapped, true)).describe().contains("mapped"));
}
