//! Signals, and waits for values.

use super::*;

pub(super) const SCENES: &[(&str, Scene)] = &[("signals", signals)];

#[test]
fn signals_come_after_their_data() {
    for size in 1..=3 {
        play_well("signals", size, &[]);
    }
}

fn signals(stage: &Stage) {
    const COUNT: usize = 513;
    let (target, source, signal) = (stage.words(COUNT, 0), stage.words(COUNT, 0), stage.words(2, 0));
    let (next, stream) = (stage.next() as i32, stage.stream);
    // SAFETY: as C asks for it.
    unsafe {
        for round in 1..=20u64 {
            stage.fill(source, &[round * 100 + stage.me as u64; COUNT]);
            let put =
                if round % 2 == 0 { nvshmemx_putmem_signal_on_stream } else { nvshmemx_putmem_signal_nbi_on_stream };
            put(target.cast(), source.cast(), 8 * COUNT, signal, 1, NVSHMEM_SIGNAL_ADD, next, stream);
            nvshmemx_signal_wait_until_on_stream(signal, NVSHMEM_CMP_GE, round, stream);
            assert_eq!(stage.read(target, COUNT), [round * 100 + stage.previous() as u64; COUNT]);
            assert_eq!(nvshmem_signal_fetch(signal), round);
            stage.barrier();
        }
        nvshmemx_signal_op_on_stream(signal, 77, NVSHMEM_SIGNAL_SET, next, stream);
        nvshmemx_uint64_wait_until_on_stream(signal, NVSHMEM_CMP_EQ, 77, stream);
        let values = stage.words(4, 0).cast::<i32>();
        for at in 0..6 {
            nvshmem_uint32_p(values.add(at).cast(), (-(at as i32)).cast_unsigned(), next);
        }
        nvshmem_quiet();
        let [skip, want] = [stage.words(4, 0), stage.words(4, 0)].map(|words| words.cast::<i32>());
        let pair = |low: i32, high: i32| u64::from(low.cast_unsigned()) | u64::from(high.cast_unsigned()) << 32;
        stage.fill(skip.cast(), &[pair(1, 0), pair(0, 0), pair(0, 0), pair(1, 1)]);
        stage.fill(want.cast(), &[pair(8, -1), pair(-2, -3), pair(-4, -5), pair(8, 8)]);
        nvshmemx_int32_wait_until_all_on_stream(values, 6, skip, NVSHMEM_CMP_LT, 0, stream);
        nvshmemx_int32_wait_until_all_vector_on_stream(values, 8, skip, NVSHMEM_CMP_EQ, want, stream);
        nvshmemx_int32_wait_until_on_stream(values.add(2), NVSHMEM_CMP_NE, 3, stream);
    }
    stage.sync();
    stage.barrier();
}
