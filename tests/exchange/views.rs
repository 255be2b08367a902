//! Exchanges of some of the ranks.

use gpucomm::Error;

use crate::support::everywhere;

#[test]
fn subsets() {
    everywhere(&[4], |x| {
        for round in 0..3_u8 {
            if x.rank() != 2 {
                let some = x.subset(&[3, 0, 1]).unwrap();
                assert_eq!(some.store_ranks(), [3, 0, 1]);
                assert_eq!(some.rank(), [1, 2, 9, 0][x.rank()]);
                assert_eq!(some.all_gather(&[x.rank() as u8, round]).unwrap(), [[3, round], [0, round], [1, round]]);
                // Keys are of the view.
                assert_eq!(some.try_get("k").unwrap(), None);
                some.barrier().unwrap();
                some.set("k", b"").unwrap();
                some.barrier().unwrap();
                let next = some.next_generation().unwrap();
                assert_eq!(next.try_get("k").unwrap(), None);
                assert_eq!(next.broadcast(&[next.rank() as u8], 0).unwrap(), [0]);
                next.barrier().unwrap();
            }
        }
        x.barrier().unwrap();
        for wrong in [&[0, 0][..], &[4], &[(x.rank() + 1) % 4], &[]] {
            assert!(matches!(x.subset(wrong).unwrap_err(), Error::InvalidArgument { .. }), "{wrong:?}");
        }
    });
}

#[test]
fn splits() {
    everywhere(&[4, 7], |x| {
        for _ in 0..2 {
            let color = (x.rank() != 1).then_some(x.rank() as u64 % 2);
            let part = x.split(color, -(x.rank() as i64)).unwrap();
            let Some(part) = part else {
                assert_eq!(x.rank(), 1);
                continue;
            };
            let mut want: Vec<usize> = (0..x.size()).filter(|rank| *rank != 1 && rank % 2 == x.rank() % 2).collect();
            want.reverse();
            assert_eq!(part.store_ranks(), want);
            let all = part.all_gather(&[x.rank() as u8]).unwrap();
            assert_eq!(all.concat(), want.iter().map(|rank| *rank as u8).collect::<Vec<_>>());
            // A child of the child.
            let pair = part.split(Some(7), 0).unwrap().unwrap();
            assert_eq!(pair.store_ranks(), want);
            pair.barrier().unwrap();
        }
        x.barrier().unwrap();
    });
}
