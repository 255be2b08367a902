//! Environments in which no communicator is made.

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
        () if Role::of_this_process("elsewhere").is_some() => {
            return drop(Clique::init_all(&[Device::new(0).expect("a device")]).expect("a clique"));
        }
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

/// A child whose communicators share what they have with their parts, or do not: what shares ends with the last.
#[test]
#[ignore = "a child of the test below"]
fn sharing_child() {
    let shares = match () {
        () if Role::of_this_process("sharing").is_some() => true,
        () if Role::of_this_process("not sharing").is_some() => false,
        () => return,
    };
    if shares {
        crate::adopted::is_refused_where_all_share();
    }
    for configured in [true, false] {
        let config = gpucomm::nccl::Config::new().with_split_share(configured);
        let options = gpucomm::nccl::InitOptions::new().with_config(config);
        let whole = Clique::init_all_with(&[Device::new(0).expect("a device")], &options).expect("a clique");
        let part = whole.split(|_| Some((0, 0))).expect("a part").remove(&0).expect("the only one");
        let (part_ends, whole_ends) = (part.rank(0).aborter(), whole.rank(0).aborter());
        part.close_timeout(slower(10.0)).expect("its end");
        assert_eq!(part_ends.state().is_some_and(|state| state != gpucomm::nccl::CommState::Closed), shares);
        assert!(whole_ends.is_active());
        whole.close_timeout(slower(10.0)).expect("its end");
        assert!(part_ends.state().is_none_or(|state| state == gpucomm::nccl::CommState::Closed));
    }
}

/// A child whose environment says so.
fn with_variable(role: &str, variable: (&str, &str)) {
    all_succeed(spawn_all(HIDDEN, role, 1, &[variable]), slower(40.0));
}

/// The environment comes before what a communicator was made with.
#[test]
fn what_shares_its_resources() {
    watched(60.0, || {
        for (role, value) in [("sharing", "1"), ("not sharing", "0")] {
            let variable = ("NCCL_COMM_SPLIT_SHARE_RESOURCES", value);
            all_succeed(spawn_all("environment::sharing_child", role, 1, &[variable]), slower(40.0));
        }
    });
}

/// A child to which a file of NCCL's says so.
fn with_file(role: &str, text: &str) {
    let file = std::env::temp_dir().join(format!("gpucomm-nccl-{role}-{}.conf", std::process::id()));
    std::fs::write(&file, text).expect("a file");
    with_variable(role, ("NCCL_CONF_FILE", file.to_str().expect("a path in UTF-8")));
    std::fs::remove_file(&file).expect("the file");
}

#[test]
fn communicators_that_would_not_block_are_refused() {
    watched(60.0, || {
        with_variable("blocking", ("NCCL_COMM_BLOCKING", "0"));
        with_file("file", "NCCL_COMM_BLOCKING=0\n");
    });
}

/// Of 2.30.3 and newer, which also take lines as other systems end them. Before, the file is where the user database says.
#[test]
fn the_file_of_a_user_is_where_home_says() {
    watched(60.0, || {
        let home = std::env::temp_dir().join(format!("gpucomm-home-{}", std::process::id()));
        std::fs::create_dir_all(&home).expect("a directory");
        std::fs::write(home.join(".nccl.conf"), "NCCL_COMM_BLOCKING=0\r\n").expect("a file");
        for (role, version) in [("file", "2.30.7"), ("elsewhere", "2.29.7")] {
            let env = [("HOME", home.to_str().expect("a path in UTF-8")), ("GPUCOMM_EMULATOR_NCCL", version)];
            if gpucomm::backend() == gpucomm::Backend::Emulator {
                all_succeed(spawn_all(HIDDEN, role, 1, &env), slower(40.0));
            }
        }
        std::fs::remove_dir_all(&home).expect("the directory");
    });
}

#[test]
fn copy_engines_are_refused() {
    watched(60.0, || {
        with_variable("engines", ("NCCL_CTA_POLICY", "2"));
        with_file("named", "NCCL_DEBUG=WARN\nNCCL_CTA_POLICY=Zero\n");
        #[cfg(nccl_ge_2_27)]
        {
            let config = gpucomm::nccl::Config::new().with_cta_policy(gpucomm::nccl::CtaPolicy::CopyEngines);
            let options = gpucomm::nccl::InitOptions::new().with_config(config);
            let error = Clique::init_all_with(&[Device::new(0).expect("a device")], &options).expect_err("a clique");
            assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
            assert_names(&error, &["Clique::init_all", "cta_policy", "0 or 1", "2"]);
        }
    });
}
