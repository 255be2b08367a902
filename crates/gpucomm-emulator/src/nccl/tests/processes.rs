//! Ranks as processes, and what needs an environment of its own: faults and reports. This test program starts itself again, for a scene.

use std::process::{Child, Command, Output, Stdio};
use std::time::Instant;

use super::*;
use crate::meet::segment::Id;
use crate::nccl::basics::unique_id;

const SCENE: &str = "GPUCOMM_TEST_SCENE";
const ID: &str = "GPUCOMM_TEST_ID";
const RANK: &str = "GPUCOMM_TEST_RANK";
const SIZE: &str = "GPUCOMM_TEST_SIZE";
const FAULTS: &str = crate::fault::VARIABLE;
const DEAD_PEER: &str = "GPUCOMM_EMULATOR_DEAD_PEER";

/// What a child prints when it has come to the end of its scene.
const DONE: &str = "the scene was played";

fn start(scene: &str, size: usize, rank: usize, id: &ncclUniqueId, env: &[(&str, &str)]) -> Child {
    let words = unique_id::read(id).words().map(|word| word.to_string()).join(",");
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "nccl::tests::processes::scene", "--ignored", "--nocapture"])
        .envs([(SCENE, scene), (ID, &words), (RANK, &rank.to_string()), (SIZE, &size.to_string())])
        .envs(env.iter().copied())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a process")
}

/// Plays a scene with a process for each rank, under a time limit.
pub(super) fn play(scene: &'static str, size: usize, env: &'static [(&str, &str)]) -> Vec<Output> {
    within_limit(move || {
        let id = unique_id();
        let children: Vec<Child> = (0..size).map(|rank| start(scene, size, rank, &id, env)).collect();
        children.into_iter().map(|child| child.wait_with_output().expect("the process ends")).collect()
    })
}

fn well(output: &Output) -> bool {
    output.status.success() && String::from_utf8_lossy(&output.stdout).contains(DONE)
}

