//! The proof can fail: bindings that are wrong in one place are refused with the name of that place.

use crate::items;
use crate::parts::{self, FIRST, Part};
use crate::proof::{self, Language};
use crate::{LANGUAGES, compiler};

/// The bindings with `before` as `after`, once.
fn with(part: Part, before: &str, after: &str) -> String {
    assert!(part.text.contains(before), "the bindings do not hold {before:?}");
    part.text.replacen(before, after, 1)
}

/// The item within the bindings that starts with `start`, up to `end`.
fn item(part: Part, start: &str, end: &str) -> &'static str {
    let at = part.text.find(start).unwrap_or_else(|| panic!("the bindings do not hold {start:?}"));
    &part.text[at..][..part.text[at..].find(end).expect("it ends") + end.len()]
}

/// Each language must name `expected` and nothing else.
fn refused(part: Part, text: &str, expected: &[&str], languages: &[Language]) {
    let Some(headers) = part.headers() else { return };
    let items = items::read(text).expect("the mutant is understood");
    for language in languages.iter().copied().filter_map(compiler) {
        let said = proof::compare(&items, &headers, language).expect_err("the proof has to fail");
        let expected: Vec<String> = expected.iter().map(|name| format!("differs: {name}")).collect();
        assert_eq!(said.lines().collect::<Vec<_>>(), expected, "as {language:?}");
    }
}

#[test]
fn an_argument_of_another_width() {
    let right = item(FIRST, "pub fn cudaMemGetInfo(", ";");
    refused(FIRST, &with(FIRST, right, &right.replace("usize", "u32")), &["signature of cudaMemGetInfo"], &LANGUAGES);
}

#[test]
fn an_argument_too_few() {
    let right = item(FIRST, "pub fn cudaSetDevice(", ";");
    refused(
        FIRST,
        &with(FIRST, right, "pub fn cudaSetDevice() -> cudaError_t;"),
        &["signature of cudaSetDevice"],
        &LANGUAGES,
    );
}

#[test]
fn a_pointer_to_const_that_is_to_mut() {
    let right = item(FIRST, "pub fn cudaMemcpyAsync(", ";");
    refused(
        FIRST,
        &with(FIRST, right, &right.replace("*const", "*mut")),
        &["signature of cudaMemcpyAsync"],
        &LANGUAGES,
    );
}

#[test]
fn another_result() {
    let right = item(FIRST, "pub fn cudaGetErrorName(", ";");
    let wrong = right.replace("*const ::std::os::raw::c_char", "cudaError_t");
    refused(FIRST, &with(FIRST, right, &wrong), &["signature of cudaGetErrorName"], &LANGUAGES);
}

#[test]
fn an_enum_for_another() {
    // C takes all enums of one integer type for the same; C++ does not.
    let right = item(FIRST, "pub fn cudaMemcpyAsync(", ";");
    let wrong = right.replace("cudaMemcpyKind", "cudaDeviceAttr");
    refused(FIRST, &with(FIRST, right, &wrong), &["signature of cudaMemcpyAsync"], &[Language::Cxx]);
}

#[test]
fn another_integer_under_an_enum() {
    let right = item(FIRST, "pub struct cudaError(", ";");
    refused(FIRST, &with(FIRST, right, &right.replace("c_uint", "c_int")), &["integer type of cudaError"], &LANGUAGES);
}

#[test]
fn another_value() {
    let right = item(FIRST, "pub const cudaErrorPeerAccessAlreadyEnabled:", ";");
    let wrong = with(FIRST, right, &right.replace("704", "705"));
    refused(FIRST, &wrong, &["value of cudaErrorPeerAccessAlreadyEnabled"], &LANGUAGES);
    let wrong = with(FIRST, "cudaEventDisableTiming: u32 = 2", "cudaEventDisableTiming: u32 = 3");
    refused(FIRST, &wrong, &["value of cudaEventDisableTiming"], &LANGUAGES);
}

#[test]
fn a_callback_that_is_given_something_else() {
    let right = item(FIRST, "pub type cudaHostFn_t", ";");
    let wrong = with(FIRST, right, &right.replace("*mut ::std::os::raw::c_void", "::std::os::raw::c_int"));
    refused(FIRST, &wrong, &["type cudaHostFn_t"], &LANGUAGES);
}

#[test]
fn a_layout_that_is_another() {
    let size = item(FIRST, "size_of::<gpucommDeviceInfo_t>()", ";");
    refused(FIRST, &with(FIRST, size, &size.replace("280", "288")), &["size of gpucommDeviceInfo_t"], &LANGUAGES);
    let align = item(FIRST, "align_of::<gpucommDeviceInfo_t>()", ";");
    refused(
        FIRST,
        &with(FIRST, align, &align.replace("8usize", "4usize")),
        &["alignment of gpucommDeviceInfo_t"],
        &LANGUAGES,
    );
    let offset = item(FIRST, "offset_of!(gpucommDeviceInfo_t, uuid)", ";");
    refused(
        FIRST,
        &with(FIRST, offset, &offset.replace("256", "255")),
        &["offset of gpucommDeviceInfo_t.uuid"],
        &LANGUAGES,
    );
    let field = item(FIRST, "pub uuid:", ",");
    refused(FIRST, &with(FIRST, field, &field.replace("16", "15")), &["type of gpucommDeviceInfo_t.uuid"], &LANGUAGES);
}

#[test]
fn a_function_that_no_header_declares() {
    let Some(headers) = FIRST.headers() else { return };
    let wrong = with(FIRST, "pub fn cudaGetLastError()", "pub fn cudaGetNextError()");
    let items = items::read(&wrong).expect("the mutant is understood");
    for language in LANGUAGES.into_iter().filter_map(compiler) {
        let said = proof::compare(&items, &headers, language).expect_err("the proof has to fail");
        assert!(said.contains("cudaGetNextError"), "{said}");
    }
}

#[test]
fn what_is_not_asserted_or_not_understood() {
    let lost = with(FIRST, "offset_of!(gpucommDeviceInfo_t, uuid)", "offset_of!(gpucommDeviceInfo_t, name)");
    let said = items::read(&lost).expect_err("an offset is lost");
    assert_eq!(said, "gpucommDeviceInfo_t: the bindings do not assert its offset of uuid");
    let more = format!("{}\npub trait Foreign {{}}\n", FIRST.text);
    assert!(items::read(&more).expect_err("a trait is no C").starts_with("not understood"));
}

#[test]
fn what_is_bound_of_nvshmem() {
    // There where the feature is.
    let Some(part) = parts::ALL.iter().copied().find(|part| part.text.contains("fn nvshmem_ptr(")) else { return };
    let right = item(part, "pub fn nvshmem_ptr(", ";");
    let wrong = with(part, right, &right.replace("*const", "*mut"));
    refused(part, &wrong, &["signature of nvshmem_ptr"], &LANGUAGES);
    let wrong = with(part, "NVSHMEM_CMP_GT: ::std::os::raw::c_int = 2", "NVSHMEM_CMP_GT: ::std::os::raw::c_int = 3");
    refused(part, &wrong, &["value of NVSHMEM_CMP_GT"], &LANGUAGES);
    let size = item(part, "size_of::<nvshmemx_uniqueid_v1>()", ";");
    let wrong = with(part, size, &size.replace("128", "124"));
    refused(part, &wrong, &["size of nvshmemx_uniqueid_v1"], &LANGUAGES);
}
