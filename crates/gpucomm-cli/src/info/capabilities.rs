//! What NCCL can do on this machine: by the version that is running, and by the version that this program was built
//! for.

use gpucomm::known_bugs::TABLE;
use gpucomm::version::{Version, built_nccl};
use serde_json::{Value, json};

/// Capability, the first version of NCCL that has it, and what it means here when it is there, and when it is not.
type Row = (&'static str, (u32, u32), &'static str, &'static str);

const WINDOWS: &str = "symmetric windows";

const ROWS: [Row; 9] = [
    ("bounded start", (2, 14), "a rank that never comes ends in an error", "a rank that never comes hangs the others"),
    ("memory from NCCL", (2, 19), "ncclMemAlloc", "plain device memory instead"),
    (WINDOWS, (2, 27), "alloc makes them", "CommBuffer is memory from NCCL, without a window"),
    ("all_to_all, gather, scatter", (2, 28), "calls of NCCL", "built on groups of send and recv"),
    ("config: CTAs, network", (2, 17), "min_ctas, max_ctas, cga_cluster_size, net_name", ""),
    ("config: traffic class", (2, 26), "traffic_class", ""),
    ("config: name, CTA policy", (2, 27), "name, collnet_enable, cta_policy, shrink_share, nvls_ctas", ""),
    ("config: scheduling", (2, 28), "channels_per_net_peer, nvlink_centric_sched", ""),
    ("result code for time-outs", (2, 30), "ncclTimeout", "time-outs are errors of the system"),
];

pub fn describe() -> Value {
    let built = built_nccl().version;
    let running = gpucomm::nccl::version();
    let rows = ROWS.map(|(name, since, there, missing)| {
        let has = |version: Version| (version.major, version.minor) >= since;
        let (major, minor) = since;
        let runs = running.as_ref().is_ok_and(|&version| has(version));
        let avoided = name == WINDOWS && running.as_ref().is_ok_and(|&version| windows_are_avoided(version));
        let says = match (runs, has(built)) {
            (true, true) if avoided => format!("only with Config::with_force_windows: known bug {ENDLESS}"),
            (true, true) => there.to_owned(),
            // The running library has it, but its declarations were not there to build against.
            (true, false) => format!("build against NCCL {major}.{minor} or newer to use it"),
            (false, _) if missing.is_empty() => format!("needs NCCL {major}.{minor}"),
            (false, _) => format!("needs NCCL {major}.{minor}; {missing}"),
        };
        let available = runs && has(built) && !avoided;
        json!({ "name": name, "since": format!("{major}.{minor}"), "available": available, "says": says })
    });
    rows.to_vec().into()
}

/// The known bug for which `alloc` makes no windows.
const ENDLESS: &str = "endless-windows";

/// Whether `alloc` makes no windows with this version, although it could.
fn windows_are_avoided(running: Version) -> bool {
    TABLE.iter().any(|bug| bug.name == ENDLESS && bug.concerns(running))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_avoided_before_2_29_7() {
        assert!(windows_are_avoided(Version::new(2, 28, 9)));
        assert!(!windows_are_avoided(Version::new(2, 29, 7)));
    }
}
