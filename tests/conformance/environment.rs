//! Environments in which no communicator is made.

use std::time::Duration;

use gpucomm::{Clique, Communicator, Device, Error, UniqueId};

use crate::support::process::{Role, all_succeed, spawn_all};
use crate::support::{assert_names, slower, watched};

const HIDDEN: &str = "environment::in_a_child";

/// A child, whose attempts all end in an error that names the variable.
#[test]
#[ignore = "a child of the tests below"]
fn in_a_child() {
    let (what, expected, got) = match () {
        () if Role::of_this_process("blocking").is_some() => ("NCCL_COMM_BLOCKING", "1", "\"0\" in the environment"),
        () if Role::of_this_process("file").is_some() => ("NCCL_COMM_BLOCKING", "1", "\"0\" in /"),
        () if Role::of_this_process("engines").is_some() => ("NCCL_CTA_POLICY", "0 or 1", "\"2\" in the environment"),
        () if Role::of_this_process("named").is_some() => ("NCCL_CTA_POLICY", "0 or 1", "\"Zero\" in /"),
        () => return,
    };
    let device = Device::new(0).expect("a device");
    let id = UniqueId::from_bytes([0; UniqueId::BYTES]);
    let attempts = [
        UniqueId::new().map(drop),
        Clique::init_all(&[device]).map(drop),
        // SAFETY: one rank, which issues nothing.
        unsafe { Communicator::init_rank(device, 1, &id, 0) }.map(drop),
    ];
    for attempt in attempts {
        let error = attempt.expect_err("a communicator");
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
        assert_names(&error, &[what, expected, got]);
    }
}

#[test]
fn communicators_that_would_not_block_are_refused() {
    watched(60.0, || {
        let within = slower(Duration::from_secs(40).as_secs_f64());
        all_succeed(spawn_all(HIDDEN, "blocking", 1, &[("NCCL_COMM_BLOCKING", "0")]), within);
        let file = std::env::temp_dir().join(format!("gpucomm-nccl-{}.conf", std::process::id()));
        std::fs::write(&file, "NCCL_COMM_BLOCKING=0\n").expect("a file");
        let path = file.to_str().expect("a path in UTF-8");
        all_succeed(spawn_all(HIDDEN, "file", 1, &[("NCCL_CONF_FILE", path)]), within);
        std::fs::remove_file(&file).expect("the file");
    });
}

#[test]
fn copy_engines_are_refused() {
    watched(60.0, || {
        let within = slower(Duration::from_secs(40).as_secs_f64());
        all_succeed(spawn_all(HIDDEN, "engines", 1, &[("NCCL_CTA_POLICY", "2")]), within);
        let file = std::env::temp_dir().join(format!("gpucomm-nccl-policy-{}.conf", std::process::id()));
        std::fs::write(&file, "NCCL_DEBUG=WARN\nNCCL_CTA_POLICY=Zero\n").expect("a file");
        let path = file.to_str().expect("a path in UTF-8");
        all_succeed(spawn_all(HIDDEN, "named", 1, &[("NCCL_CONF_FILE", path)]), within);
        std::fs::remove_file(&file).expect("the file");
        #[cfg(nccl_ge_2_27)]
        for policy in [2, 3] {
            let config = gpucomm::nccl::Config::new().cta_policy(policy);
            let options = gpucomm::nccl::InitOptions { config, ..Default::default() };
            let error = Clique::init_all_with(&[Device::new(0).expect("a device")], &options).expect_err("a clique");
            assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
            assert_names(&error, &["Clique::init_all", "cta_policy", "0 or 1", &policy.to_string()]);
        }
    });
}
