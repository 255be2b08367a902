//! Sums of floats that are equal bit by bit in each run, with what asks for that; and what is refused with it.
//!
//! On the emulator switches add up in another order each time (`GPUCOMM_EMULATOR_FLOATS=any-order`), unless they are off.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;

use gpucomm::nccl::{self, Config, InitOptions};
use gpucomm::{
    Backend, Clique, Communicator, DeviceBuffer, Error, InPlace, ReduceOp, Result, Stream, UniqueId, bf16, group,
};

use crate::support::harness::devices;
use crate::support::process::{Finished, Role, spawn};
use crate::support::random::rng;
use crate::support::{Number, assert_names, is_thorough, places, skip, slower, watched};

const CHILD: &str = "determinism::child";

/// On the emulator any two sums differ that are added up in any order, but for the shortest.
fn runs() -> usize {
    match gpucomm::backend() {
        Backend::Nvidia => 100,
        _ if is_thorough() => 20,
        _ => 10,
    }
}

#[test]
#[ignore = "the body of child processes"]
fn child() {
    let roles: [(&str, fn(usize)); 7] = [
        ("sums", sums),
        ("without", without),
        ("configured", configured),
        ("variables", variables),
        ("nothing", nothing),
        ("late", late),
        ("limits", limits),
    ];
    for (name, body) in roles {
        if let Some(role) = Role::of_this_process(name) {
            body(role.size);
            println!("finished");
        }
    }
}

/// A process in which that is done by all devices.
fn run(role: &str, env: &[(&str, &str)]) -> Finished {
    let id = UniqueId::from_bytes([0; UniqueId::BYTES]);
    let all: Vec<_> = [("GPUCOMM_EMULATOR_FLOATS", "any-order")].into_iter().chain(env.iter().copied()).collect();
    let end = spawn(CHILD, role, (0, devices()), &id, &all).finish(slower(120.0));
    end.assert_success();
    assert!(end.text.contains("finished"), "{role}: not run\n{}", end.text);
    end
}

fn prepare() {
    // SAFETY: this process does nothing else yet, and its other thread waits.
    unsafe { nccl::prepare_determinism() }.expect("nothing that contradicts");
}

fn clique(ranks: usize, config: Config) -> Result<Clique> {
    Clique::init_all_with(&places()[..ranks], &InitOptions::new().with_config(config))
}

fn deterministic(ranks: usize) -> Clique {
    clique(ranks, Config::new().with_deterministic(true)).expect("a deterministic clique")
}

fn input<T: Number>(rank: usize, len: usize) -> Vec<T> {
    let mut rng = rng(&format!("{len} {} of rank {rank}", T::KIND));
    (0..len).map(|_| T::nearest(rng.f64() * 2.0 - 1.0)).collect()
}

fn bits<T: Number>(values: &[T]) -> Vec<u64> {
    values.iter().map(|value| value.to_f64().to_bits()).collect()
}

