//! Worlds.
#![allow(dead_code)]

mod answer_waited_for_twice {
    //! An answer is given once, with its buffers.
    use gpucomm::world::Rank;
    use gpucomm::{DeviceBuffer, InPlace, ReduceOp};

    fn twice(rank: &Rank, x: DeviceBuffer<f32>) {
        let answer = rank.all_reduce(InPlace(x), ReduceOp::Sum);
        let _ = answer.wait();
        let _ = answer.wait();
    }
}

mod buffer_used_while_a_request_has_it {
    //! Who has submitted a buffer has it no more, until the answer gives it back.
    use gpucomm::world::World;
    use gpucomm::{DeviceBuffer, InPlace, ReduceOp, Result, Stream};

    fn read(world: &World, x: DeviceBuffer<f32>, stream: &Stream) -> Result<Vec<f32>> {
        let _answer = world.rank(0)?.all_reduce(InPlace(x), ReduceOp::Sum);
        x.to_vec(stream)
    }
}

mod completion_of_one_thread {
    //! How requests are found to be done is asked by the threads of all ranks.
    use std::cell::Cell;
    use std::sync::Arc;

    use gpucomm::world::{WorldOptions, completion::{Completion, InFlight}};

    #[derive(Debug)]
    struct Counting(Cell<u32>);

    impl Completion for Counting {
        fn watch(&self, work: InFlight) {
            self.0.set(self.0.get() + 1);
            work.finish();
        }
    }

    fn options() -> WorldOptions {
        WorldOptions::new().with_completion(Arc::new(Counting(Cell::new(0))))
    }
}

mod launched_without_unsafe {
    //! What other processes submit nobody can see here.
    use gpucomm::world::{World, WorldOptions};
    use gpucomm::{Launch, Result};

    fn start() -> Result<World> {
        World::from_launch(&Launch::from_env()?, &WorldOptions::default())
    }
}

mod permit_used_twice {
    //! Room for one request is for one.
    use gpucomm::Result;
    use gpucomm::world::{Rank, requests};

    async fn twice(rank: &Rank) -> Result<()> {
        let permit = rank.room().await?;
        let _ = permit.submit(requests::barrier());
        let _ = permit.submit(requests::barrier());
        Ok(())
    }
}

mod reduction_of_another_type {
    //! A weight is of the type of the elements.
    use gpucomm::world::{PreMul, Rank};
    use gpucomm::{DeviceBuffer, InPlace};

    fn factor(rank: &Rank, x: DeviceBuffer<f32>) {
        let _ = rank.all_reduce(InPlace(x), PreMul(1u8));
    }
}

mod request_keeps_the_communicator_of_its_rank {
    //! The communicator that a request is given is the rank's.
    use gpucomm::world::requests::{At, Request};
    use gpucomm::{Communicator, Result};

    struct Kept(Option<&'static Communicator>);

    impl Request for Kept {
        type Back = ();

        fn operation(&self) -> &'static str {
            "kept"
        }

        fn enqueue(&mut self, at: &At<'_>) -> Result<()> {
            self.0 = Some(at.communicator());
            Ok(())
        }

        fn into_back(self) {}
    }
}

mod request_of_a_borrowed_buffer {
    //! A request owns its buffers: who only borrows one could be gone when the device writes it.
    use gpucomm::world::Rank;
    use gpucomm::{DeviceBuffer, InPlace, ReduceOp};

    fn borrow(rank: &Rank, x: &mut DeviceBuffer<f32>) {
        let _ = rank.all_reduce(InPlace(x), ReduceOp::Sum);
    }
}

mod request_of_a_buffer_that_borrows_its_communicator {
    //! A buffer of a communicator is one that keeps it alive.
    use gpucomm::world::Rank;
    use gpucomm::{CommBuffer, InPlace, ReduceOp};

    fn borrow(rank: &Rank, x: CommBuffer<'_, f32>) {
        let _ = rank.all_reduce(InPlace(x), ReduceOp::Sum);
    }
}

mod request_of_one_thread {
    //! A request goes to the thread of its rank.
    use std::rc::Rc;

    use gpucomm::Result;
    use gpucomm::world::{Rank, requests::{At, Request}};

    struct Counted(Rc<u32>);

    impl Request for Counted {
        type Back = ();

        fn operation(&self) -> &'static str {
            "counted"
        }

        fn enqueue(&mut self, _: &At<'_>) -> Result<()> {
            println!("{}", self.0);
            Ok(())
        }

        fn into_back(self) {}
    }

    fn submit(rank: &Rank) {
        let _ = rank.submit(Counted(Rc::new(1)));
    }
}

mod request_of_two_types {
    //! What is sent and what is received are of one type.
    use gpucomm::DeviceBuffer;
    use gpucomm::world::{Rank, requests};

    fn mix(rank: &Rank, send: DeviceBuffer<f32>, recv: DeviceBuffer<i32>) {
        let _ = rank.submit(requests::all_gather((send, recv)));
    }
}

mod request_that_exchanges_in_place {
    //! NCCL has no all_to_all in place.
    use gpucomm::world::Rank;
    use gpucomm::{DeviceBuffer, InPlace};

    fn turn(rank: &Rank, x: DeviceBuffer<f32>) {
        let _ = rank.all_to_all(InPlace(x));
    }
}

mod request_writes_what_is_shared {
    //! What several have is only read.
    use std::sync::Arc;

    use gpucomm::world::Rank;
    use gpucomm::{DeviceBuffer, InPlace, ReduceOp};

    fn write(rank: &Rank, x: Arc<DeviceBuffer<f32>>) {
        let _ = rank.all_reduce(InPlace(x), ReduceOp::Sum);
    }
}

mod sum_without_room_for_it {
    //! A sum for all ranks needs room for it.
    use gpucomm::world::Rank;
    use gpucomm::{DeviceBuffer, ReduceOp, SendOnly};

    fn nowhere(rank: &Rank, x: DeviceBuffer<f32>) {
        let _ = rank.all_reduce(SendOnly(x), ReduceOp::Sum);
    }
}

mod world_used_after_its_end {
    //! A world that was closed has no ranks.
    use std::time::Duration;

    use gpucomm::Result;
    use gpucomm::world::World;

    fn after(world: World) -> Result<()> {
        world.close_timeout(Duration::from_secs(1))?;
        world.barrier().wait()?;
        Ok(())
    }
}

fn main() {}
