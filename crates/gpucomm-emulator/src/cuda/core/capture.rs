//! Stream captures: what is enqueued on a stream is written down, and who may do what meanwhile.
//!
//! A capture begins on one stream. Others become part of it when they wait for an event that was recorded in it, until it ends; by
//! then all that was written down must come before the end of the first one. Calls that CUDA calls potentially unsafe concern work
//! of the whole device, which a capture only pretends to enqueue: they spoil it, where its mode and that of the caller say so.

use super::device;
use super::line::{Line, Manner};
use super::plan::{AnyWork, Front, Owner, Plan, join as join_fronts};
use crate::lock::Mutex;
use crate::sys::{cudaError, cudaStreamCaptureMode, cudaStreamCaptureStatus};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::ThreadId;

const GLOBAL: cudaStreamCaptureMode = cudaStreamCaptureMode::cudaStreamCaptureModeGlobal;
const RELAXED: cudaStreamCaptureMode = cudaStreamCaptureMode::cudaStreamCaptureModeRelaxed;

/// A stream that is part of a capture, and what its next work comes after.
#[derive(Debug)]
struct Member {
    line: Arc<Line>,
    front: Front,
}

/// A capture that was begun and not ended.
#[derive(Debug)]
struct Capture {
    number: u64,
    mode: cudaStreamCaptureMode,
    thread: ThreadId,
    spoilt: bool,
    /// The first is the one on which it was begun.
    members: Vec<Member>,
    plan: Plan,
}

impl Capture {
    fn member(&mut self, line: &Arc<Line>) -> Option<&mut Member> {
        self.members.iter_mut().find(|member| Arc::ptr_eq(&member.line, line))
    }

    /// Whether it keeps all from `legacy`, the legacy default stream of a device, whose blocking streams it has some of.
    fn keeps_from(&self, legacy: &Line) -> bool {
        let kept = |line: &Line| line.manner == Manner::Blocking && line.device == legacy.device;
        self.members.iter().any(|member| kept(&member.line))
    }
}

/// A place in the order of a capture.
#[derive(Debug, Clone)]
pub(crate) struct Mark {
    capture: u64,
    front: Front,
}

static CAPTURES: Mutex<Vec<Capture>> = Mutex::new(Vec::new());
/// How many there are: most programs have none, and pay one load.
static ONGOING: AtomicUsize = AtomicUsize::new(0);
/// How many there ever were.
static BEGUN: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static MODE: Cell<cudaStreamCaptureMode> = const { Cell::new(GLOBAL) };
}

/// Wraps `cudaThreadExchangeStreamCaptureMode`: the mode of this thread before.
pub(crate) fn exchange(mode: cudaStreamCaptureMode) -> Result<cudaStreamCaptureMode, cudaError> {
    valid(mode)?;
    Ok(MODE.replace(mode))
}

fn valid(mode: cudaStreamCaptureMode) -> Result<(), cudaError> {
    if mode.0 <= RELAXED.0 { Ok(()) } else { Err(cudaError::cudaErrorInvalidValue) }
}

fn change<R>(work: impl FnOnce(&mut Vec<Capture>) -> R) -> R {
    let mut all = CAPTURES.lock();
    let result = work(&mut all);
    ONGOING.store(all.len(), Ordering::Release);
    result
}

#[inline]
fn ongoing() -> bool {
    ONGOING.load(Ordering::Acquire) > 0
}

fn position(all: &mut [Capture], line: &Arc<Line>) -> Option<usize> {
    all.iter_mut().position(|capture| capture.member(line).is_some())
}

/// The capture that `line` is part of. The legacy default stream is part of none, and must not be used while one of the streams is
/// whose order it keeps.
fn of<'a>(all: &'a mut [Capture], line: &Arc<Line>) -> Result<Option<&'a mut Capture>, cudaError> {
    if line.manner == Manner::Legacy {
        let kept = all.iter_mut().filter(|capture| capture.keeps_from(line));
        let hit = kept.map(|capture| capture.spoilt = true).count() > 0;
        return if hit { Err(cudaError::cudaErrorStreamCaptureImplicit) } else { Ok(None) };
    }
    match position(all, line) {
        None => Ok(None),
        Some(found) if all[found].spoilt => Err(cudaError::cudaErrorStreamCaptureInvalidated),
        Some(found) => Ok(Some(&mut all[found])),
    }
}