/// One sum: in place or not, in memory of several kinds, at several addresses, with or without something beside it.
fn sum<T: Number>(comm: &Communicator, stream: &Stream, input: &[T], run: usize) -> Result<Vec<u64>> {
    let (len, lead) = (input.len(), 16 * (run % 5));
    let whole = [&vec![T::poison(); lead][..], input].concat();
    let mut other = DeviceBuffer::from_slice(stream, &[T::of(1); 77])?;
    if run % 3 == 1 {
        comm.all_reduce(InPlace(&mut other), ReduceOp::Max, stream)?;
    }
    let result = match run % 4 {
        0 => {
            let mut x = DeviceBuffer::from_slice(stream, &whole)?;
            comm.all_reduce(InPlace(x.slice_mut(lead..)), ReduceOp::Sum, stream)?;
            x.slice(lead..).to_vec(stream)?
        }
        1 => {
            let (x, mut y) = (DeviceBuffer::from_slice(stream, &whole)?, DeviceBuffer::from_slice(stream, &whole)?);
            comm.all_reduce((x.slice(lead..), y.slice_mut(lead..)), ReduceOp::Sum, stream)?;
            y.slice(lead..).to_vec(stream)?
        }
        2 => {
            let mut x = comm.alloc_from(stream, &whole)?;
            comm.all_reduce(InPlace(x.slice_mut(lead..)), ReduceOp::Sum, stream)?;
            x.slice(lead..).to_vec(stream)?
        }
        _ => {
            let x = nccl::alloc(stream, whole.len())?;
            let mut y = nccl::alloc::<T>(stream, whole.len())?;
            let mut x: DeviceBuffer<T> = x;
            x.copy_from_slice(stream, &whole)?;
            let graph = stream
                .capture(|stream| comm.all_reduce((x.slice(lead..), y.slice_mut(lead..)), ReduceOp::Sum, stream))?;
            graph.launch(stream)?;
            y.slice(lead..).to_vec(stream)?
        }
    };
    assert_eq!(result.len(), len);
    stream.synchronize()?;
    Ok(bits(&result))
}

/// How many of the runs have other bits than the first, and these.
fn differing<T: Number>(clique: &Clique, len: usize) -> (usize, Vec<u64>) {
    let all = clique.spmd(|comm| {
        let stream = Stream::new(comm.device())?;
        let input = input::<T>(comm.rank(), len);
        (0..runs()).map(|run| sum(comm, &stream, &input, run)).collect::<Result<Vec<_>>>()
    });
    let all = all.expect("sums");
    for (rank, runs) in all.iter().enumerate() {
        assert_eq!(runs, &all[0], "rank {rank} has other sums than rank 0 ({len} {})", T::KIND);
    }
    let other = all[0].iter().filter(|sums| **sums != all[0][0]).count();
    (other, all[0][0].clone())
}

fn lengths() -> [usize; 5] {
    if gpucomm::backend() == Backend::Nvidia {
        [1, 1021, 32_771, 500_009, 4_000_003]
    } else {
        [1, 17, 1021, 4099, 9973]
    }
}

/// How many sums of a clique have other bits than the first of their kind, of all; and the bits of all first ones, as a number.
fn count(clique: &Clique) -> (usize, u64) {
    let (mut other, mut hasher) = (0, DefaultHasher::new());
    for len in lengths() {
        for (differing, first) in [differing::<f32>(clique, len), differing::<bf16>(clique, len)] {
            other += differing;
            first.hash(&mut hasher);
        }
    }
    (other, hasher.finish())
}

/// Equal within a communicator, in that which is made of it, in another one, and in another process, which compares what is printed.
fn sums(ranks: usize) {
    prepare();
    let whole = deterministic(ranks);
    let (other, first) = count(&whole);
    assert_eq!(other, 0, "sums differ");
    let parts = whole.split(|rank| Some((0, rank))).expect("a part");
    let of = |clique: &Clique| differing::<f32>(clique, 1021);
    let (other, alone) = of(&whole);
    assert_eq!(other, 0);
    assert_eq!(of(&parts[&0]), (0, alone.clone()), "in a part");
    let config = Config::new().with_min_ctas(1);
    let configured = whole.split_with(|rank| Some((0, rank)), |_| config.clone()).expect("a part");
    assert_eq!(of(&configured[&0]).0, 0, "in a part with a configuration");
    drop((parts, configured, whole));
    assert_eq!(of(&deterministic(ranks)), (0, alone), "in a second communicator");
    println!("sums {first:016x}");
}

#[test]
fn sums_are_equal_in_all_runs() {
    watched(240.0, || {
        let of = |end: &Finished| {
            let line = end.text.lines().find(|line| line.starts_with("sums ")).map(str::to_owned);
            line.unwrap_or_else(|| panic!("no sums\n{}", end.text))
        };
        let [one, other] = [run("sums", &[]), run("sums", &[])];
        assert_eq!(of(&one), of(&other), "two processes");
    });
}

