//! What vendor/shim declares of nccl_device.h, which no C compiler of the host has to understand: proved by the one of C++.

use crate::parts::FIRST;
use crate::proof::{self, Headers, Language};
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

/// The headers of the build and the language that understands them, where nccl_device.h is among them; and a text that includes `ours`, and that.
fn device(ours: &str) -> Option<(Headers, Language, String)> {
    if cfg!(any(gpucomm_emulator, gpucomm_snapshot)) || cfg!(not(nccl_ge_2_30)) {
        return None;
    }
    let (language, headers) = (compiler(Language::Cxx)?, FIRST.headers()?);
    if !headers.includes.iter().any(|dir| dir.join("nccl_device.h").exists()) {
        skip("nccl_device.h is not on this machine");
        return None;
    }
    // That header needs what the proofs of others do without; that of 2.30 names types whose headers it does not include.
    let unknown = if cfg!(nccl_ge_2_31) { "" } else { "struct half; struct __nv_bfloat16;\n" };
    let text = format!("#undef __CUDA_RUNTIME_H__\n{ours}{unknown}#include <nccl_device.h>\n#include <type_traits>\n");
    Some((headers, language, text))
}

#[test]
fn addresses_are_asked_for_as_the_header_for_devices_has_it() {
    // C++ takes a second declaration of a function of C only where it is the same.
    let Some((headers, language, mut text)) = device("#include <gpucomm_pointers.h>\n") else { return };
    let at = "ncclResult_t (*)(ncclWindow_t, size_t, int, void **)";
    for (name, function) in [
        ("ncclGetLsaDevicePointer", at),
        ("ncclGetPeerDevicePointer", at),
        ("ncclGetLsaMultimemDevicePointer", "ncclResult_t (*)(ncclWindow_t, size_t, void **)"),
    ] {
        text.push_str(&format!("static_assert(std::is_same<decltype(&{name}), {function}>::value, \"{name}\");\n"));
    }
    proof::accepts(&text, &headers, language).expect("the declarations agree");
    let wrong = text.replace("size_t, int, void", "size_t, long, void");
    assert!(proof::accepts(&wrong, &headers, language).is_err(), "what differs is seen");
}

#[test]
fn properties_are_those_of_the_header_for_devices() {
    let ours = "#define GPUCOMM_PROPERTIES_PROOF\n#include <gpucomm_properties.h>\n";
    let Some((headers, language, mut text)) = device(ours) else { return };
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
