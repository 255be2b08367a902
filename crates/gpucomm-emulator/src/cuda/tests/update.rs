//! Graphs that are updated: what may change, and what of a launch stays as it was.

use super::*;
use crate::report::expected::reported;

const MODE: cudaStreamCaptureMode = cudaStreamCaptureMode::cudaStreamCaptureModeThreadLocal;
const DONE: u32 = 0;
const TOPOLOGY: u32 = 2;
const KIND: u32 = 3;
const PARAMETERS: u32 = 5;

/// A graph of what `work` enqueues on `stream`.
fn graph(stream: &TestStream, work: impl FnOnce()) -> cudaGraph_t {
    let mut graph = null_mut();
    ok!(cudaStreamBeginCapture(stream.0, MODE));
    work();
    ok!(cudaStreamEndCapture(stream.0, &mut graph));
    graph
}

fn executable(graph: cudaGraph_t) -> cudaGraphExec_t {
    let mut exec = null_mut();
    ok!(cudaGraphInstantiate(&mut exec, graph, 0));
    exec
}

/// Updates `exec` as `graph` is, which is destroyed; the result of which CUDA tells.
fn update(exec: cudaGraphExec_t, graph: cudaGraph_t) -> u32 {
    let none = std::ptr::without_provenance_mut(16);
    let mut info =
        cudaGraphExecUpdateResultInfo { result: cudaGraphExecUpdateResult(77), errorNode: none, errorFromNode: none };
    let done = c!(cudaGraphExecUpdate(exec, graph, &mut info));
    let expected = if info.result.0 == DONE { SUCCESS } else { cudaError::cudaErrorGraphExecUpdateFailure };
    assert_eq!(done, expected);
    assert!(info.errorNode.is_null() && info.errorFromNode.is_null());
    ok!(cudaGraphDestroy(graph));
    info.result.0
}

#[test]
fn an_update_changes_later_launches_only() {
    alone!();
    let stream = TestStream::new(0);
    let [one, two] = std::array::from_fn(|_| malloc(64));
    let host: [u8; 64] = std::array::from_fn(|at| at as u8 ^ 0x5a);
    let to_device = cudaMemcpyKind::cudaMemcpyHostToDevice;
    let exec = executable(graph(&stream, || {
        ok!(cudaMemsetAsync(one, 1, 64, stream.0));
        ok!(cudaMemcpyAsync(two, host.as_ptr().cast(), 63, to_device, stream.0));
    }));
    let gate = stream.close_gate();
    ok!(cudaGraphLaunch(exec, stream.0));
    // Other addresses, values and lengths.
    let changed = graph(&stream, || {
        ok!(cudaMemsetAsync(two, 9, 61, stream.0));
        ok!(cudaMemcpyAsync(one, host.as_ptr().wrapping_add(8).cast(), 17, to_device, stream.0));
    });
    assert_eq!(update(exec, changed), DONE);
    drop(gate);
    stream.wait();
    let read = |at| download::<u8>(at, 64, stream.0);
    let (first, second) = (read(one), read(two));
    assert_eq!((first, &second[..63]), (vec![1; 64], &host[..63]), "what was launched before");
    ok!(cudaGraphUpload(exec, stream.0));
    ok!(cudaGraphLaunch(exec, stream.0));
    stream.wait();
    let mut expected = [1; 64];
    expected[..17].copy_from_slice(&host[8..25]);
    assert_eq!(read(one), expected);
    let last = second[61..].to_vec();
    assert_eq!(read(two), [vec![9; 61], last].concat());
    ok!(cudaGraphExecDestroy(exec));
    [one, two].into_iter().for_each(|at| ok!(cudaFree(at)));
}

