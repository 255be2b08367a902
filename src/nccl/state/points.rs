//! The points that a rank has come to with the others: allocations, splits and the like, which are no operations on a device.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use crate::clock;

/// Points that are kept.
const KEPT: usize = 64;

/// One of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Point {
    /// Its number among the collectives, from 1 on.
    pub(crate) sequence: u64,
    pub(crate) head: u64,
    pub(crate) count: u64,
    /// The method that the user called.
    pub(crate) operation: &'static str,
    pub(crate) when: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Points(Mutex<VecDeque<Point>>);

impl Points {
    /// The last point.
    pub(crate) fn add(&self, operation: &'static str, (head, count): (u64, u64), sequence: u64) {
        let mut points = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if points.len() == KEPT {
            points.pop_front();
        }
        points.push_back(Point { sequence, head, count, operation, when: clock::tick() });
    }

    pub(crate) fn all(&self) -> Vec<Point> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }
}
