//! Ranks as actors: what can be asked of them, what comes back, and what happens when something goes wrong.

#[path = "../support/block_on.rs"]
mod block_on;
mod blocked;
mod cancel;
mod churn;
mod deadlines;
mod ends;
mod executors;
mod faults;
mod forked;
#[path = "../support/gate.rs"]
mod gate;
mod groups;
mod health;
#[path = "../support/hooked_store.rs"]
mod hooked_store;
mod hostile;
mod lanes;
mod load;
mod names;
mod operations;
mod order;
mod panics;
mod pressure;
mod processes;
mod random;
mod random_steps;
mod refused;
mod said;
mod several;
mod spinning;
mod stores;
mod support;
mod trap;
mod turns;
