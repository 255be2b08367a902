//! The operations of communicators as requests, each written once: as a request, and submitted by one rank or by all.

use std::fmt;

use crate::element::{ElementKind, Reduce, kind};
use crate::error::Result;
use crate::nccl::{AllRanks, AllToAll, FromRoot, Group, ToRoot};
use crate::world::answer::Answer;
use crate::world::at::At;
use crate::world::forms::OwnedBuffers;
use crate::world::memory::{Source, Target};
use crate::world::parts::Parts;
use crate::world::rank::Rank;
use crate::world::reduction::OwnedReduction;
use crate::world::request::Request;
use crate::world::wide::WideAnswer;
use crate::world::world::World;

/// Makes of each operation a request, a function that returns one, and the methods of [`Rank`] and [`World`]. An entry has the
/// arguments as they are given, how they are kept, what comes back, and how the request is recorded.
macro_rules! operations {
    ($(
        $name:ident $request:ident<$form:ident: $bound:path> of $element:ty $(where $reduce:ident)?,
            ($($arg:ident: $given:ty => $kept:ty),*) -> $back:ty = $give:ident;
            |$this:ident, $at:ident, $group:ident| $record:expr;
    )*) => {
        $(
            struct $request<$form: $bound> $(where $element: $reduce)? {
                form: $form,
                $($arg: $kept,)*
            }

            impl<$form: $bound> fmt::Debug for $request<$form> $(where $element: $reduce)? {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str(stringify!($name))
                }
            }

            impl<$form: $bound> Request for $request<$form> $(where $element: $reduce)? {
                type Back = $back;

                fn operation(&self) -> &'static str {
                    stringify!($name)
                }

                fn element(&self) -> Option<ElementKind> {
                    kind::<$element>()
                }

                fn check(&mut self, at: &At<'_>) -> Result<()> {
                    at.rehearse(stringify!($name), move |at, group| self.record(at, group))
                }

                fn record<'a>(&'a mut self, $at: &At<'a>, $group: &mut Group<'a>) -> Result<()> {
                    let $this = self;
                    $record
                }

                fn into_back(self) -> $back {
                    $give(self.form)
                }
            }

            #[doc = concat!("Returns [`", stringify!($name), "`](crate::Communicator::", stringify!($name), ") as a request.")]
            pub fn $name<$form: $bound>(form: $form $(, $arg: $given)*) -> impl Request<Back = $back>
            $(where $element: $reduce)?
            {
                $request { form $(, $arg: $arg.into())* }
            }
        )*

        /// Requests, by the names of the operations of [`Communicator`](crate::Communicator), which says what they need. Each is
        /// checked as there, and answered when its result is there.
        impl Rank {
            $(
                #[doc = concat!("Submits [`", stringify!($name), "`](crate::Communicator::", stringify!($name), ").")]
                pub fn $name<$form: $bound>(&self, form: $form $(, $arg: $given)*) -> Answer<$back>
                $(where $element: $reduce)?
                {
                    self.submit($name(form $(, $arg)*))
                }
            )*
        }

        /// Requests for all ranks of this process at once, with the buffers of each, in their order. If the root alone has two
        /// buffers, pass `(send, Some(recv))` for the root and `(send, None)` for the others, or `(Some(send), recv)` and
        /// `(None, recv)`.
        ///
        /// ```
        /// use gpucomm::world::World;
        /// use gpucomm::{Device, DeviceBuffer, Stream};
        ///
        /// # fn main() -> gpucomm::Result<()> {
        /// let world = World::new(&Device::all()?)?;
        /// let size = world.size();
        /// let streams = world.devices().into_iter().map(Stream::new).collect::<gpucomm::Result<Vec<_>>>()?;
        /// let own = |rank: usize| DeviceBuffer::from_slice(&streams[rank], &[rank as u32]);
        /// // Rank 0 gathers.
        /// let all = |rank| (rank == 0).then(|| DeviceBuffer::<u32>::zeroed(&streams[0], size)).transpose();
        /// let forms = (0..size).map(|rank| Ok((own(rank)?, all(rank)?))).collect::<gpucomm::Result<Vec<_>>>()?;
        /// let mut back = world.gather(forms, 0).wait()?;
        /// let (_, all) = back.swap_remove(0);
        /// assert_eq!(all.expect("the root has it").to_vec(&streams[0])?, (0..size as u32).collect::<Vec<_>>());
        ///
        /// // As many elements of each rank as its number.
        /// let counts: Vec<_> = (0..size).collect();
        /// let total = counts.iter().sum();
        /// let zeroed = |rank: usize, count| DeviceBuffer::<u8>::zeroed(&streams[rank], count);
        /// let forms = (0..size).map(|rank| Ok((zeroed(rank, rank)?, zeroed(rank, total)?)));
        /// world.all_gather_v(forms.collect::<gpucomm::Result<Vec<_>>>()?, counts).wait()?;
        /// # Ok(())
        /// # }
        /// ```
        impl World {
            $(
                operations!(@wide $name [$form $bound] [$($reduce)?] $element; ($($arg: $given => $kept),*) -> $back; $request);
            )*
        }
    };

    // The parts of each rank are its own.
    (@wide all_to_all_v $($rest:tt)*) => {
        /// [`Rank::all_to_all_v`] of all ranks: of each the buffers, and how they are divided.
        pub fn all_to_all_v<F: OwnedBuffers<AllToAll>, P: Into<Parts>>(
            &self,
            all: impl IntoIterator<Item = (F, P, P)>,
        ) -> WideAnswer<F::Back> {
            self.submit(all.into_iter().map(|(form, send, recv)| all_to_all_v(form, send, recv)))
        }
    };
    // Each rank of a process has another peer.
    (@wide send $($rest:tt)*) => {};
    (@wide recv $($rest:tt)*) => {};
    (
        @wide $name:ident [$form:ident $bound:path] [$($reduce:ident)?] $element:ty;
        ($($arg:ident: $given:ty => $kept:ty),*) -> $back:ty; $request:ident
    ) => {
        #[doc = concat!("[`Rank::", stringify!($name), "`] of all ranks.")]
        pub fn $name<$form: $bound>(&self, forms: impl IntoIterator<Item = $form> $(, $arg: $given)*) -> WideAnswer<$back>
        $(where $element: $reduce)?
        {
            $(let $arg: $kept = $arg.into();)*
            self.submit(forms.into_iter().map(|form| $request { form $(, $arg: Clone::clone(&$arg))* }))
        }
    };
}