#[test]
fn what_no_update_changes() {
    alone!();
    unsafe extern "C" fn nothing(_: *mut c_void) {}
    let streams = [TestStream::new(0), TestStream::new(1)];
    let [stream, other] = &streams;
    ok!(cudaSetDevice(1));
    let far = malloc(64);
    ok!(cudaSetDevice(0));
    let [one, two] = std::array::from_fn(|_| malloc(64));
    let fill = |at, value| ok!(cudaMemsetAsync(at, value, 64, stream.0));
    let pair = |second: &dyn Fn()| {
        graph(stream, || {
            fill(one, 3);
            second();
        })
    };
    let exec = executable(pair(&|| fill(two, 4)));
    // The second one does not come after the first one.
    let forked = graph(stream, || {
        let (fork, join) = (event(cudaEventDisableTiming), event(cudaEventDisableTiming));
        let side = TestStream::new(0);
        ok!(cudaEventRecord(fork, stream.0));
        ok!(cudaStreamWaitEvent(side.0, fork, 0));
        fill(one, 3);
        ok!(cudaMemsetAsync(two, 4, 64, side.0));
        ok!(cudaEventRecord(join, side.0));
        ok!(cudaStreamWaitEvent(stream.0, join, 0));
        [fork, join].into_iter().for_each(|event| ok!(cudaEventDestroy(event)));
    });
    assert_eq!(update(exec, forked), TOPOLOGY);
    assert_eq!(update(exec, graph(stream, || fill(one, 3))), TOPOLOGY);
    let copy = cudaMemcpyKind::cudaMemcpyDeviceToDevice;
    assert_eq!(update(exec, pair(&|| ok!(cudaMemcpyAsync(two, one, 64, copy, stream.0)))), KIND);
    assert_eq!(update(exec, pair(&|| ok!(cudaLaunchHostFunc(stream.0, Some(nothing), null_mut())))), KIND);
    // On another device.
    let elsewhere = graph(other, || {
        ok!(cudaMemsetAsync(far, 3, 64, other.0));
        ok!(cudaMemsetAsync(far, 4, 64, other.0));
    });
    assert_eq!(update(exec, elsewhere), PARAMETERS);
    // From memory of the host, where it was from a device.
    let copies = |from: *const c_void| {
        graph(stream, || ok!(cudaMemcpyAsync(two, from, 64, cudaMemcpyKind::cudaMemcpyDefault, stream.0)))
    };
    let host = [7u8; 64];
    let copying = executable(copies(one));
    assert_eq!(update(copying, copies(host.as_ptr().cast())), PARAMETERS);
    // It is as it was.
    ok!(cudaMemsetAsync(two, 0, 64, stream.0));
    ok!(cudaGraphLaunch(exec, stream.0));
    assert_eq!(download::<u8>(two, 64, stream.0), [4; 64]);
    assert_eq!(update(exec, pair(&|| fill(two, 5))), DONE);
    ok!(cudaGraphLaunch(exec, stream.0));
    assert_eq!(download::<u8>(two, 64, stream.0), [5; 64]);
    [exec, copying].into_iter().for_each(|exec| ok!(cudaGraphExecDestroy(exec)));
    [one, two, far].into_iter().for_each(|at| ok!(cudaFree(at)));
}

#[test]
fn updates_and_uploads_need_what_lives_and_no_capture() {
    alone!();
    let stream = TestStream::new(0);
    let [first, second] = std::array::from_fn(|_| graph(&stream, || ()));
    let exec = executable(first);
    assert_eq!(c!(cudaGraphExecUpdate(exec, first, null_mut())), INVALID);
    ok!(cudaStreamBeginCapture(stream.0, MODE));
    assert_eq!(c!(cudaGraphUpload(exec, stream.0)), cudaError::cudaErrorStreamCaptureUnsupported);
    let mut graph = null_mut();
    assert_eq!(c!(cudaStreamEndCapture(stream.0, &mut graph)), cudaError::cudaErrorStreamCaptureInvalidated);
    ok!(cudaGraphUpload(exec, stream.0));
    assert_eq!(update(exec, second), DONE);
    let null = null_mut();
    let mut info =
        cudaGraphExecUpdateResultInfo { result: cudaGraphExecUpdateResult(77), errorNode: null, errorFromNode: null };
    let mut gone = || c!(cudaGraphExecUpdate(exec, second, &mut info));
    assert_eq!(reported("is no graph", &mut gone), INVALID);
    assert_eq!(info.result, cudaGraphExecUpdateResult::cudaGraphExecUpdateError);
    ok!(cudaGraphExecDestroy(exec));
    assert_eq!(reported("is no executable graph", || c!(cudaGraphUpload(exec, stream.0))), INVALID);
    ok!(cudaGraphDestroy(first));
}
