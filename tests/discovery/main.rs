//! Discovery of installed libraries, over fake installations: what is found, and the exact text when nothing is.

mod bad;
#[path = "../../build/elf.rs"]
mod elf;
#[path = "../../build/emulator.rs"]
mod emulator;
mod failed;
#[allow(dead_code)]
#[path = "../../build/find.rs"]
mod find;
mod found;
#[allow(dead_code)]
#[path = "../../build/headers.rs"]
mod headers;
#[allow(dead_code)]
#[path = "../../build/layout.rs"]
mod layout;
#[allow(dead_code)]
#[path = "../../build/library.rs"]
mod library;
#[allow(dead_code)]
#[path = "../../build/link.rs"]
mod link;
mod machine;
mod nvshmem;
#[path = "../../build/place.rs"]
mod place;
mod pmix;
mod within;