/// Wraps `cudaStreamBeginCapture`.
pub(crate) fn begin(line: &Arc<Line>, mode: cudaStreamCaptureMode) -> Result<(), cudaError> {
    valid(mode)?;
    if line.manner == Manner::Legacy {
        return Err(cudaError::cudaErrorStreamCaptureUnsupported);
    }
    change(|all| {
        if position(all, line).is_some() {
            return Err(cudaError::cudaErrorIllegalState);
        }
        let number = BEGUN.fetch_add(1, Ordering::Relaxed) + 1;
        let members = vec![Member { line: line.clone(), front: Front::new() }];
        let thread = std::thread::current().id();
        all.push(Capture { number, mode, thread, spoilt: false, members, plan: Plan::default() });
        Ok(())
    })
}

/// Wraps `cudaStreamEndCapture`: what was written down, or why that is no graph.
pub(crate) fn end(line: &Arc<Line>) -> Result<Plan, cudaError> {
    let capture = change(|all| {
        let found = position(all, line).ok_or(cudaError::cudaErrorIllegalState)?;
        let capture = &mut all[found];
        if capture.mode != RELAXED && capture.thread != std::thread::current().id() {
            return Err(cudaError::cudaErrorStreamCaptureWrongThread);
        }
        if !Arc::ptr_eq(&capture.members[0].line, line) {
            capture.spoilt = true;
            return Err(cudaError::cudaErrorStreamCaptureUnmatched);
        }
        Ok(all.swap_remove(found))
    })?;
    if capture.spoilt {
        return Err(cudaError::cudaErrorStreamCaptureInvalidated);
    }
    if !capture.plan.ends_with(&capture.members[0].front) {
        return Err(cudaError::cudaErrorStreamCaptureUnjoined);
    }
    Ok(capture.plan)
}

/// The stream is destroyed: with it the capture that was begun on it, but not what was written down for another.
pub(crate) fn forget(line: &Arc<Line>) {
    if ongoing() {
        change(|all| {
            all.retain(|capture| !Arc::ptr_eq(&capture.members[0].line, line));
            all.iter_mut().for_each(|capture| capture.members.retain(|member| !Arc::ptr_eq(&member.line, line)));
        });
    }
}

/// Wraps `cudaStreamIsCapturing`.
pub(crate) fn status(line: &Arc<Line>) -> Result<cudaStreamCaptureStatus, cudaError> {
    let mut all = CAPTURES.lock();
    if line.manner == Manner::Legacy && all.iter().any(|capture| capture.keeps_from(line)) {
        return Err(cudaError::cudaErrorStreamCaptureImplicit);
    }
    Ok(match position(&mut all, line) {
        None => cudaStreamCaptureStatus::cudaStreamCaptureStatusNone,
        Some(found) if all[found].spoilt => cudaStreamCaptureStatus::cudaStreamCaptureStatusInvalidated,
        Some(_) => cudaStreamCaptureStatus::cudaStreamCaptureStatusActive,
    })
}

/// To be asked by calls that are potentially unsafe: fails, and spoils the captures, where one is going on that this
/// thread must heed. That is any of its own, and those that other threads began in global mode; a thread in
/// thread-local mode heeds its own, one in relaxed mode none.
#[inline]
pub(crate) fn check() -> Result<(), cudaError> {
    if ongoing() && MODE.get() != RELAXED { check_all() } else { Ok(()) }
}

#[cold]
fn check_all() -> Result<(), cudaError> {
    let (me, mode) = (std::thread::current().id(), MODE.get());
    let heeded = |capture: &&mut Capture| {
        capture.mode != RELAXED && (capture.thread == me || capture.mode == GLOBAL && mode == GLOBAL)
    };
    let hit = CAPTURES.lock().iter_mut().filter(heeded).map(|capture| capture.spoilt = true).count() > 0;
    if hit { Err(cudaError::cudaErrorStreamCaptureUnsupported) } else { Ok(()) }
}

/// To be asked before all of a device is waited for: fails, and spoils the captures, where one has a stream of that. The mode of nobody
/// changes that: such a wait is invalid, not potentially unsafe.
pub(crate) fn leave(device: i32) -> Result<(), cudaError> {
    if !ongoing() {
        return Ok(());
    }
    let has = |capture: &&mut Capture| capture.members.iter().any(|member| member.line.device == device);
    let hit = CAPTURES.lock().iter_mut().filter(has).map(|capture| capture.spoilt = true).count() > 0;
    if hit { Err(cudaError::cudaErrorStreamCaptureUnsupported) } else { Ok(()) }
}