/// Without it, where switches may add up. On GPUs that is counted, and no more.
fn without(ranks: usize) {
    let (other, _) = count(&clique(ranks, Config::new()).expect("a clique"));
    println!("without it {other} of {} sums differ from the first of their kind", 10 * runs());
    assert!(other > 0 || ranks < 3 || gpucomm::backend() == Backend::Nvidia, "the emulator adds up in one order");
}

/// Whether a file of this machine or user may say for all processes what these tests want to leave open.
fn is_settled_by_a_file() -> bool {
    let of_user = std::env::home_dir().map(|home| home.join(".nccl.conf"));
    of_user.into_iter().chain(["/etc/nccl.conf".into()]).any(|file| file.exists())
}

#[test]
fn sums_may_differ_without_it() {
    watched(120.0, || {
        if is_settled_by_a_file() {
            return skip("a file sets variables of NCCL for all processes");
        }
        let end = run("without", &[]);
        let line = end.text.lines().find(|line| line.starts_with("without it")).expect("a count");
        // Not `println!`, which is hidden while a test passes.
        let _ = writeln!(std::io::stdout(), "conformance: counted {line}");
    });
}

/// What the configuration alone says, from NCCL 2.32 on.
fn configured(ranks: usize) {
    let differ = |config: Config| differing::<f32>(&clique(ranks, config).expect("a clique"), 1021).0;
    assert_eq!(differ(Config::new().with_deterministic(true)), 0);
    assert!(differ(Config::new()) > 0, "the emulator adds up in one order");
    assert_eq!(differ(Config::new().with_deterministic(true)), 0);
}

#[test]
fn the_configuration_says_it_where_it_can() {
    if cfg!(not(nccl_ge_2_32)) || gpucomm::backend() == Backend::Nvidia {
        return skip("only the emulator is told, by a variable, which version it is");
    }
    if is_settled_by_a_file() {
        return skip("a file sets variables of NCCL for all processes");
    }
    watched(60.0, || {
        let said = [
            ("NCCL_ENV_PLUGIN", "none"),
            ("NCCL_TUNER_PLUGIN", "none"),
            ("NCCL_GRAPH_REGISTER", "0"),
            ("GPUCOMM_EMULATOR_NCCL", "2.32.3"),
        ];
        run("configured", &said);
        // And nothing of it is lost on the way to versions in which only the environment says it.
        run("limits", &said);
    });
}

/// What has to be set is named at once, where nothing is.
fn nothing(ranks: usize) {
    let error = clique(ranks, Config::new().with_deterministic(true)).expect_err("an environment that says nothing");
    let said = |name: &'static str| std::env::var_os(name).is_some();
    let needed = ["NCCL_ENV_PLUGIN", "NCCL_NVLS_ENABLE", "NCCL_TUNER_PLUGIN", "NCCL_GRAPH_REGISTER"];
    // With newer versions the configuration switches NVLS off.
    let names: Vec<_> = needed.into_iter().filter(|name| !said(name) && (*name != NVLS || !SAYS_NVLS)).collect();
    assert!(names.len() > 1, "set from without: {names:?} are left");
    assert!(matches!(error, Error::InvalidArgument { what: "the environment", .. }), "{error:?}");
    assert_names(&error, &names);
    assert_names(&error, &["Clique::init_all_with", "prepare_determinism"]);
}

const NVLS: &str = "NCCL_NVLS_ENABLE";
const SAYS_NVLS: bool = cfg!(nccl_ge_2_32);

