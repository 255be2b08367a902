//! The driver, and whether it is new enough for the runtime.

use super::super::finding::Finding;
use super::super::machine::Machine;
use crate::libraries::cuda;

const CHECK: &str = "driver";

/// What the kernel's module says of itself.
const MODULE: &str = "/proc/driver/nvidia/version";

pub fn check(machine: &Machine) -> Vec<Finding> {
    vec![driver(machine)]
}

fn driver(machine: &Machine) -> Finding {
    if machine.is_emulated {
        let advice = "build gpucomm without its feature `emulator` to use GPUs";
        return Finding::note(CHECK, "the CPU emulator stands for driver and GPUs", advice);
    }
    let driver = match &machine.driver {
        Ok(0) => return none(machine),
        Ok(code) => *code,
        Err(error) => {
            let found = format!("the driver does not say its version: {error}");
            return Finding::problem(CHECK, found, "`nvidia-smi` tells whether the driver works at all");
        }
    };
    let supports = format!("the driver supports CUDA {}", cuda(driver));
    let runtime = match &machine.runtime {
        Ok(code) => *code,
        Err(error) => {
            let found = format!("{supports}; the CUDA runtime does not say its version: {error}");
            return Finding::problem(CHECK, found, "install a CUDA runtime that works with this driver");
        }
    };
    let found = format!("{supports}, the runtime is CUDA {}", cuda(runtime));
    if driver / 1000 < runtime / 1000 {
        let advice = format!(
            "install a driver for CUDA {} or newer, or its package of forward compatibility; or use a runtime of CUDA {}",
            cuda(runtime),
            driver / 1000
        );
        return Finding::problem(CHECK, found, advice);
    }
    if driver < runtime {
        let advice =
            "that works within one major version, but for kernels that come as PTX: a newer driver takes these too";
        return Finding::note(CHECK, found, advice);
    }
    Finding::ok(CHECK, found)
}

fn none(machine: &Machine) -> Finding {
    if machine.files.exists(MODULE) {
        let advice = "in a container: start it with GPUs (`--gpus all`, or NVIDIA's container toolkit); else install the driver's \
                      libraries";
        return Finding::problem(CHECK, "the kernel has NVIDIA's module, but libcuda.so.1 is not to be found", advice);
    }
    let advice = "install NVIDIA's driver, and see that `nvidia-smi` lists the GPUs";
    Finding::problem(CHECK, "there is no driver: the kernel has no module of NVIDIA's", advice)
}

#[cfg(test)]
mod tests {
    use super::super::super::fake::{Fake, only};
    use super::super::super::finding::Verdict;
    use super::*;

    fn found(files: &Fake, driver: Result<i32, &str>, runtime: i32) -> (Verdict, String) {
        let driver = driver.map_err(str::to_owned);
        only(&check(&Machine { driver, runtime: Ok(runtime), ..files.machine(&[]) }), CHECK)
    }

    #[test]
    fn old_new_and_none() {
        let bare = Fake::default();
        assert_eq!(found(&bare, Ok(13000), 13000).0, Verdict::Ok);
        assert_eq!(found(&bare, Ok(13020), 13000).0, Verdict::Ok);
        assert_eq!(found(&bare, Ok(12020), 12080).0, Verdict::Note);
        let (verdict, text) = found(&bare, Ok(12080), 13000);
        assert!(verdict == Verdict::Problem && text.contains("12.8") && text.contains("13.0"), "{text}");
        let (verdict, text) = found(&bare, Ok(0), 13000);
        assert!(verdict == Verdict::Problem && text.contains("no module"), "{text}");
        let (verdict, text) = found(&bare.clone().file(MODULE, "NVRM version: 580"), Ok(0), 13000);
        assert!(verdict == Verdict::Problem && text.contains("--gpus all"), "{text}");
        let (verdict, text) = found(&bare, Err("it broke"), 13000);
        assert!(verdict == Verdict::Problem && text.contains("it broke"), "{text}");
    }

    #[test]
    fn the_emulator_says_that_it_is_one() {
        let files = Fake::default();
        let machine = Machine { is_emulated: true, driver: Ok(0), ..files.machine(&[]) };
        assert_eq!(only(&check(&machine), CHECK).0, Verdict::Note);
    }
}
