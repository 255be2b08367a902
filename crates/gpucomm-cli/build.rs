//! Passes on what gpucomm was built for, so that sources and tests can ask by `cfg`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u32>().ok());
    let nccl = number("DEP_GPUCOMM_NCCL_VERSION").expect("gpucomm is built with its feature `nccl`");
    let cfgs = [
        ("gpucomm_emulator", number("DEP_GPUCOMM_EMULATED") == Some(1)),
        ("nccl_ge_2_24", nccl >= 22400),
        ("nccl_ge_2_28", nccl >= 22800),
    ];
    for (name, holds) in cfgs {
        println!("cargo::rustc-check-cfg=cfg({name})");
        if holds {
            println!("cargo::rustc-cfg={name}");
        }
    }
}
