//! What NVSHMEM does not survive is a violation.

#![allow(clippy::undocumented_unsafe_blocks, reason = "these calls are mistakes")]

use super::*;

pub(super) const SCENES: &[(&str, Scene)] = &[
    ("pe out of range", |stage| mistake(|| unsafe { nvshmem_uint64_p(stage.words(1, 0), 1, stage.size as i32) })),
    ("not symmetric", not_symmetric),
    ("beyond the end", |stage| {
        let memory = stage.words(4, 0);
        mistake(|| unsafe { nvshmem_putmem(memory.cast(), memory.add(2).cast(), 40, 0) });
    }),
    ("beyond the end by strides", |stage| {
        let (memory, source) = (stage.words(64, 0), stage.words(2, 0));
        // The second of two elements lies behind the 64 words.
        mistake(|| unsafe { nvshmem_iput64(memory.cast(), source.cast(), 64, 1, 2, 0) });
    }),
    ("a signal between words", |stage| {
        let memory = stage.words(2, 0);
        mistake(|| unsafe {
            nvshmemx_signal_op_on_stream(memory.byte_add(4), 1, NVSHMEM_SIGNAL_SET, 0, stage.stream);
        });
    }),
    ("overlapping buffers", |stage| {
        let memory = stage.words(4, 0);
        mistake(|| _ = unsafe { nvshmem_fcollectmem(0, memory.add(1).cast(), memory.cast(), 16) });
    }),
    ("another current device", |stage| {
        let memory = stage.words(1, 0);
        unsafe { assert_eq!(cudaSetDevice(1), cudaError::cudaSuccess) };
        mistake(|| unsafe { nvshmemx_signal_op_on_stream(memory, 1, NVSHMEM_SIGNAL_SET, 0, stage.stream) });
    }),
    ("a copy beside another current device", |stage| {
        let memory = stage.words(2, 0);
        unsafe { assert_eq!(cudaSetDevice(1), cudaError::cudaSuccess) };
        mistake(|| unsafe { nvshmemx_putmem_on_stream(memory.add(1).cast(), memory.cast(), 8, 0, stage.stream) });
    }),
    ("a copy on a stream of another device", |stage| {
        let (memory, ok, mut there) = (stage.words(2, 0), cudaError::cudaSuccess, null_mut());
        unsafe {
            assert_eq!(cudaSetDevice(1), ok);
            assert_eq!(cudaStreamCreateWithPriority(&mut there, cudaStreamNonBlocking, 0), ok);
            assert_eq!(cudaSetDevice(0), ok);
            // The copy goes on, and a kernel does not.
            nvshmemx_putmem_on_stream(memory.add(1).cast(), memory.cast(), 8, 0, there);
        }
        mistake(|| unsafe { nvshmemx_signal_op_on_stream(memory, 1, NVSHMEM_SIGNAL_SET, 0, there) });
    }),
    ("an element in a capture", |stage| {
        let memory = stage.words(1, 0);
        let begun =
            unsafe { cudaStreamBeginCapture(stage.stream, cudaStreamCaptureMode::cudaStreamCaptureModeRelaxed) };
        assert_eq!(begun, cudaError::cudaSuccess);
        mistake(|| unsafe { nvshmemx_uint64_p_on_stream(memory, 1, 0, stage.stream) });
    }),
    ("a predefined team", |_| mistake(|| unsafe { nvshmem_team_destroy(NVSHMEM_TEAM_WORLD) })),
    ("a peer's address", |stage| {
        let memory = stage.words(4, 0);
        let peer = unsafe { nvshmem_ptr(memory.cast(), stage.next() as i32) };
        mistake(|| unsafe { nvshmem_putmem(peer, memory.cast(), 8, stage.next() as i32) });
    }),
    ("freed twice", |stage| {
        let memory = stage.words(4, 0);
        unsafe { nvshmem_free(memory.cast()) };
        mistake(|| unsafe { nvshmem_free(memory.cast()) });
    }),
    ("used after it was freed", |stage| {
        let memory = stage.words(4, 0);
        unsafe { nvshmem_free(memory.cast()) };
        mistake(|| unsafe { nvshmem_uint64_p(memory, 1, 0) });
    }),
    ("other sizes", |stage| mistake(|| _ = unsafe { nvshmem_malloc(8 + stage.me) })),
    ("other roots", |stage| {
        let memory = stage.words(2, 0);
        mistake(|| _ = unsafe { nvshmem_broadcastmem(0, memory.add(1).cast(), memory.cast(), 8, stage.me as i32) });
    }),
    ("heaps that differ", |_| {
        // PE 1 has no memory for the first one.
        let first = unsafe { nvshmem_malloc(64) };
        mistake(|| _ = (first, unsafe { nvshmem_malloc(64) }));
    }),
    ("an end below work of another device", |stage| {
        let memory = stage.words(2, 0);
        let (ok, mut there) = (cudaError::cudaSuccess, null_mut());
        mistake(|| unsafe {
            assert_eq!(cudaSetDevice(1), ok);
            assert_eq!(cudaStreamCreateWithPriority(&mut there, cudaStreamNonBlocking, 0), ok);
            assert_eq!(cudaLaunchHostFunc(there, Some(hold_up), null_mut()), ok);
            let kind = cudaMemcpyKind::cudaMemcpyDeviceToDevice;
            assert_eq!(cudaMemcpyAsync(memory.cast(), memory.add(1).cast(), 8, kind, there), ok);
            assert_eq!(cudaSetDevice(0), ok);
            nvshmemx_hostlib_finalize();
        });
    }),
    ("freed below work", |stage| {
        let memory = stage.words(2, 0);
        mistake(|| unsafe {
            assert_eq!(cudaLaunchHostFunc(stage.stream, Some(hold_up), null_mut()), cudaError::cudaSuccess);
            nvshmemx_putmem_on_stream(memory.cast(), memory.add(1).cast(), 8, 0, stage.stream);
            nvshmem_free(memory.cast());
        });
    }),
    ("other calls", |stage| {
        let memory = stage.words(4, 0);
        mistake(|| if stage.me == 0 { stage.barrier() } else { unsafe { nvshmem_free(memory.cast()) } });
    }),
    ("no team", |stage| {
        let mut team = 0;
        unsafe {
            assert_eq!(nvshmem_team_split_strided(0, 0, 1, stage.size as i32, std::ptr::null(), 0, &mut team), 0);
            nvshmem_team_destroy(team);
        }
        mistake(|| _ = unsafe { nvshmem_barrier(team) });
    }),
    ("beside a capture", |stage| {
        let mode = cudaStreamCaptureMode::cudaStreamCaptureModeGlobal;
        unsafe { assert_eq!(cudaStreamBeginCapture(stage.stream, mode), cudaError::cudaSuccess) };
        mistake(|| stage.barrier());
    }),
    ("a comparison as an operation", |stage| {
        let memory = stage.words(1, 0);
        mistake(|| unsafe { nvshmemx_signal_op_on_stream(memory, 1, NVSHMEM_CMP_EQ, 0, stage.stream) });
    }),
    ("source written before the quiet", |stage| {
        let memory = stage.words(2, 0);
        mistake(|| unsafe {
            nvshmemx_putmem_nbi_on_stream(memory.cast(), memory.add(1).cast(), 8, 0, stage.stream);
            cudaMemsetAsync(memory.add(1).cast(), 0, 8, stage.stream);
        });
    }),
    ("source being written", |stage| {
        let memory = stage.words(2, 0);
        mistake(|| unsafe {
            cudaMemsetAsync(memory.add(1).cast(), 0, 8, stage.stream);
            nvshmem_putmem(memory.cast(), memory.add(1).cast(), 8, 0);
        });
    }),
    ("across nodes", |stage| {
        let memory = stage.words(1, 0);
        mistake(|| _ = unsafe { nvshmem_uint64_g(memory, 1 - stage.me as i32) });
    }),
    ("a team with work", |stage| {
        let mut team = 0;
        unsafe {
            assert_eq!(nvshmem_team_split_strided(0, 0, 1, stage.size as i32, std::ptr::null(), 0, &mut team), 0);
        }
        // The other one does not come.
        if stage.me == 0 {
            mistake(|| unsafe {
                assert_eq!(nvshmemx_barrier_on_stream(team, stage.stream), 0);
                nvshmem_team_destroy(team);
            });
        }
        watch();
        std::thread::park();
    }),
    ("an id beside a start", |_| mistake(|| _ = unique_id())),
    ("a heap that is full", |_| mistake(|| _ = unsafe { nvshmem_malloc(1 << 30) })),
    ("integers by switches", |stage| {
        let memory = stage.words(8, 0).cast::<i32>();
        mistake(|| unsafe {
            nvshmemx_int32_sum_reducescatter_on_stream(0, memory, memory.add(8), 2, stage.stream);
        });
    }),
    ("far, from the host", |stage| {
        let memory = stage.words(1, 0);
        mistake(|| unsafe { nvshmem_uint64_p(memory, 1, 1 - stage.me as i32) });
    }),
    ("limited", |_| mistake(|| _ = unsafe { nvshmem_barrier(NVSHMEM_TEAM_WORLD) })),
    ("limited wait", |stage| {
        let memory = stage.words(1, 0);
        mistake(|| unsafe { nvshmemx_signal_wait_until_on_stream(memory, NVSHMEM_CMP_EQ, 0, stage.stream) });
    }),
    ("limited and captured", |stage| {
        let mode = cudaStreamCaptureMode::cudaStreamCaptureModeRelaxed;
        unsafe { assert_eq!(cudaStreamBeginCapture(stage.stream, mode), cudaError::cudaSuccess) };
        mistake(|| unsafe { nvshmemx_barrier_all_on_stream(stage.stream) });
    }),
    ("barriers", |stage| {
        watch();
        (0..5).for_each(|_| stage.barrier());
    }),
    ("one dies", |stage| {
        if stage.me == 1 {
            std::process::exit(7);
        }
        watch();
        stage.barrier();
    }),
];

