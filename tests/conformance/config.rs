//! Configurations: each field that a version has does no harm, what it has not is refused by name, and so is what it would not take.

#[cfg(nccl_ge_2_27)]
use gpucomm::nccl::CtaPolicy;
#[cfg(nccl_ge_2_29)]
use gpucomm::nccl::GraphUsage;
#[cfg(nccl_ge_2_31)]
use gpucomm::nccl::HostCft;
#[cfg(nccl_ge_2_32)]
use gpucomm::nccl::NvlsHost;
use gpucomm::nccl::{Config, InitOptions};
use gpucomm::version::Version;
use gpucomm::{Clique, DeviceBuffer, Error, InPlace, NcclCode, ReduceOp, Result, Stream};

use crate::support::each_version::{child as run_role, each_version};
use crate::support::{assert_argument, assert_names, places, watched};

const CHILD: &str = "config::child";

#[test]
#[ignore = "the body of child processes"]
fn child() {
    run_role(&[("fields", fields), ("nonsense", nonsense), ("alone", alone)]);
}

fn clique(ranks: usize, config: Config) -> Result<Clique> {
    Clique::init_all_with(&places()[..ranks], &InitOptions::new().with_config(config))
}

/// A sum over the ranks, which it computes right.
fn adds_up(clique: &Clique) {
    let sums = clique.spmd(|comm| {
        let stream = Stream::new(comm.device())?;
        let mut values = DeviceBuffer::from_slice(&stream, &[1u32 << comm.rank(); 1021])?;
        comm.all_reduce(InPlace(&mut values), ReduceOp::Sum, &stream)?;
        values.to_vec(&stream)
    });
    let want = vec![vec![(1u32 << clique.size()) - 1; 1021]; clique.size()];
    assert_eq!(sums.unwrap(), want);
}

