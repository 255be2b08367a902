//! What vendor/shim declares of nccl_device.h, which no C compiler of the host has to understand: proved by the one of C++.

use crate::parts::FIRST;
use crate::proof::{self, Language};
use crate::{compiler, skip};

/// The fields of the struct of 2.29.7, the last of which newer versions go on after.
const FIELDS: [&str; 13] = [
    "size",
    "magic",
    "version",
    "rank",
    "nRanks",
    "cudaDev",
    "nvmlDev",
    "deviceApiSupport",
    "multimemSupport",
    "ginType",
    "nLsaTeams",
    "hostRmaSupport",
    "railedGinType",
];

#[test]
fn properties_are_those_of_the_header_for_devices() {
    if cfg!(any(gpucomm_emulator, gpucomm_snapshot)) || cfg!(not(nccl_ge_2_30)) {
        return;
    }
    let Some(language) = compiler(Language::Cxx) else { return };
    let Some(headers) = FIRST.headers() else { return };
    if !headers.includes.iter().any(|dir| dir.join("nccl_device.h").exists()) {
        return skip("nccl_device.h is not on this machine");
    }
    // That header needs what the proofs of others do without; that of 2.30 names types whose headers it does not include.
    let unknown = if cfg!(nccl_ge_2_31) { "" } else { "struct half; struct __nv_bfloat16;\n" };
    let mut text = String::from("#undef __CUDA_RUNTIME_H__\n#define GPUCOMM_PROPERTIES_PROOF\n");
    text.push_str("#include <gpucomm_properties.h>\n");
    text.push_str(unknown);
    text.push_str("#include <nccl_device.h>\n#include <type_traits>\n");
    for field in FIELDS {
        let [ours, theirs] = ["gpucommCommProperties", "ncclCommProperties"].map(|of| format!("{of}, {field}"));
        text.push_str(&format!("static_assert(offsetof({ours}) == offsetof({theirs}), \"where {field} is\");\n"));
        let size = |of: &str| format!("sizeof((({of} *)0)->{field})");
        let (ours, theirs) = (size("gpucommCommProperties"), size("ncclCommProperties"));
        text.push_str(&format!("static_assert({ours} == {theirs}, \"how large {field} is\");\n"));
    }
    let function = "ncclResult_t (*)(ncclComm_t, ncclCommProperties_t *)";
    text.push_str(&format!(
        "static_assert(std::is_same<decltype(&ncclCommQueryProperties), {function}>::value, \"the function\");\n\
         static_assert(NCCL_API_MAGIC == 0xcafebeef, \"what structs begin with\");\n"
    ));
    proof::accepts(&text, &headers, language).expect("the declarations agree");
    let wrong = text.replace("where nLsaTeams is", "x").replace("offsetof(gpucommCommProperties, nLsaTeams)", "1");
    assert!(proof::accepts(&wrong, &headers, language).is_err(), "what differs is seen");
}