pub(super) fn all_well(outputs: &[Output]) {
    for output in outputs {
        assert!(well(output), "{output:?}");
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn processes_reduce_split_exchange_and_register() {
    all_well(&play("work", 3, &[]));
}

/// Plays a scene in which rank 1 of three ends with `status`.
fn without_one(scene: &'static str, status: i32, env: &'static [(&str, &str)]) {
    let outputs = play(scene, 3, env);
    assert_eq!(outputs[1].status.code(), Some(status), "{outputs:?}");
    assert!(well(&outputs[0]) && well(&outputs[2]), "{outputs:?}");
}

#[test]
fn nobody_is_told_of_a_process_that_ends() {
    without_one("leave", 7, &[]);
}

#[test]
fn over_a_network_a_process_that_ends_is_a_remote_error_after_a_while() {
    without_one("leave", 7, &[(DEAD_PEER, "told")]);
}

#[test]
fn operations_end_with_a_process_if_that_is_asked_for() {
    without_one("leave", 7, &[(DEAD_PEER, "ends")]);
}

#[test]
fn a_rank_that_is_told_to_die_takes_its_process_with_it() {
    without_one("survive", 99, &[(FAULTS, "die=rank1@op3")]);
}

#[test]
fn a_thread_that_is_told_to_die_is_dead_to_the_others() {
    all_well(&play("dead thread", 1, &[(FAULTS, "die=rank1@op2")]));
    all_well(&play("dead thread", 1, &[(FAULTS, "die=rank1@op2"), (DEAD_PEER, "ends")]));
}

#[test]
fn a_rank_hangs_until_it_is_aborted() {
    all_well(&play("hang", 1, &[(FAULTS, "hang=rank1@op2")]));
}

#[test]
fn a_late_rank_makes_the_others_late() {
    all_well(&play("late", 1, &[(FAULTS, "late=rank0@op2:200ms")]));
}

#[test]
fn an_asynchronous_error_comes_when_it_is_asked_for() {
    all_well(&play("async error", 1, &[(FAULTS, "async_error=rank0@op2")]));
    all_well(&play("async error", 1, &[(FAULTS, "async_error=rank0@op2"), (DEAD_PEER, "ends")]));
}

#[test]
fn a_rank_whose_device_is_lost_never_comes() {
    all_well(&play("lost device", 1, &[(FAULTS, "lose=device1@op2"), ("GPUCOMM_EMULATOR_LOST", "device")]));
}

#[test]
fn calls_spoil_captures_by_their_class() {
    all_well(&play("captures", 1, &[]));
}

#[test]
fn an_allocation_fails_when_it_is_told_to() {
    all_well(&play("out of memory", 1, &[(FAULTS, "oom=device0@2")]));
}

#[test]
fn faults_that_are_not_understood_stop_init() {
    all_well(&play("nonsense", 1, &[(FAULTS, "die=rank1")]));
}

#[test]
fn the_environment_overrides_what_a_program_asks_for() {
    all_well(&play("does not block", 1, &[("NCCL_COMM_BLOCKING", "0")]));
}

#[test]
fn a_deadlock_is_reported_once_with_who_waits_for_whom() {
    let outputs = play("deadlock", 1, &[("GPUCOMM_EMULATOR_DEADLOCK", "0.3")]);
    all_well(&outputs);
    let text = said(&outputs[0]);
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("deadlock")).collect();
    assert_eq!(lines.len(), 2, "{text}");
    let find = |start: &str| lines.iter().find(|line| line.contains(start)).expect(start);
    let zero = find("rank 0 has waited");
    assert!(zero.contains("AllReduce of 4 elements (collective #3)"), "{zero}");
    assert!(zero.contains("for rank 1, which waits in Recv of 4 elements from rank 0 (operation #9)"), "{zero}");
    assert!(zero.contains("for rank 2, which last finished AllReduce of 4 elements (collective #2)"), "{zero}");
    let one = find("rank 1 has waited");
    assert!(one.contains("for rank 0, which waits in AllReduce"), "{one}");
}

/// Ranks as threads of this process.
fn threads(size: usize, body: impl Fn(&Rank, &Buffer) + Send + Sync + 'static) {
    spmd(size, move |rank| {
        let buffer = Buffer::new(&[1.0; 4]);
        body(rank, &buffer);
        rank.wait();
    });
}

fn abort(rank: &Rank) {
    rank.abort();
}

/// What all threads of this process have used of the cores.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid for a write.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn dead_peer() -> Option<String> {
    std::env::var(DEAD_PEER).ok()
}

/// Whether a dead peer becomes an asynchronous error.
fn told() -> bool {
    dead_peer().is_some()
}

/// What becomes of an operation whose communicator has lost a rank, or failed: it goes on until an abort, and then its
/// result is garbage; or it ends at once, and leaves what was there.
fn ends_or_spins(rank: &Rank, buffer: &Buffer, before: f32) {
    if dead_peer().as_deref() == Some("ends") {
        assert_eq!(failure(rank), ncclResult_t::ncclRemoteError);
        rank.wait();
        assert_eq!(buffer.values(), [before; 4]);
        return abort(rank);
    }
    std::thread::sleep(Duration::from_millis(300));
    assert!(!rank.idle(), "a GPU would wait too");
    assert!(told() || rank.state() == OK || rank.error().contains("injected"), "{}", rank.error());
    abort(rank);
    rank.wait();
    assert_eq!(buffer.values()[..2], [GARBAGE; 2]);
}

/// Waits until the communicator has failed.
fn failure(rank: &Rank) -> ncclResult_t {
    let begin = Instant::now();
    while rank.state() == OK && begin.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(1));
    }
    rank.state()
}