/// A host function that holds up its stream for good.
unsafe extern "C" fn hold_up(_: *mut c_void) {
    std::thread::park();
}

/// Ends the process after a while, as a watchdog does.
fn watch() {
    std::thread::spawn(|| {
        std::thread::sleep(std::time::Duration::from_secs(2));
        // SAFETY: the process ends.
        unsafe { libc::_exit(8) };
    });
}

/// Something that ends the process, and says why.
fn mistake(act: impl FnOnce()) {
    act();
    panic!("nothing was reported");
}

fn not_symmetric(stage: &Stage) {
    let memory = stage.words(1, 0);
    let mut host = 0u64;
    mistake(|| unsafe { nvshmem_putmem((&raw mut host).cast(), memory.cast(), 8, 0) });
}

/// Plays a scene in which at least one PE makes a mistake whose report holds `part`.
fn reported(scene: &str, size: usize, env: &[(&str, &str)], part: &str) {
    let outputs = play(scene, size, env);
    let said =
        |output: &Output| output.status.code() == Some(86) && String::from_utf8_lossy(&output.stderr).contains(part);
    assert!(outputs.iter().any(said), "{scene}: {outputs:#?}");
}

#[test]
fn what_ends_the_process_is_reported() {
    for (scene, part) in [
        ("pe out of range", "the PE is 1, expected 0 to 0"),
        ("not symmetric", "is not symmetric"),
        ("beyond the end", "run past the end"),
        ("beyond the end by strides", "run past the end"),
        ("a signal between words", "is not aligned to 8 bytes"),
        ("overlapping buffers", "overlap, expected them apart"),
        ("another current device", "the current device is 1"),
        ("a copy beside another current device", "the current device is 1"),
        ("a copy on a stream of another device", "the stream is one of device 1"),
        ("an element in a capture", "a stack that is gone"),
        ("a predefined team", "is there from the start"),
        ("freed twice", "is no allocation"),
        ("freed below work", "is freed while work"),
        ("an end below work of another device", "queued or running work use symmetric memory"),
        ("used after it was freed", "lie in no live allocation"),
        ("no team", "is no team of this PE"),
        ("beside a capture", "beside a stream capture"),
        ("source written before the quiet", "nothing puts them in order"),
        ("source being written", "nobody has seen that done"),
        ("a comparison as an operation", "is no operation of signals"),
    ] {
        reported(scene, 1, &[], part);
    }
    reported("a peer's address", 2, &[], "as nvshmem_ptr gives it");
    reported("across nodes", 2, &[("GPUCOMM_EMULATOR_NODE", "1")], "does not reach");
    reported("a team with work", 2, &[], "is destroyed while work");
    // Read with all others, though nothing here uses it.
    reported("pe out of range", 1, &[("NVSHMEM_FCOLLECT_LL_THRESHOLD", "much")], "which is no size");
    reported("an id beside a start", 1, &[], "beside a start");
    let full = [("GPUCOMM_EMULATOR_NVSHMEM", "3.5.0"), ("NVSHMEM_MAX_MEMORY_PER_GPU", "1G")];
    reported("a heap that is full", 1, &full, "unmaps all of it");
    reported("integers by switches", 2, &[("GPUCOMM_EMULATOR_NVLS", "1")], "something else");
    let far = [("GPUCOMM_EMULATOR_NODE", "1"), ("NVSHMEM_IB_ENABLE_IBGDA", "1")];
    reported("far, from the host", 2, &far, "reached by IBGDA");
    reported("limited", 2, &[("SHARED", "1")], "limited MPG");
    reported("limited wait", 2, &[("SHARED", "1")], "limited MPG");
    reported("limited and captured", 2, &[("SHARED", "1")], "being captured");
}

