//! What kernels that call NVSHMEM need of the host.

use std::collections::HashSet;
use std::ptr;

use gpucomm::Error;
use gpucomm::nvshmem::LaunchShape;

use crate::support::{errors, with_context, with_contexts};

#[test]
fn queue_pairs_are_made_by_all() {
    with_context(|here| {
        for count in [1, 5] {
            let pairs = here.ctx.create_queue_pairs(count).unwrap();
            assert_eq!(pairs.len(), count);
            // Each is one of its own, or all are the one that there is anyway.
            let different: HashSet<_> = pairs.iter().map(|pair| pair.as_raw()).collect();
            assert!(different.len() == count || different.len() == 1, "{pairs:?}");
        }
        for count in [0, 1 << 31] {
            errors::argument(
                here.ctx.create_queue_pairs(count),
                "Context::create_queue_pairs",
                "1 to 2147483647",
                &count.to_string(),
            );
        }
        // What one of them counts differently is told to all.
        if here.n_pes() > 2 {
            let count = if here.pe() == 1 { 3 } else { 2 };
            let error = here.ctx.create_queue_pairs(count).unwrap_err();
            let Error::Disagreement { rank: 1, expected, got, .. } = &error else { panic!("{error:?}") };
            assert_eq!((&**expected, &**got), ("queue pairs of 2", "queue pairs of 3"));
        }
        assert_eq!(here.ctx.create_queue_pairs(2).unwrap().len(), 2);
        here.settle();
    });
}

/// There is no kernel here that calls NVSHMEM: one that is not one is refused.
#[test]
fn launches_are_refused_by_name() {
    with_contexts(&[1, 2], |here| {
        let stream = here.stream;
        let shape = LaunchShape { grid: [0; 3], block: [32, 1, 1], shared_bytes: 0 };
        // SAFETY: nothing is launched within a capture.
        let captured =
            stream.capture(|stream| unsafe { here.ctx.collective_launch(ptr::null(), &shape, &[], (), stream) });
        let error = captured.map(drop).unwrap_err();
        if !here.is_whole() {
            assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
            return;
        }
        errors::names(&error, &["Context::collective_launch", "captur"]);
        if !cfg!(gpucomm_emulator) {
            return;
        }
        // SAFETY: the emulator looks at no kernel.
        let (grid, launched, with) = unsafe {
            let grid = here.ctx.collective_launch_grid(ptr::null(), &shape);
            let launched = here.ctx.collective_launch(ptr::null(), &shape, &[], (), stream);
            let config = [0u8; 64];
            let with = here.ctx.collective_launch_config(ptr::null(), config.as_ptr().cast(), &[], (), stream);
            (grid.map(drop), launched, with)
        };
        let names = ["_query_gridsize", "", "_attr"];
        for (result, name) in [grid, launched, with].into_iter().zip(names) {
            errors::names(&result.unwrap_err(), &[&format!("nvshmemx_collective_launch{name}")]);
        }
        here.settle();
    });
}
