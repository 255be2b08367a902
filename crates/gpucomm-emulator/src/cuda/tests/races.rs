//! Accesses that nothing puts in order, and the ways in which something does. Each in a process of its own: what the host sees done for
//! one test comes before all that another one enqueues. There, what is reported and not expected ends the process.

use super::*;
use crate::cuda::core::stream::come_to_the_end;
use crate::report::expected::reported;

/// Fills `bytes` bytes of `memory` from an offset on.
fn fill(memory: *mut c_void, at: usize, bytes: usize, stream: &TestStream) {
    ok!(cudaMemsetAsync(memory.wrapping_byte_add(at), 1, bytes, stream.0));
}

fn copy(to: *mut c_void, from: *mut c_void, bytes: usize, stream: &TestStream) {
    ok!(cudaMemcpyAsync(to, from, bytes, cudaMemcpyKind::cudaMemcpyDefault, stream.0));
}

/// Lets `later` wait for what `earlier` has to do by now.
fn order(earlier: &TestStream, later: &TestStream) {
    let event = event(cudaEventDisableTiming);
    ok!(cudaEventRecord(event, earlier.0));
    ok!(cudaStreamWaitEvent(later.0, event, 0));
    ok!(cudaEventDestroy(event));
}

#[test]
fn streams_without_an_order() {
    isolated!(&[], || {
        let (a, b, c) = (TestStream::new(0), TestStream::new(0), TestStream::new(0));
        let (one, two) = (malloc(64), malloc(64));
        fill(one, 0, 32, &a);
        fill(one, 32, 32, &b);
        reported("cudaMemsetAsync writes (bytes 8 to 9) what cudaMemsetAsync wrote", || fill(one, 8, 1, &b));
        reported("cudaMemcpyAsync reads (bytes 0 to 16) what cudaMemsetAsync wrote", || copy(two, one, 16, &c));
        // Of the streams of the reports, this is the right one.
        reported(&format!("on stream {} of device 0", 3), || fill(one, 30, 1, &c));
        ok!(cudaFree(one));
        // Reads may come in any order, and a write after only one of them not.
        let three = malloc(64);
        order(&c, &a);
        order(&c, &b);
        copy(three, two, 8, &a);
        copy(three.wrapping_byte_add(8), two, 8, &b);
        order(&a, &c);
        reported("cudaMemsetAsync writes (bytes 0 to 8) what cudaMemcpyAsync read", || fill(two, 0, 8, &c));
        order(&b, &c);
        fill(two, 0, 8, &c);
    });
}

#[test]
fn waits_of_streams_and_of_the_host_are_orders() {
    isolated!(&[], || {
        let (a, b, c) = (TestStream::new(0), TestStream::new(1), TestStream::with_flags(0, 0));
        ok!(cudaSetDevice(0));
        let memory = malloc(64);
        fill(memory, 0, 64, &a);
        // By way of another device, and only as far as the event goes.
        order(&a, &b);
        ok!(cudaSetDevice(1));
        order(&b, &c);
        fill(memory, 0, 64, &c);
        fill(memory, 0, 64, &c);
        // The null stream waits for those that are not non-blocking, and they for it.
        ok!(cudaSetDevice(0));
        ok!(cudaMemsetAsync(memory, 1, 64, null_mut()));
        let d = TestStream::with_flags(0, 0);
        fill(memory, 0, 64, &d);
        reported("(bytes 0 to 64) what cudaMemsetAsync wrote", || fill(memory, 0, 64, &a));
        // The host asks one, and then another goes on.
        a.wait();
        d.wait();
        fill(memory, 0, 64, &a);
        let (asked, timed) = (event(cudaEventDisableTiming), event(cudaEventDefault));
        ok!(cudaEventRecord(asked, a.0));
        while c!(cudaEventQuery(asked)) == NOT_READY {}
        fill(memory, 0, 64, &d);
        ok!(cudaEventRecord(timed, d.0));
        let mut ms = 0.0;
        while c!(cudaEventElapsedTime(&mut ms, timed, timed)) == NOT_READY {}
        fill(memory, 0, 64, &a);
        // A copy to memory of the host waits.
        let _: Vec<u8> = download(memory, 64, a.0);
        fill(memory, 0, 64, &d);
        // An event that was recorded before is no order.
        ok!(cudaSetDevice(1));
        order(&b, &a);
        reported("(bytes 0 to 63) what cudaMemsetAsync wrote", || fill(memory, 0, 63, &a));
    });
}

#[test]
fn a_function_of_the_host_knows_what_is_before_it() {
    isolated!(&[], || {
        unsafe extern "C" fn tell(data: *mut c_void) {
            // SAFETY: the caller made this box, and the function is called once.
            let sender = unsafe { Box::from_raw(data.cast::<Sender<()>>()) };
            sender.send(()).unwrap();
        }
        let (a, b) = (TestStream::new(0), TestStream::new(0));
        let memory = malloc(64);
        fill(memory, 0, 32, &a);
        let (sender, told) = channel::<()>();
        ok!(cudaLaunchHostFunc(a.0, Some(tell), Box::into_raw(Box::new(sender)).cast()));
        fill(memory, 32, 32, &a);
        told.recv().unwrap();
        fill(memory, 0, 32, &b);
        reported("(bytes 32 to 64) what cudaMemsetAsync wrote", || fill(memory, 32, 32, &b));
    });
}