#[test]
fn pes_that_disagree_are_reported() {
    reported("other sizes", 2, &[("GPUCOMM_EMULATOR_DEAD_PEER", "ends")], "the number of bytes is");
    reported("other roots", 2, &[("GPUCOMM_EMULATOR_DEAD_PEER", "ends")], "the root is");
    let heaps = [("GPUCOMM_EMULATOR_DEAD_PEER", "ends"), ("GPUCOMM_EMULATOR_FAULTS", "oom=device1@1")];
    reported("heaps that differ", 2, &heaps, "the heaps are no longer alike");
    reported("other calls", 2, &[("GPUCOMM_EMULATOR_DEAD_PEER", "ends")], "expected the same on all");
}

#[test]
fn faults_come_when_they_are_asked_for() {
    let outputs = play("barriers", 3, &[("GPUCOMM_EMULATOR_FAULTS", "die=rank1@op3;late=rank0@op2:50ms")]);
    assert_eq!(outputs[1].status.code(), Some(99), "{outputs:?}");
    for output in [&outputs[0], &outputs[2]] {
        assert_eq!(output.status.code(), Some(8), "{output:?}");
    }
}

#[test]
fn who_waits_for_a_dead_pe_says_so_and_can_end() {
    let outputs = play("one dies", 3, &[]);
    for output in [&outputs[0], &outputs[2]] {
        assert_eq!(output.status.code(), Some(8), "{output:?}");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            text.contains("PE 1 has ended, and PE") && text.contains("waits for it in barrier of team 0"),
            "{text}"
        );
    }
}