#[test]
#[ignore = "a part of other tests, which start it as a process"]
fn scene() {
    let get = |name: &str| std::env::var(name).expect(name);
    let number = |name| get(name).parse::<usize>().expect("a number");
    let words: Vec<u64> = get(ID).split(',').map(|word| word.parse().expect("a number")).collect();
    let id = unique_id::of(Id::from_words(words.try_into().expect("four words")));
    let (me, size) = (number(RANK), number(SIZE));
    let join = move || {
        set_device(me);
        let (result, comm) = init(size, id, me, config(true));
        assert_eq!(result, OK, "{}", last_error());
        Rank::new(me, size, comm)
    };
    match get(SCENE).as_str() {
        "work" => work(&join()),
        "does not block" => {
            set_device(me);
            let (result, comm) = init(size, id, me, config(true));
            assert_eq!(result, ncclResult_t::ncclInProgress);
            let (rank, buffer) = (Rank::new(me, size, comm), Buffer::new(&[1.0; 4]));
            rank.settle();
            assert_eq!(rank.to_itself(&buffer), ncclResult_t::ncclInProgress);
            rank.settle();
            rank.wait();
        }
        "leave" => {
            let rank = join();
            rank.connect();
            let buffer = Buffer::new(&[1.0; 4]);
            if me == 1 {
                std::thread::sleep(Duration::from_millis(100));
                // SAFETY: ends the process as a crash would.
                unsafe { libc::_exit(7) };
            }
            assert_eq!(rank.all_reduce(&buffer), OK);
            if told() {
                assert_eq!(failure(&rank), ncclResult_t::ncclRemoteError);
                assert!(rank.error().contains("rank 1 died"), "{}", rank.error());
            }
            ends_or_spins(&rank, &buffer, 1.0);
        }
        "survive" => {
            let rank = join();
            let buffer = Buffer::new(&[1.0; 4]);
            for _ in 1..3 {
                assert_eq!(rank.all_reduce(&buffer), OK, "{}", last_error());
                rank.wait();
            }
            assert_eq!(buffer.values(), [9.0; 4]);
            assert_eq!(rank.all_reduce(&buffer), OK, "{}", last_error());
            ends_or_spins(&rank, &buffer, 9.0);
        }
        "dead thread" => threads(3, |rank, buffer| {
            rank.all_reduce_twice(buffer);
            if rank.rank != 1 {
                ends_or_spins(rank, buffer, 3.0);
                return;
            }
            std::thread::sleep(Duration::from_millis(200));
            assert!(!rank.idle(), "a dead rank does nothing");
            abort(rank);
        }),
        "hang" => threads(2, |rank, buffer| {
            rank.all_reduce_twice(buffer);
            let before = cpu_time();
            std::thread::sleep(Duration::from_millis(500));
            assert!(!rank.idle() && rank.state() == OK);
            let burnt = cpu_time() - before;
            assert!(burnt < Duration::from_millis(100), "waiting took {burnt:?} of a core in 500 ms");
            abort(rank);
            rank.wait();
            assert_eq!(buffer.values(), [GARBAGE, GARBAGE, 2.0, 2.0]);
        }),
        "late" => threads(2, |rank, buffer| {
            // From the first on: a rank may itself begin the second a little late.
            let begin = Instant::now();
            for least in [0, 200, 200] {
                assert_eq!(rank.all_reduce(buffer), OK);
                rank.wait();
                assert!(begin.elapsed() >= Duration::from_millis(least));
            }
            assert_eq!(buffer.values(), [8.0; 4]);
        }),
        "async error" => threads(2, |rank, buffer| {
            rank.all_reduce_twice(buffer);
            if rank.rank == 0 {
                assert_eq!(failure(rank), ncclResult_t::ncclRemoteError);
                assert!(rank.error().contains("rank 0 at operation #2"), "{}", rank.error());
                ends_or_spins(rank, buffer, 2.0);
            } else {
                std::thread::sleep(Duration::from_millis(100));
                assert!(!rank.idle());
                abort(rank);
            }
        }),
        "lost device" => spmd(2, |rank| {
            let buffer = Buffer::new(&[1.0; 4]);
            rank.all_reduce_twice(&buffer);
            std::thread::sleep(Duration::from_millis(300));
            assert!(!rank.idle() && rank.state() == OK);
            if rank.rank == 1 {
                assert_eq!(rank.all_reduce(&buffer), ncclResult_t::ncclUnhandledCudaError);
                assert!(last_error().contains("719"), "{}", last_error());
                return abort(rank);
            }
            std::thread::sleep(Duration::from_millis(300));
            assert!(!rank.idle(), "a GPU would wait too");
            abort(rank);
            rank.wait();
            assert_eq!(buffer.values(), [GARBAGE, GARBAGE, 2.0, 2.0]);
        })
        .clear(),
        "captures" => captures::scene(),
        "forked" => lifecycle::forked(&join()),
        "half a start" => lifecycle::half_a_start(me, id),
        "replays" => replays::scene(&join()),
        "no windows" => windows::none(&join()),
        "out of memory" => {
            let mut at = std::ptr::null_mut();
            // SAFETY: the pointer is valid for a write.
            unsafe {
                assert_eq!(cudaMalloc(&mut at, 4096), cudaError::cudaSuccess);
                assert_eq!(ncclMemAlloc(&mut at, 4096), ncclResult_t::ncclUnhandledCudaError);
                assert_eq!(ncclMemAlloc(&mut at, 4096), OK);
            }
        }
        "nonsense" => {
            assert_eq!(init(1, unique_id(), 0, config(true)).0, ncclResult_t::ncclInvalidUsage);
            assert!(last_error().contains("die=rank1"), "{}", last_error());
        }
        "deadlock" => threads(3, |rank, buffer| {
            rank.connect();
            assert_eq!(rank.all_reduce(buffer), OK);
            match rank.rank {
                0 => assert_eq!(rank.all_reduce(buffer), OK),
                1 => {
                    let datatype = ncclDataType_t::ncclFloat32;
                    // SAFETY: the buffer stays until the stream is idle.
                    assert_eq!(unsafe { ncclRecv(buffer.0, 4, datatype, 0, rank.comm, rank.stream) }, OK);
                }
                _ => {}
            }
            std::thread::sleep(Duration::from_millis(1500));
            abort(rank);
        }),
        other => panic!("no scene {other}"),
    }
    println!("{DONE}");
}

