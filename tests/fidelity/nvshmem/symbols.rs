//! What the libraries export, what the bindings declare, and what the safe layer calls.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use syn::{ImplItem, Item, Type, Visibility};

use crate::interface::{declared_of_nvshmem, mentions, sources};

/// The functions that the library of 3.8.0 exports, by `nm`.
pub fn of_3_8() -> BTreeSet<&'static str> {
    include_str!("exported-3.8.0.txt").lines().collect()
}

/// Those of 3.4.5: the same, but for what has come since.
pub fn of_3_4() -> BTreeSet<&'static str> {
    let newer: BTreeSet<&str> = include_str!("since-3.4.5.txt").lines().collect();
    of_3_8().difference(&newer).copied().collect()
}

/// Functions of our own C that call one of the library.
const SHIM: &[(&str, &str)] = &[
    ("gpucommNvshmemCollectiveLaunch", "nvshmemx_collective_launch"),
    ("gpucommNvshmemCollectiveLaunchConfig", "nvshmemx_collective_launch_attr"),
    ("gpucommNvshmemCollectiveLaunchGrid", "nvshmemx_collective_launch_query_gridsize"),
];

/// What is declared of NVSHMEM's own functions, those that this crate has added left out.
pub fn bound() -> BTreeSet<String> {
    let of_c = |name: String| match SHIM.iter().find(|(shim, _)| *shim == name) {
        Some((_, called)) => (*called).to_owned(),
        None => name,
    };
    declared_of_nvshmem().into_iter().map(of_c).filter(|name| name.starts_with("nvshmem")).collect()
}

/// The code of the safe layer, without comments.
fn layer() -> impl Iterator<Item = (&'static str, &'static str)> {
    sources().iter().filter_map(|(path, text)| {
        let path = path.to_str().expect("a path in UTF-8");
        (path.starts_with("src/nvshmem") || path == "src/version.rs").then_some((path, text.as_str()))
    })
}

/// Whether the safe layer names a function, in other words than its documentation and the names by which that is found.
pub fn is_called(function: &str) -> bool {
    static CODE: OnceLock<String> = OnceLock::new();
    let code = CODE.get_or_init(|| {
        let mut in_alias = false;
        let is_code = |line: &&str| {
            let line = line.trim();
            in_alias |= line.starts_with("#[doc(alias");
            let is_code = !in_alias && !line.starts_with("//");
            in_alias &= !line.ends_with(']');
            is_code
        };
        layer().flat_map(|(_, text)| text.lines()).filter(is_code).collect::<Vec<_>>().join("\n")
    });
    mentions(code, function)
}

/// Public functions of the safe layer: `Type::name`, or `name`.
pub fn methods() -> &'static BTreeSet<String> {
    static METHODS: OnceLock<BTreeSet<String>> = OnceLock::new();
    METHODS.get_or_init(|| {
        let mut methods = BTreeSet::new();
        for (path, text) in layer() {
            let file = syn::parse_file(text).unwrap_or_else(|error| panic!("{path}: {error}"));
            file.items.iter().for_each(|item| public(item, &mut methods));
        }
        methods
    })
}

fn public(item: &Item, methods: &mut BTreeSet<String>) {
    match item {
        Item::Fn(item) if matches!(item.vis, Visibility::Public(_)) => drop(methods.insert(item.sig.ident.to_string())),
        Item::Impl(item) => {
            let Type::Path(path) = &*item.self_ty else { return };
            let of = &path.path.segments.last().expect("a path has a part").ident;
            for one in &item.items {
                if let ImplItem::Fn(one) = one
                    && (item.trait_.is_some() || matches!(one.vis, Visibility::Public(_)))
                {
                    methods.insert(format!("{of}::{}", one.sig.ident));
                }
            }
        }
        _ => {}
    }
}
