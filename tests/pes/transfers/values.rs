//! Single elements.

use gpucomm::nvshmem::Pe;

use crate::support::random::{Bits, same};
use crate::support::{Here, each_type, with_context};

fn values<T: Bits>(here: &Here<'_>) {
    let (pe, n_pes) = (here.pe(), here.n_pes());
    let value = |from: usize, to: usize| T::any(&mut here.rng_of(&format!("{} to {to}", T::NAME), from));
    for on_stream in [false, true] {
        let mut buffer = here.ctx.alloc::<T>(n_pes + 2).unwrap();
        buffer.fill(here.stream, T::poison()).unwrap();
        here.settle();
        for to in 0..n_pes {
            let slot = buffer.symmetric(1 + pe..2 + pe);
            match on_stream {
                false => here.ctx.put_value(slot, value(pe, to), Pe(to)),
                true => here.ctx.on(here.stream).put_value(slot, value(pe, to), Pe(to)),
            }
            .unwrap();
        }
        here.ctx.on(here.stream).barrier_all().unwrap();
        let mut want = vec![T::poison(); n_pes + 2];
        (0..n_pes).for_each(|from| want[1 + from] = value(from, pe));
        same("values", &buffer.to_vec(here.stream).unwrap(), &want);
        for from in 0..n_pes {
            for at in 0..n_pes {
                let got = here.ctx.get_value(buffer.symmetric(1 + at..2 + at), Pe(from)).unwrap();
                same("a value", &[got], &[value(at, from)]);
            }
        }
        here.settle();
    }
}

#[test]
fn single_elements() {
    with_context(|here| each_type!(values(here)));
}