/// What comes back of a form.
fn back<R, F: OwnedBuffers<R>>(form: F) -> F::Back {
    form.into_back()
}

/// What comes back as it was given.
fn itself<B>(form: B) -> B {
    form
}

operations! {
    all_reduce AllReduce<F: OwnedBuffers<AllRanks>> of <F as OwnedBuffers<AllRanks>>::Element where Reduce,
        (op: impl Into<OwnedReduction<F::Element>> => OwnedReduction<F::Element>) -> F::Back = back;
        |this, at, group| group.all_reduce(at.communicator(), this.form.buffers(), this.op.at(at)?, at.stream());

    reduce ReduceTo<F: OwnedBuffers<ToRoot>> of <F as OwnedBuffers<ToRoot>>::Element where Reduce,
        (op: impl Into<OwnedReduction<F::Element>> => OwnedReduction<F::Element>, root: usize => usize) -> F::Back = back;
        |this, at, group| group.reduce(at.communicator(), this.form.buffers(), this.op.at(at)?, this.root, at.stream());

    broadcast Broadcast<F: OwnedBuffers<FromRoot>> of <F as OwnedBuffers<FromRoot>>::Element,
        (root: usize => usize) -> F::Back = back;
        |this, at, group| group.broadcast(at.communicator(), this.form.buffers(), this.root, at.stream());

    all_gather AllGather<F: OwnedBuffers<AllRanks>> of <F as OwnedBuffers<AllRanks>>::Element,
        () -> F::Back = back;
        |this, at, group| group.all_gather(at.communicator(), this.form.buffers(), at.stream());

    reduce_scatter ReduceScatter<F: OwnedBuffers<AllRanks>> of <F as OwnedBuffers<AllRanks>>::Element where Reduce,
        (op: impl Into<OwnedReduction<F::Element>> => OwnedReduction<F::Element>) -> F::Back = back;
        |this, at, group| group.reduce_scatter(at.communicator(), this.form.buffers(), this.op.at(at)?, at.stream());

    all_to_all AllToAllRequest<F: OwnedBuffers<AllToAll>> of <F as OwnedBuffers<AllToAll>>::Element,
        () -> F::Back = back;
        |this, at, group| group.all_to_all(at.communicator(), this.form.buffers(), at.stream());

    gather Gather<F: OwnedBuffers<ToRoot>> of <F as OwnedBuffers<ToRoot>>::Element,
        (root: usize => usize) -> F::Back = back;
        |this, at, group| group.gather(at.communicator(), this.form.buffers(), this.root, at.stream());

    scatter Scatter<F: OwnedBuffers<FromRoot>> of <F as OwnedBuffers<FromRoot>>::Element,
        (root: usize => usize) -> F::Back = back;
        |this, at, group| group.scatter(at.communicator(), this.form.buffers(), this.root, at.stream());

    send Message<B: Source> of <B as Source>::Element,
        (peer: usize => usize) -> B = itself;
        |this, at, group| group.send(at.communicator(), this.form.source(), this.peer, at.stream());

    recv Receipt<B: Target> of <B as Source>::Element,
        (peer: usize => usize) -> B = itself;
        |this, at, group| group.recv(at.communicator(), this.form.target(), this.peer, at.stream());

    all_to_all_v AllToAllV<F: OwnedBuffers<AllToAll>> of <F as OwnedBuffers<AllToAll>>::Element,
        (send: impl Into<Parts> => Parts, recv: impl Into<Parts> => Parts) -> F::Back = back;
        |this, at, group| {
            let (send, recv) = (this.send.layout(), this.recv.layout());
            group.all_to_all_v(at.communicator(), this.form.buffers(), send, recv, at.stream())
        };

    all_gather_v AllGatherV<F: OwnedBuffers<AllRanks>> of <F as OwnedBuffers<AllRanks>>::Element,
        (parts: impl Into<Parts> => Parts) -> F::Back = back;
        |this, at, group| group.all_gather_v(at.communicator(), this.form.buffers(), this.parts.layout(), at.stream());

    reduce_scatter_v ReduceScatterV<F: OwnedBuffers<AllRanks>> of <F as OwnedBuffers<AllRanks>>::Element where Reduce,
        (parts: impl Into<Parts> => Parts, op: impl Into<OwnedReduction<F::Element>> => OwnedReduction<F::Element>) -> F::Back = back;
        |this, at, group| {
            let op = this.op.at(at)?;
            group.reduce_scatter_v(at.communicator(), this.form.buffers(), this.parts.layout(), op, at.stream())
        };

    gather_v GatherV<F: OwnedBuffers<ToRoot>> of <F as OwnedBuffers<ToRoot>>::Element,
        (parts: impl Into<Parts> => Parts, root: usize => usize) -> F::Back = back;
        |this, at, group| {
            group.gather_v(at.communicator(), this.form.buffers(), this.parts.layout(), this.root, at.stream())
        };

    scatter_v ScatterV<F: OwnedBuffers<FromRoot>> of <F as OwnedBuffers<FromRoot>>::Element,
        (parts: impl Into<Parts> => Parts, root: usize => usize) -> F::Back = back;
        |this, at, group| {
            group.scatter_v(at.communicator(), this.form.buffers(), this.parts.layout(), this.root, at.stream())
        };
}
