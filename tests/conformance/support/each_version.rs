//! Tests of what versions of NCCL brought: on the emulator as several of them.

use gpucomm::{Backend, UniqueId};

use super::process::{Role, spawn};
use super::slower::slower;

/// The oldest that a bug of windows leaves room for, the ones in which something came, and the newest.
const VERSIONS: [&str; 4] = ["2.28.9", "2.29.7", "2.30.7", "2.32.3"];

/// Runs `role` of the test `child` of each version, each in a process of its own; on GPUs the installed one.
pub fn each_version(child: &str, role: &str) {
    each_version_with(child, role, &[]);
}

/// The same, with more in the environment.
pub fn each_version_with(child: &str, role: &str, environment: &[(&str, &str)]) {
    let ranks = super::harness::devices();
    let versions = if gpucomm::backend() == Backend::Nvidia { &[""][..] } else { &VERSIONS[..] };
    for version in versions {
        let mut env = environment.to_vec();
        env.extend((!version.is_empty()).then_some(("GPUCOMM_EMULATOR_NCCL", *version)));
        let end = spawn(child, role, (0, ranks), &UniqueId::new().expect("an id"), &env).finish(slower(60.0));
        end.assert_success();
        assert!(end.text.contains("finished"), "{version}: {}", end.text);
    }
}

/// The body of the child: runs the one of `roles` that this process has, if any.
pub fn child(roles: &[(&str, fn(usize))]) {
    for (name, body) in roles {
        if let Some(role) = Role::of_this_process(name) {
            body(role.size);
            println!("finished");
        }
    }
}
