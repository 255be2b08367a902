//! One conformance suite for both back ends: the emulator anywhere, and real GPUs where there are some.
//!
//! `cargo test --features emulator --test conformance` runs it on the emulator; without the feature it drives the real
//! libraries. A machine with fewer than four devices runs the smaller rank counts and says on stdout what it skipped.
//!
//! Each test takes all devices. In one process the tests take turns on real GPUs; where every test is a process of its own
//! (cargo-nextest), run them one at a time: `-j1`.
//!
//! | variable | meaning |
//! |---|---|
//! | `GPUCOMM_TEST_SEED` | the seed of all random inputs; printed at the start |
//! | `GPUCOMM_TEST_SLOWER` | multiplies every time limit, for slow machines and sanitizers |

// Every public value is forgotten and dropped here, those too for which that does nothing.
#![allow(forgetting_copy_types, dropping_copy_types, clippy::forget_non_drop, clippy::type_complexity)]

mod adopted;
mod bad_input;
mod bad_usage;
mod barriers;
mod beside;
mod bounds;
mod buckets;
mod buffers;
#[cfg(nccl_ge_2_31)]
mod call_config;
mod calls_of_two;
mod capture;
mod causes;
mod checked;
mod checked_ends;
#[cfg(nccl_ge_2_28_7)]
mod checked_made;
mod checked_starts;
mod collectives;
mod config;
mod dead_peers;
mod deadlines;
mod deaths;
mod departures;
mod depth;
mod determinism;
#[cfg(nccl_ge_2_29)]
mod device_address;
mod disagreement;
mod dump_entries;
mod dumps;
mod emulator_settings;
#[cfg(nccl_ge_2_32)]
mod encryption;
mod ends;
mod environment;
mod exits;
mod failures;
mod faults;
#[cfg(all(feature = "float8", nccl_ge_2_24))]
mod float8;
#[cfg(all(feature = "float8", nccl_ge_2_24))]
mod float8_devices;
mod foreign;
mod forks;
mod futures;
mod graph_ends;
mod graph_forgotten;
mod graph_limits;
mod graph_pinned;
mod graph_registered;
#[cfg(nccl_ge_2_29_7)]
mod graph_suspend;
mod graph_threads;
#[cfg(nccl_ge_2_29)]
mod graph_usage;
mod graph_windows;
mod graphs;
mod grid;
mod grouping;
mod groups;
#[cfg(nccl_ge_2_29)]
mod grow;
#[cfg(nccl_ge_2_29)]
mod grow_ends;
#[cfg(nccl_ge_2_29)]
mod grow_waits;
mod handover;
mod ids;
mod kept_streams;
mod kinds;
mod large_groups;
mod lifecycle;
mod long_groups;
mod mapped;
mod meeting;
mod mixed;
mod moved;
mod movement;
mod names;
mod neighbours;
mod nested;
mod no_threads;
mod one_deadline;
#[cfg(nccl_ge_2_29)]
mod one_sided;
#[cfg(nccl_ge_2_29)]
mod one_sided_limits;
#[cfg(nccl_ge_2_29)]
mod one_sided_order;
mod out_of_memory;
mod own_errors;
mod p2p;
mod paid_once;
mod panics;
#[cfg(nccl_ge_2_30_4)]
mod parameters;
mod parts;
mod pending;
mod premul;
mod processes;
mod ras;
mod recover;
mod registration;
mod registration_ends;
mod retire;
mod returns;
#[cfg(nccl_ge_2_28_7)]
mod revoke;
#[cfg(nccl_ge_2_23_4)]
mod scalable;
mod scalars;
mod separate;
mod several;
mod sharing;
mod sharing_ends;
#[cfg(nccl_ge_2_28_7)]
mod shrink;
#[cfg(nccl_ge_2_28_7)]
mod shrink_limits;
#[cfg(nccl_ge_2_22)]
mod simulate;
mod split;
mod split_ends;
mod split_with;
mod standing;
mod starts;
mod streams;
mod support;
#[cfg(nccl_ge_2_29_7)]
mod suspend;
#[cfg(nccl_ge_2_29_7)]
mod suspend_ends;
mod thread_locals;
mod threads;
mod two_threads;
mod undisturbed;
mod user_window_ends;
mod user_windows;
mod variable;
mod versions;
mod waiting;
mod windows;
mod zeros;
