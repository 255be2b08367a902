//! The threads that run the program of a clique: what they are called, and where they run.

use gpucomm::{Backend, Clique, Device, Result};

use crate::support::alone::{alone_with, is_alone};
use crate::support::{Rig, rank_counts, skip, slower, watched};

/// A line of what the system says of this thread.
fn status(key: &str) -> String {
    let text = std::fs::read_to_string("/proc/thread-self/status").expect("the state of this thread");
    text.lines().find_map(|line| line.strip_prefix(key)).expect("the line").trim().to_owned()
}

#[test]
fn they_have_names() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 4]) {
            let rig = Rig::new(ranks);
            let names = rig.run(|_, _| Ok(std::fs::read_to_string("/proc/thread-self/comm").expect("a name")));
            for (rank, name) in names.iter().enumerate() {
                assert_eq!(name.trim(), format!("gpucomm r{rank}"));
            }
            rig.close();
        }
    });
}

/// Where they run, before and after they were to be kept near their devices, and what the devices say.
fn places() -> [String; 3] {
    let clique = Clique::init_all(&Device::all().unwrap()[..1]).unwrap();
    let place = || clique.spmd(|_| Ok(status("Cpus_allowed_list:"))).unwrap().remove(0);
    let before = place();
    assert!(!clique.is_pinned());
    clique.set_pinned(true);
    assert!(clique.is_pinned());
    let near = clique.rank(0).device().local_cores().unwrap();
    [before, place(), format!("{near:?}")]
}

/// The system says which core is near the device: here it is a tree of files.
#[test]
fn they_are_kept_near_their_devices() {
    if is_alone() {
        let [before, after, near] = places();
        println!("before {before}; after {after}; near {near}");
        return;
    }
    let test = "threads::they_are_kept_near_their_devices";
    if gpucomm::backend() == Backend::Nvidia {
        return skip("devices of the emulator are where a tree of files says that they are");
    }
    let allowed = status("Cpus_allowed_list:");
    let last = allowed.rsplit([',', '-']).next().expect("a core").to_owned();
    let root = std::env::temp_dir().join(format!("gpucomm-near-{}", std::process::id()));
    let place = root.join("bus/pci/devices").join(bus_id().unwrap());
    std::fs::create_dir_all(&place).unwrap();
    let run = |node: &str| {
        std::fs::write(place.join("numa_node"), node).unwrap();
        // The others of the node are not for this process.
        std::fs::write(place.join("local_cpulist"), format!("{last},1021-1023")).unwrap();
        let end = alone_with(test, &[("GPUCOMM_SYSFS", root.to_str().expect("text"))]).finish(slower(60.0));
        end.assert_success();
        end.text
    };
    let near = run("0");
    assert!(near.contains(&format!("before {allowed}; after {last}; near Some([{last}, 1021, 1022, 1023])")), "{near}");
    let unknown = run("-1");
    assert!(unknown.contains(&format!("before {allowed}; after {allowed}; near None")), "{unknown}");
    std::fs::remove_dir_all(root).unwrap();
}

fn bus_id() -> Result<String> {
    Ok(Device::new(0)?.pci_bus_id()?.to_ascii_lowercase())
}