/// Which capture `line` is part of, if it is of one that is not spoilt.
#[inline]
pub(crate) fn number(line: &Arc<Line>) -> Option<u64> {
    if ongoing() { number_of(line) } else { None }
}

#[cold]
fn number_of(line: &Arc<Line>) -> Option<u64> {
    let mut all = CAPTURES.lock();
    position(&mut all, line).filter(|&found| !all[found].spoilt).map(|found| all[found].number)
}

/// To be asked before something is done on `line` that no capture can write down: fails, and spoils the capture.
#[inline]
pub(crate) fn refuse(line: &Arc<Line>) -> Result<(), cudaError> {
    if ongoing() { spoil(line, cudaError::cudaErrorStreamCaptureUnsupported) } else { Ok(()) }
}

/// To be asked before `line` waits for what is in no capture: a capture must not depend on that.
#[inline]
pub(crate) fn isolate(line: &Arc<Line>) -> Result<(), cudaError> {
    if ongoing() { spoil(line, cudaError::cudaErrorStreamCaptureIsolation) } else { Ok(()) }
}

#[cold]
fn spoil(line: &Arc<Line>, error: cudaError) -> Result<(), cudaError> {
    match of(&mut CAPTURES.lock(), line)? {
        None => Ok(()),
        Some(capture) => {
            capture.spoilt = true;
            Err(error)
        }
    }
}

/// Writes down work of a device for all of `lines`, in the order of the first one's: whether these are being captured. What has an
/// owner is done in the order in which it is written down.
pub(crate) fn record(
    lines: &[&Arc<Line>],
    owner: Option<Owner>,
    work: impl FnOnce() -> Arc<dyn AnyWork>,
) -> Result<bool, cudaError> {
    if !ongoing() {
        return Ok(false);
    }
    let mut all = CAPTURES.lock();
    let Some(&first) = lines.first() else { return Ok(false) };
    let Some(capture) = of(&mut all, first)? else { return Ok(false) };
    let mut front = Front::new();
    for line in lines {
        let Some(member) = capture.member(line) else {
            capture.spoilt = true;
            return Err(cudaError::cudaErrorStreamCaptureIsolation);
        };
        join_fronts(&mut front, &member.front);
    }
    let node = capture.plan.add(work(), device::device(first.device)?, &front, owner);
    for line in lines {
        if let Some(member) = capture.member(line) {
            member.front = vec![node];
        }
    }
    Ok(true)
}

/// Where `line` is in its capture, if it is part of one.
pub(crate) fn mark(line: &Arc<Line>) -> Result<Option<Mark>, cudaError> {
    if !ongoing() {
        return Ok(None);
    }
    let mut all = CAPTURES.lock();
    let Some(capture) = of(&mut all, line)? else { return Ok(None) };
    let number = capture.number;
    Ok(capture.member(line).map(|member| Mark { capture: number, front: member.front.clone() }))
}

/// Lets what is enqueued on `line` come after `mark`: with that it becomes part of the capture.
pub(crate) fn wait(line: &Arc<Line>, mark: &Mark) -> Result<(), cudaError> {
    let mut all = CAPTURES.lock();
    let home = all.iter().position(|capture| capture.number == mark.capture && !capture.spoilt);
    let mine = position(&mut all, line);
    let spoil = |all: &mut [Capture], error| {
        [home, mine].into_iter().flatten().for_each(|capture| all[capture].spoilt = true);
        Err(error)
    };
    match (home, mine) {
        (None, _) => spoil(&mut all, cudaError::cudaErrorInvalidValue),
        (Some(_), None) if line.manner == Manner::Legacy => spoil(&mut all, cudaError::cudaErrorStreamCaptureImplicit),
        (Some(home), Some(mine)) if home != mine => spoil(&mut all, cudaError::cudaErrorStreamCaptureMerge),
        (Some(home), _) => {
            match all[home].member(line) {
                Some(member) => join_fronts(&mut member.front, &mark.front),
                None => all[home].members.push(Member { line: line.clone(), front: mark.front.clone() }),
            }
            Ok(())
        }
    }
}

/// The error of who asks whether a mark is passed, which nothing ever passes; the capture is `spoilt` by that, or not.
pub(crate) fn asked(mark: &Mark, spoilt: bool) -> cudaError {
    match CAPTURES.lock().iter_mut().find(|capture| capture.number == mark.capture) {
        None => cudaError::cudaErrorInvalidValue,
        Some(capture) => {
            capture.spoilt |= spoilt;
            cudaError::cudaErrorCapturedEvent
        }
    }
}
