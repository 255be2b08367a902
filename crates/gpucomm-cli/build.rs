//! Passes on what gpucomm was built for: sources and tests ask by `cfg`, and the program finds the libraries that it was
//! linked with, however it is started.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let metadata = |name: &str| std::env::var(format!("DEP_GPUCOMM_{name}")).ok();
    let number = |name: &str| metadata(name).and_then(|value| value.parse::<u32>().ok());
    let nccl = number("NCCL_VERSION").expect("gpucomm is built with its feature `nccl`");
    let cfgs = [
        ("gpucomm_emulator", number("EMULATED") == Some(1)),
        ("nccl_ge_2_24", nccl >= 22400),
        ("nccl_ge_2_28", nccl >= 22800),
    ];
    for (name, holds) in cfgs {
        println!("cargo::rustc-check-cfg=cfg({name})");
        if holds {
            println!("cargo::rustc-cfg={name}");
        }
    }
    // Arguments of the linker hold for the package of a build script only, so the run path that gpucomm sets is not this program's.
    for path in metadata("RUN_PATH").iter().flat_map(|paths| paths.split(':')) {
        // RUNPATH, not RPATH: LD_LIBRARY_PATH goes before it.
        println!("cargo::rustc-link-arg=-Wl,--enable-new-dtags,-rpath,{path}");
    }
}