/// A field, by its name here, and the first version that has it.
type Field = (&'static str, (u32, u32, u32), Config);

fn all_fields() -> Vec<Field> {
    let new = Config::new;
    #[cfg_attr(not(nccl_ge_2_26), allow(unused_mut))]
    let mut all: Vec<Field> = vec![
        ("cga_cluster_size", (2, 17, 1), new().with_cga_cluster_size(2)),
        ("min_ctas", (2, 17, 1), new().with_min_ctas(3)),
        ("max_ctas", (2, 17, 1), new().with_max_ctas(5)),
        ("split_share", (2, 18, 1), new().with_split_share(true)),
        // Works with every NCCL.
        ("name", (2, 17, 1), new().with_name("the name").unwrap()),
    ];
    #[cfg(nccl_ge_2_26)]
    all.push(("traffic_class", (2, 26, 2), new().with_traffic_class(0)));
    #[cfg(nccl_ge_2_27)]
    all.extend([
        ("collnet_enable", (2, 27, 3), new().with_collnet_enable(false)),
        ("cta_policy", (2, 27, 3), new().with_cta_policy(CtaPolicy::Efficiency)),
        ("shrink_share", (2, 27, 3), new().with_shrink_share(false)),
        ("nvls_ctas", (2, 27, 3), new().with_nvls_ctas(4)),
    ]);
    #[cfg(nccl_ge_2_28)]
    all.extend([
        ("channels_per_net_peer", (2, 28, 3), new().with_channels_per_net_peer(2)),
        ("nvlink_centric_sched", (2, 28, 3), new().with_nvlink_centric_sched(true)),
    ]);
    #[cfg(nccl_ge_2_29)]
    all.extend([
        ("graph_usage", (2, 29, 2), new().with_graph_usage(GraphUsage::None)),
        ("graph_usage", (2, 29, 2), new().with_graph_usage(GraphUsage::Mixed)),
        ("num_rma_ctx", (2, 29, 2), new().with_num_rma_ctx(2)),
    ]);
    #[cfg(nccl_ge_2_30)]
    all.push(("max_p2p_peers", (2, 30, 3), new().with_max_p2p_peers(1)));
    #[cfg(nccl_ge_2_30_7)]
    {
        all.push(("graph_stream_ordering", (2, 30, 7), new().with_graph_stream_ordering(true)));
        // The older of the two is asked for first.
        if gpucomm::nccl::version().unwrap() >= Version::new(2, 29, 2) {
            let both = new().with_graph_stream_ordering(false).with_graph_usage(GraphUsage::One);
            all.push(("graph_stream_ordering", (2, 30, 7), both));
        }
    }
    #[cfg(nccl_ge_2_31)]
    all.extend([
        ("launch_order_implicit", (2, 31, 2), new().with_launch_order_implicit(false)),
        ("num_rma_sig", (2, 31, 2), new().with_num_rma_sig(3)),
        ("rma_eager_init", (2, 31, 2), new().with_rma_eager_init(false)),
        ("host_cft", (2, 31, 2), new().with_host_cft(HostCft::Fallback)),
        ("host_cft", (2, 31, 2), new().with_host_cft(HostCft::Disable)),
    ]);
    #[cfg(nccl_ge_2_32)]
    all.extend([
        ("nvls_host", (2, 32, 3), new().with_nvls_host(NvlsHost::OFF)),
        (
            "nvls_host",
            (2, 32, 3),
            new().with_nvls_host(NvlsHost::WITHOUT_TRANSPORT | NvlsHost::WITHOUT_SYMMETRIC_MULTIMEM),
        ),
    ]);
    all
}

fn fields(ranks: usize) {
    let running = gpucomm::nccl::version().unwrap();
    for (name, (major, minor, patch), config) in all_fields() {
        let first = Version::new(major, minor, patch);
        match clique(ranks, config) {
            Ok(clique) => {
                assert!(running >= first, "{name}: NCCL {running} would ignore it");
                adds_up(&clique);
            }
            Err(error) => {
                assert!(running < first, "{name}: {error}");
                assert!(matches!(error, Error::Unsupported { .. }), "{name}: {error:?}");
                let (needed, runs) = (format!("NCCL {first} or newer"), format!("{running} is running"));
                assert_names(&error, &["Clique::init_all_with", &needed, &runs, &format!("(for {name})")]);
            }
        }
    }
}

/// What NCCL refuses without a name, or takes for something else.
fn nonsense(ranks: usize) {
    let running = gpucomm::nccl::version().unwrap();
    let new = Config::new;
    #[cfg_attr(not(nccl_ge_2_27), allow(unused_mut))]
    let mut wrong: Vec<(Field, &str, &str)> = vec![
        (("cga_cluster_size", (2, 17, 1), new().with_cga_cluster_size(9)), "0 to 8", "9"),
        (("min_ctas", (2, 17, 1), new().with_min_ctas(0)), "at least 1", "0"),
        (("max_ctas", (2, 17, 1), new().with_max_ctas(-1)), "at least 1", "-1"),
        (("min_ctas", (2, 17, 1), new().with_min_ctas(9).with_max_ctas(8)), "at most max_ctas, which is 8", "9"),
    ];
    #[cfg(nccl_ge_2_27)]
    wrong.extend([
        (("nvls_ctas", (2, 27, 3), new().with_nvls_ctas(0)), "at least 1", "0"),
        (("cta_policy", (2, 27, 3), new().with_cta_policy(CtaPolicy::CopyEngines)), "0 or 1", "2"),
    ]);
    #[cfg(nccl_ge_2_28)]
    wrong.push((("channels_per_net_peer", (2, 28, 3), new().with_channels_per_net_peer(65)), "1 to 64", "65"));
    #[cfg(nccl_ge_2_29)]
    wrong.push((("num_rma_ctx", (2, 29, 2), new().with_num_rma_ctx(-1)), "at least 0", "-1"));
    #[cfg(nccl_ge_2_30)]
    wrong.push((("max_p2p_peers", (2, 30, 3), new().with_max_p2p_peers(0)), "at least 1", "0"));
    #[cfg(nccl_ge_2_30_7)]
    {
        let unordered = || new().with_graph_stream_ordering(false);
        let mixed = unordered().with_graph_usage(GraphUsage::Mixed);
        wrong.extend(
            [unordered(), mixed]
                .map(|config| (("graph_stream_ordering", (2, 30, 7), config), "graph_usage None or One", "false")),
        );
    }
    for ((name, (major, minor, patch), config), expected, got) in wrong {
        if running < Version::new(major, minor, patch) {
            continue;
        }
        let refused = clique(ranks, config).map(drop);
        let error = refused.clone().expect_err(name);
        assert_names(&error, &[name]);
        assert_argument(refused, "Clique::init_all_with", expected, got);
    }
    assert!(new().with_net_name("a\0b").is_err());
}

/// Up to 2.30 NCCL refuses a least number of thread blocks without a most.
fn alone(ranks: usize) {
    adds_up(&clique(ranks, Config::new().with_min_ctas(2)).unwrap());
    // SAFETY: NCCL takes the number, or refuses it.
    let raw = unsafe { Config::new().with_raw(|config| config.minCTAs = 2) };
    let made = clique(ranks, raw).map(|clique| adds_up(&clique));
    match gpucomm::nccl::version().unwrap() {
        version if version < Version::new(2, 31, 0) => {
            let error = made.expect_err("the bug that is gone around is not there");
            assert!(matches!(error, Error::Nccl { code: NcclCode(4), .. }), "{error:?}");
        }
        _ => made.unwrap(),
    }
}

#[test]
fn each_field_does_no_harm_or_is_refused_by_name() {
    watched(200.0, || each_version(CHILD, "fields"));
}

#[test]
fn nonsense_is_refused_by_name() {
    watched(200.0, || each_version(CHILD, "nonsense"));
}

#[test]
fn the_least_number_of_thread_blocks_stands_alone() {
    watched(200.0, || each_version(CHILD, "alone"));
}
