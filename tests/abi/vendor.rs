//! vendor/include agrees with NVIDIA's headers: the committed snapshot, which is made from it, is proved against those too.

use std::collections::BTreeSet;

use crate::items::{self, Item, Value};
use crate::parts::{self, Part};
use crate::{LANGUAGES, compiler, proof};

/// Constants that together state a version.
const VERSIONS: &[&str] = &[
    "CUDART_VERSION",
    "NCCL_VERSION_CODE",
    "NCCL_MAJOR",
    "NCCL_MINOR",
    "NCCL_PATCH",
    "NVSHMEM_VENDOR_MAJOR_VERSION",
    "NVSHMEM_VENDOR_MINOR_VERSION",
    "NVSHMEM_VENDOR_PATCH_VERSION",
];

/// Parts of names of what changes from version to version: structs that say of which version they are, and counts.
const CHANGING: &[&str] =
    &["ncclConfig", "ncclCollConfig", "ncclEncryptionConfig", "ncclWindow_", "Num", "MaxRedOp", "_v1", "_v2"];

fn name(item: &Item) -> &str {
    match item {
        Item::Function { name, .. }
        | Item::Variable { name, .. }
        | Item::Record { name, .. }
        | Item::Enum { name, .. }
        | Item::Alias { name, .. }
        | Item::Constant { name, .. }
        | Item::Size { name, .. }
        | Item::Align { name, .. }
        | Item::Offset { name, .. } => name,
    }
}

fn version(items: &[Item]) -> Vec<(&str, &Value)> {
    let stated = items.iter().filter_map(|item| match item {
        Item::Constant { name, value } if VERSIONS.contains(&name.as_str()) => Some((name.as_str(), value)),
        _ => None,
    });
    let mut stated: Vec<_> = stated.collect();
    stated.sort_by_key(|(name, _)| *name);
    stated
}

/// What the headers must have: all of it where they are of the version of vendor/include; else what both versions have, but
/// for what changes.
fn expected(ours: Vec<Item>, installed: &[Item]) -> Vec<Item> {
    if version(&ours) == version(installed) {
        return ours;
    }
    let there: BTreeSet<&str> = installed.iter().map(name).collect();
    let mut changing: BTreeSet<String> = BTreeSet::new();
    for item in &ours {
        let through = match item {
            // A name for something that changes.
            Item::Alias { of: syn::Type::Path(of), .. } => of.path.segments.last().map(|last| last.ident.to_string()),
            Item::Alias { of: syn::Type::Ptr(of), .. } => match &*of.elem {
                syn::Type::Path(of) => of.path.segments.last().map(|last| last.ident.to_string()),
                _ => None,
            },
            _ => None,
        };
        let changes = |name: &str| CHANGING.iter().any(|part| name.contains(part)) || VERSIONS.contains(&name);
        if changes(name(item)) || through.is_some_and(|name| changes(&name)) {
            changing.insert(name(item).to_string());
        }
    }
    let kept = |item: &Item| there.contains(name(item)) && !changing.contains(name(item));
    ours.into_iter().filter(kept).collect()
}

fn agrees(part: Part) {
    let Some(headers) = part.headers() else { return };
    let ours = items::read(part.committed).expect("the snapshot is understood");
    let expected = expected(ours, &part.items());
    for language in LANGUAGES.into_iter().filter_map(compiler) {
        match proof::compare(&expected, &headers, language) {
            Ok(count) => assert!(count * 2 > part.facts, "only {count} facts: too few to mean anything"),
            Err(differences) => panic!("vendor/include, as {language:?}:\n{differences}"),
        }
    }
}

#[test]
fn vendor_agrees_with_installed_headers() {
    // With the emulator, its headers are those of the proof itself.
    if cfg!(not(any(gpucomm_emulator, gpucomm_snapshot))) {
        parts::ALL.iter().copied().for_each(agrees);
    }
}

#[test]
fn another_version_may_lack_things_but_not_change_them() {
    let version = |code: u32| format!("pub const NCCL_VERSION_CODE: u32 = {code};\npub const A: u32 = 1;\n");
    let read = |text: &str| items::read(text).expect("it is understood");
    let ours = || read(&format!("{}pub const B: u32 = 1;\npub type ncclConfig_t = S;\n", version(22809)));
    let names = |items: Vec<Item>| items.iter().map(|item| name(item).to_string()).collect::<Vec<_>>();
    assert_eq!(names(expected(ours(), &read(&version(21903)))), ["A"]);
    assert_eq!(names(expected(ours(), &read(&version(22809)))), ["NCCL_VERSION_CODE", "A", "B", "ncclConfig_t"]);
}
