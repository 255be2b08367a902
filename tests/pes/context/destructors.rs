//! Destructors of users that block or panic: no meeting and no end waits for them.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use gpucomm::exchange::{Exchange, Store, TcpPlace};
use gpucomm::nvshmem::Context;
use gpucomm::{DeviceBuffer, Stream};

use crate::support::gate::Gate;
use crate::support::{Fate, Hooked, Seat, as_pes, slower};

/// An object whose destructor does not return until the other end of the channel is dropped.
struct Blocks {
    until: Receiver<()>,
    /// Gets a message when the destructor begins.
    begins: Sender<()>,
}

impl Drop for Blocks {
    fn drop(&mut self) {
        let _ = self.begins.send(());
        let _ = self.until.recv();
    }
}

/// Drops registered memory of this PE while a stream uses it. Its owner's destructor blocks until the sender is dropped.
fn drop_in_use(seat: &Seat, ctx: &Context) -> (Sender<()>, Receiver<()>) {
    let (stream, gate, timeout) = (Stream::new(seat.device).unwrap(), Gate::default(), gpucomm::default_timeout());
    let ((let_go, until), (begins, begun)) = (channel(), channel());
    let memory = DeviceBuffer::<u32>::zeroed(&stream, 1024).unwrap();
    stream.synchronize().unwrap();
    let (ptr, owner) = (memory.as_raw(), (memory, Blocks { until, begins }));
    // SAFETY: so many elements, which the owner keeps and nobody else uses.
    let foreign = unsafe { DeviceBuffer::<u32>::from_raw_parts(seat.device, ptr, 1024, owner) }.unwrap();
    let mut registered = ctx.register(foreign).unwrap();
    gate.hold(&stream).unwrap();
    registered.as_slice_mut().fill(&stream, 3).unwrap();
    gpucomm::set_default_timeout(Duration::from_millis(20));
    drop(registered);
    gpucomm::set_default_timeout(timeout);
    gate.open();
    stream.synchronize().unwrap();
    (let_go, begun)
}

#[test]
fn a_meeting_beside_the_destructor_of_an_owner() {
    as_pes(&[2], |seat| {
        let limit = slower(4.0);
        let ctx = seat.start_as(seat.options().with_timeout(limit)).unwrap();
        let in_use = (seat.pe == 0).then(|| drop_in_use(seat, &ctx));
        seat.meet();
        drop(ctx.alloc::<u32>(10).unwrap());
        if let Some((let_go, begun)) = in_use {
            begun.recv_timeout(limit).expect("the meeting has ended the memory");
            drop(let_go);
        }
        let in_use = (seat.pe == 1).then(|| drop_in_use(seat, &ctx));
        seat.meet();
        // This end also ends the memory.
        let begin = Instant::now();
        ctx.close().unwrap();
        assert!(begin.elapsed() < limit, "{:?}", begin.elapsed());
        drop(in_use);
        seat.start().unwrap().close().unwrap();
    });
}

/// Runs when it is dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// The context is the last owner of a store, whose destructor panics on PE 0, and blocks on PE 1.
#[test]
fn an_end_that_drops_the_store() {
    as_pes(&[2], |seat| {
        let limit = slower(4.0);
        let ((let_go, until), (begins, begun)) = (channel::<()>(), channel());
        let (pe, until) = (seat.pe, std::sync::Mutex::new(until));
        let last = OnDrop(move || {
            let _ = begins.send(());
            assert!(pe != 0, "on purpose");
            let _ = until.lock().unwrap().recv();
        });
        let exchange = Hooked::join(seat, move |_, _| {
            let _ = &last;
            Fate::Answers
        });
        let ctx = seat.start_as(seat.options().with_exchange(&exchange).with_timeout(limit)).unwrap();
        drop(exchange);
        ctx.barrier_all().unwrap();
        let begin = Instant::now();
        ctx.close().unwrap();
        assert!(begin.elapsed() < limit, "{:?}", begin.elapsed());
        begun.recv_timeout(limit).expect("the end has dropped the store");
        seat.start().unwrap().close().unwrap();
        drop(let_go);
    });
}

/// PE 0 serves the store, and its context is the last owner there. The others use the store afterwards.
#[test]
fn an_end_that_drops_the_server_of_the_store() {
    as_pes(&[2], |seat| {
        let store: Arc<dyn Store> = if seat.pe == 0 {
            let server = TcpPlace::new("127.0.0.1:0").serve(seat.n_pes).unwrap();
            seat.exchange.broadcast(server.address().as_bytes(), 0).unwrap();
            Arc::new(server)
        } else {
            let address = String::from_utf8(seat.exchange.broadcast(b"", 0).unwrap()).unwrap();
            Arc::new(TcpPlace::new(address).connect(seat.pe, seat.n_pes).unwrap())
        };
        let exchange = Exchange::join(store).unwrap();
        let ctx = seat.start_as(seat.options().with_exchange(&exchange)).unwrap();
        let kept = (seat.pe == 1).then_some(exchange);
        ctx.close().unwrap();
        if let Some(exchange) = kept {
            // Longer than the end waits for a store of users.
            std::thread::sleep(Duration::from_secs(2));
            exchange.set("later", b"it is there").unwrap();
        }
    });
}