/// Each variable that says something else, or nothing where it has to, is named.
fn variables(ranks: usize) {
    prepare();
    for (name, wrong) in [
        ("NCCL_ENV_PLUGIN", "some"),
        ("NCCL_NVLS_ENABLE", "1"),
        ("NCCL_TUNER_PLUGIN", "some"),
        ("NCCL_GRAPH_REGISTER", "1"),
        ("NCCL_COLLNET_ENABLE", "1"),
        ("NCCL_CTA_POLICY", "EFFICIENCY"),
    ] {
        let right = std::env::var_os(name);
        // SAFETY: as in `prepare`.
        unsafe { std::env::set_var(name, wrong) };
        // SAFETY: as in `prepare`.
        let prepared = unsafe { nccl::prepare_determinism() };
        for (operation, attempt) in [
            ("Clique::init_all_with", clique(ranks, Config::new().with_deterministic(true)).map(drop)),
            ("prepare_determinism", prepared),
        ] {
            let error = attempt.expect_err(name);
            assert!(matches!(error, Error::InvalidArgument { what, .. } if what == name), "{error:?}");
            assert_names(&error, &[operation, &format!("got {wrong:?} in the environment")]);
        }
        // SAFETY: as in `prepare`.
        unsafe {
            match right {
                Some(right) => std::env::set_var(name, right),
                None => std::env::remove_var(name),
            }
        }
    }
    // Nothing has used NCCL so far.
    drop(deterministic(ranks));
}

/// What is set after NCCL has read it.
fn late(ranks: usize) {
    drop(clique(ranks, Config::new()).expect("a clique"));
    // SAFETY: as in `prepare`.
    let error = unsafe { nccl::prepare_determinism() }.expect_err("too late");
    assert_names(&error, &["prepare_determinism", "that it is not set when NCCL was first used"]);
    assert!(std::env::var_os("NCCL_GRAPH_REGISTER").is_none(), "something was set");
    // SAFETY: as in `prepare`.
    unsafe {
        std::env::set_var("NCCL_ENV_PLUGIN", "none");
        std::env::set_var("NCCL_NVLS_ENABLE", "0");
        std::env::set_var("NCCL_TUNER_PLUGIN", "none");
        std::env::set_var("NCCL_GRAPH_REGISTER", "0");
    }
    let error = clique(ranks, Config::new().with_deterministic(true)).expect_err("too late");
    assert_names(&error, &["Clique::init_all_with", "that it is not set when NCCL was first used"]);
}

#[test]
fn variables_that_contradict_are_named() {
    watched(60.0, || {
        run("nothing", &[]);
        run("variables", &[]);
        run("late", &[]);
    });
}

/// What such a communicator does not do.
fn limits(ranks: usize) {
    if std::env::var_os("NCCL_GRAPH_REGISTER").is_none() {
        prepare();
    }
    let whole = deterministic(ranks);
    assert_eq!(differing::<f32>(&whole, 1021).0, 0);
    let part = whole.split(|rank| Some((0, rank))).expect("a part").remove(&0).expect("the only one");
    for clique in [&whole, &part] {
        clique.spmd(limits_of).expect("what it does");
    }
    // A part of a deterministic one may say that it is not.
    let free = whole.split_with(|rank| Some((0, rank)), |_| Config::new().with_deterministic(false)).expect("a part");
    let together = free[&0].spmd(|comm| {
        let stream = Stream::new(comm.device())?;
        two_reductions(comm, &stream)
    });
    together.expect("a group of two");
    // Ranks of a part say the same.
    if ranks > 1 {
        let differ = whole.split_with(|rank| Some((0, rank)), |part| Config::new().with_deterministic(part == 0));
        drop(differ.expect("one part"));
        let differ =
            whole.spmd(|comm| comm.split_with(Some(0), 0, &Config::new().with_deterministic(comm.rank() == 0)));
        let error = differ.expect_err("ranks that differ");
        assert!(matches!(error, Error::Disagreement { .. }), "{error:?}");
        assert_names(&error, &["deterministic"]);
    }
}