fn work(rank: &Rank) {
    let (me, size, float) = (rank.rank, rank.size, ncclDataType_t::ncclFloat32);
    for count in [1, 1000, 100_000] {
        let (sum, all) = (Buffer::new(&vec![me as f32 + 1.0; count]), Buffer::zeros(size * count));
        assert_eq!(rank.all_reduce(&sum), OK);
        // SAFETY: the buffers stay until the stream is idle.
        unsafe {
            assert_eq!(ncclAllGather(sum.0, all.0, count, float, rank.comm, rank.stream), OK);
            assert_eq!(ncclGroupStart(), OK);
            let (next, previous) = ((me + 1) % size, (me + size - 1) % size);
            assert_eq!(ncclSend(sum.0, count, float, next as i32, rank.comm, rank.stream), OK);
            assert_eq!(ncclRecv(all.0, count, float, previous as i32, rank.comm, rank.stream), OK);
            assert_eq!(ncclGroupEnd(), OK);
        }
        rank.wait();
        assert_eq!(rank.state(), OK, "{}", rank.error());
        assert_eq!(all.values(), vec![6.0; size * count]);
    }
    super::mapped::across_seams(rank);
    let (mut child, mut at, mut window) = (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: the pointers are valid for writes, the memory until it is freed.
    unsafe {
        assert_eq!(ncclCommSplit(rank.comm, 1, -(me as i32), &mut child, std::ptr::null_mut()), OK);
        assert_eq!(ncclMemAlloc(&mut at, 65_536), OK);
        let flags = NCCL_WIN_COLL_SYMMETRIC as i32;
        assert_eq!(ncclCommWindowRegister(child, at, 65_536, &mut window, flags), OK, "{}", last_error());
        at.cast::<f32>().write(me as f32);
        let sum = ncclRedOp_t::ncclSum;
        assert_eq!(ncclAllReduce(at, at, 1, float, sum, child, rank.stream), OK);
        rank.wait();
        assert_eq!(at.cast::<f32>().read(), 3.0);
        assert_eq!(ncclCommWindowDeregister(child, window), OK);
        assert_eq!(ncclMemFree(at), OK);
        assert_eq!(ncclCommDestroy(child), OK);
    }
    rank.end();
}
