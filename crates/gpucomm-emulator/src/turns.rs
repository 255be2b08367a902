//! Which unit tests may use the devices at the same time: those that hold up streams, or one that waits for whole devices.

use std::sync::{Condvar, Mutex, PoisonError};

use super::lock::lock;

#[derive(Debug)]
struct Turns {
    holding_up: usize,
    alone: bool,
}

static TURNS: Mutex<Turns> = Mutex::new(Turns { holding_up: 0, alone: false });
static CHANGED: Condvar = Condvar::new();

/// Somebody holds up a stream. Who does already may hold up another, so nobody waits here for those who wait to be alone.
#[derive(Debug)]
pub(crate) struct HoldingUp(());

/// Nobody else holds up a stream, or waits for devices.
#[derive(Debug)]
pub(crate) struct Alone(());

pub(crate) fn holding_up() -> HoldingUp {
    take(|turns| !turns.alone, |turns| turns.holding_up += 1);
    HoldingUp(())
}

pub(crate) fn alone() -> Alone {
    take(|turns| !turns.alone && turns.holding_up == 0, |turns| turns.alone = true);
    Alone(())
}

fn take(free: impl Fn(&Turns) -> bool, take: impl FnOnce(&mut Turns)) {
    let turns = CHANGED.wait_while(lock(&TURNS), |turns| !free(turns));
    take(&mut turns.unwrap_or_else(PoisonError::into_inner));
}

impl Drop for HoldingUp {
    fn drop(&mut self) {
        lock(&TURNS).holding_up -= 1;
        CHANGED.notify_all();
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        lock(&TURNS).alone = false;
        CHANGED.notify_all();
    }
}