fn two_reductions(comm: &Communicator, stream: &Stream) -> Result<()> {
    let mut x = DeviceBuffer::<f32>::zeroed(stream, 10)?;
    let mut y = DeviceBuffer::<f32>::zeroed(stream, 10)?;
    group(|g| {
        g.all_reduce(comm, InPlace(&mut x), ReduceOp::Sum, stream)?;
        g.all_reduce(comm, InPlace(&mut y), ReduceOp::Sum, stream)
    })
}

fn limits_of(comm: &Communicator) -> Result<()> {
    let stream = &Stream::new(comm.device())?;
    let n = comm.size();
    let is_unsupported = |result: Result<()>, operation: &str| {
        let error = result.expect_err(operation);
        assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
        assert_names(&error, &[operation, "Config::with_deterministic"]);
    };
    let memory = nccl::alloc::<f32>(stream, 4096)?;
    is_unsupported(comm.window(&memory).map(drop), "window");
    is_unsupported(comm.register(&memory).map(drop), "register");
    is_unsupported(comm.alloc_symmetric::<f32>(stream, 10).map(drop), "alloc_symmetric");
    assert!(!comm.alloc::<f32>(stream, 10)?.is_window());
    let is_refused = |result: Result<()>, operation: &str, calls: &str| {
        let error = result.expect_err(operation);
        assert!(matches!(error, Error::InvalidUsage { .. }), "{error:?}");
        assert_names(&error, &[operation, "its only collective", calls]);
    };
    is_refused(two_reductions(comm, stream), "all_reduce", "got 2");
    let (mut x, mut all) = (DeviceBuffer::from_slice(stream, &[1f32; 10])?, DeviceBuffer::zeroed(stream, 10 * n)?);
    let (send, mut turned) = (DeviceBuffer::from_slice(stream, &vec![1f32; n])?, DeviceBuffer::zeroed(stream, n)?);
    let mut one = DeviceBuffer::<f32>::zeroed(stream, 1)?;
    let beside = group(|g| {
        g.all_gather(comm, (&x, &mut all), stream)?;
        g.reduce_scatter(comm, (&send, &mut one), ReduceOp::Sum, stream)?;
        g.barrier_on_stream(comm, stream)
    });
    is_refused(beside, "reduce_scatter", "got 3");
    // What it does do: messages beside a reduction, other collectives together, and what is one operation.
    group(|g| {
        g.all_reduce(comm, InPlace(&mut x), ReduceOp::Sum, stream)?;
        g.all_to_all(comm, (&send, &mut turned), stream)
    })?;
    group(|g| {
        g.all_gather(comm, (&x, &mut all), stream)?;
        g.broadcast(comm, InPlace(&mut turned), 0, stream)
    })?;
    let mut many = [DeviceBuffer::from_slice(stream, &[1f32; 3])?, DeviceBuffer::from_slice(stream, &[2f32; 5])?];
    comm.all_reduce_many(many.iter_mut().map(InPlace), ReduceOp::Sum, stream)?;
    assert_eq!((x.to_vec(stream)?, turned.to_vec(stream)?), (vec![n as f32; 10], vec![1.0; n]));
    assert_eq!((many[0].to_vec(stream)?, many[1].to_vec(stream)?), (vec![n as f32; 3], vec![2.0 * n as f32; 5]));
    #[cfg(nccl_ge_2_31)]
    if nccl::version()? >= gpucomm::version::Version::new(2, 31, 2) {
        let config = nccl::CallConfig::new().with_cta_policy(nccl::CtaPolicy::Efficiency);
        let error = comm.configured(&config).all_reduce(InPlace(&mut x), ReduceOp::Sum, stream).expect_err("a policy");
        assert_names(&error, &["all_reduce", "cta_policy", "Config::with_deterministic"]);
    }
    comm.barrier_on_stream(stream)?;
    stream.synchronize()
}

#[test]
fn what_cannot_be_equal_is_refused() {
    watched(60.0, || drop(run("limits", &[])));
}