#[test]
fn memory_begins_and_ends_in_the_order_of_streams() {
    isolated!(&[], || {
        let (a, b) = (TestStream::new(0), TestStream::new(0));
        let mut pool = null_mut();
        ok!(gpucommPoolCreate(&mut pool, 0));
        let take = |stream: &TestStream| {
            let mut ptr = null_mut();
            ok!(cudaMallocFromPoolAsync(&mut ptr, 64, pool, stream.0));
            ptr
        };
        let memory = take(&a);
        reported("(bytes 0 to 1) what cudaMallocFromPoolAsync wrote", || fill(memory, 0, 1, &b));
        let memory = take(&a);
        order(&a, &b);
        fill(memory, 0, 64, &b);
        come_to_the_end(b.0);
        reported("cudaFreeAsync writes (bytes 0 to 64) what cudaMemsetAsync wrote", || ok!(cudaFreeAsync(memory, a.0)));
        let memory = take(&a);
        order(&a, &b);
        fill(memory, 0, 64, &b);
        order(&b, &a);
        ok!(cudaFreeAsync(memory, a.0));
        // Whoever gets the same memory has nothing to do with that.
        fill(take(&b), 0, 64, &b);
    });
}

#[test]
fn frees_of_the_host_come_after_what_it_has_seen() {
    isolated!(&[], || {
        let (a, b) = (TestStream::new(0), TestStream::new(1));
        let here = || {
            ok!(cudaSetDevice(0));
            malloc(64)
        };
        let (memory, other) = (here(), here());
        fill(memory, 0, 64, &a);
        ok!(cudaFree(memory));
        ok!(cudaMemcpyPeerAsync(other, 0, here(), 0, 64, b.0));
        come_to_the_end(b.0);
        let unseen =
            "64 bytes of device 0: cudaMemcpyPeerAsync on stream 2 of device 1 wrote it, and nobody has seen that done";
        reported(unseen, || ok!(cudaFree(other)));
        let pinned = || {
            let mut ptr = null_mut();
            ok!(cudaHostAlloc(&mut ptr, 64, 0));
            ptr
        };
        let (first, second) = (pinned(), pinned());
        copy(here(), first, 64, &a);
        ok!(cudaFreeHost(first));
        ok!(cudaSetDevice(1));
        copy(malloc(64), second, 64, &b);
        come_to_the_end(b.0);
        ok!(cudaSetDevice(0));
        reported("cudaFreeHost frees 64 bytes: cudaMemcpyAsync on stream 2 of device 1 read it", || {
            ok!(cudaFreeHost(second))
        });
        // Pinned memory of the host is memory like other memory.
        let (third, memory) = (pinned(), here());
        copy(third, memory, 64, &a);
        ok!(cudaSetDevice(1));
        let there = malloc(64);
        reported("cudaMemcpyAsync reads (bytes 1 to 64) what cudaMemcpyAsync wrote", || {
            copy(there, third.wrapping_byte_add(1), 63, &b);
        });
    });
}

#[test]
fn graphs_have_an_order_inside_and_outside() {
    isolated!(&[], || {
        let (a, b, c) = (TestStream::new(0), TestStream::new(0), TestStream::new(0));
        let memory = malloc(64);
        let graph = |ordered: bool, apart: usize| {
            ok!(cudaStreamBeginCapture(a.0, cudaStreamCaptureMode::cudaStreamCaptureModeRelaxed));
            order(&a, &b);
            fill(memory, 0, 8, &a);
            if ordered {
                order(&a, &b);
            }
            fill(memory, apart, 8, &b);
            order(&b, &a);
            let (mut graph, mut exec) = (null_mut(), null_mut());
            ok!(cudaStreamEndCapture(a.0, &mut graph));
            ok!(cudaGraphInstantiate(&mut exec, graph, 0));
            ok!(cudaGraphDestroy(graph));
            exec
        };
        let racing = graph(false, 7);
        reported("in a graph, cudaMemsetAsync writes what cudaMemsetAsync writes", || {
            ok!(cudaGraphLaunch(racing, a.0))
        });
        for (ordered, apart) in [(true, 7), (false, 8)] {
            a.wait();
            let exec = graph(ordered, apart);
            ok!(cudaGraphLaunch(exec, a.0));
            // One launch comes after the other.
            ok!(cudaGraphLaunch(exec, b.0));
            reported("(bytes 5 to 6) what cudaMemsetAsync wrote", || fill(memory, 5, 1, &c));
            b.wait();
            c.wait();
            fill(memory, 5, 1, &c);
            reported("(bytes 0 to 8) what cudaMemsetAsync wrote", || ok!(cudaGraphLaunch(exec, a.0)));
            c.wait();
            ok!(cudaGraphExecDestroy(exec));
        }
    });
}

/// A program without the wait that it needs, whose data is wrong where that work is slow.
fn misses_a_wait() -> bool {
    let (a, b) = (TestStream::new(0), TestStream::new(0));
    let (first, second) = (malloc(1024), malloc(1024));
    ok!(cudaMemsetAsync(second, 0, 1024, b.0));
    order(&b, &a);
    ok!(cudaMemsetAsync(first, 1, 1024, a.0));
    copy(second, first, 1024, &b);
    a.wait();
    b.wait();
    let values: Vec<u8> = download(second, 1024, b.0);
    values != [1; 1024]
}

#[test]
fn slow_work_shows_in_the_data_what_is_missing() {
    let environment = [
        ("GPUCOMM_EMULATOR_FAULTS", "slow_fill=1:300ms"),
        ("GPUCOMM_EMULATOR_STRICT", "0"),
        ("GPUCOMM_EMULATOR_RACES", "1"),
    ];
    isolated!(&environment, || {
        assert!(misses_a_wait());
        assert_eq!(crate::violations(), 1);
    });
}

#[test]
fn in_permissive_mode_nobody_looks() {
    let environment = [("GPUCOMM_EMULATOR_STRICT", "0")];
    isolated!(&environment, || {
        misses_a_wait();
        assert_eq!(crate::violations(), 0);
    });
}
