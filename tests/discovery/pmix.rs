//! Where PMIx is found, whose library has numbers of its own, and the exact text when it is not there.

use crate::headers::Version;
use crate::library::PMIX;
use crate::machine::{ARM, Machine, X86, expected};

fn header(Version(major, minor, patch): Version) -> String {
    format!(
        "#define PMIX_VERSION_MAJOR {major}L\n#define PMIX_VERSION_MINOR {minor}L\n#define PMIX_VERSION_RELEASE {patch}L\n"
    )
}

const V: Version = Version(4, 2, 2);

impl Machine {
    fn pmix(&self, include: &str, lib: &str, version: Version) {
        self.file(&format!("{include}/pmix_version.h"), &header(version));
        self.library(&format!("{lib}/libpmix.so.2.6.2"));
        self.link(&format!("{lib}/libpmix.so.2"), "libpmix.so.2.6.2");
        self.link(&format!("{lib}/libpmix.so"), "libpmix.so.2.6.2");
    }
}

#[test]
fn debian_has_a_directory_for_it() {
    for (target, dir) in [(X86, "x86_64-linux-gnu"), (ARM, "aarch64-linux-gnu")] {
        let machine = Machine::on(target);
        let prefix = format!("usr/lib/{dir}/pmix2");
        machine.pmix(&format!("{prefix}/include"), &format!("{prefix}/lib"), V);
        let file = format!("{prefix}/lib/libpmix.so.2");
        assert_eq!(machine.found(&PMIX), expected(&format!("{prefix}/include"), &file, &prefix));
        assert_eq!(machine.find(&PMIX).expect("it is there").version, V);
    }
}

#[test]
fn variables_name_it_whatever_its_version() {
    for version in [Version(3, 1, 7), Version(5, 0, 1), Version(6, 1, 0)] {
        for name in ["PMIX_HOME", "PMIX_ROOT"] {
            let mut machine = Machine::new();
            machine.pmix("usr/include", "usr/lib64", V);
            machine.pmix("opt/openpmix/include", "opt/openpmix/lib", version);
            machine.set(name, "opt/openpmix");
            let file = "opt/openpmix/lib/libpmix.so.2";
            assert_eq!(machine.found(&PMIX), expected("opt/openpmix/include", file, name));
        }
    }
    let mut machine = Machine::new();
    machine.pmix("headers", "elsewhere", V);
    machine.set("PMIX_INCLUDE_DIR", "headers");
    machine.set("PMIX_LIB_DIR", "elsewhere");
    let origin = "PMIX_INCLUDE_DIR and PMIX_LIB_DIR";
    assert_eq!(machine.found(&PMIX), expected("headers", "elsewhere/libpmix.so.2", origin));
}

#[test]
fn nothing_anywhere() {
    let machine = Machine::new();
    machine.pmix("usr/local/include", "usr/local/lib", Version(2, 2, 5));
    machine.file("opt/pmix/include/pmix_version.h", &header(V));
    let text = "\
error: PMIx not found (need pmix_version.h >= 3.1 and libpmix.so[.2])
  PMIX_INCLUDE_DIR / PMIX_LIB_DIR  unset
  PMIX_HOME, PMIX_ROOT  unset
  pkg-config pmix  not installed
  NVHPC_ROOT  unset
  CONDA_PREFIX  unset
  VIRTUAL_ENV  unset
  ROOT/usr/lib/x86_64-linux-gnu/pmix2/include/pmix_version.h  missing
  ROOT/usr/include/pmix_version.h  missing
  ROOT/usr/local/include/pmix_version.h  2.2.5 (too old)
  ROOT/opt/pmix/include/pmix_version.h  headers of 4.2.2, but no libpmix.so[.2] beside them
  fix: apt install libpmix-dev | export PMIX_HOME=/path | leave out the feature pmix
";
    assert_eq!(machine.failure(&PMIX), text);
}
