//! Groups as one request: lists of requests, and tuples.

use crate::error::Result;
use crate::nccl::Group;
use crate::world::at::At;
use crate::world::request::Request;

/// What groups are called, in errors and in what is told of them.
const OPERATION: &str = "group";

impl<R: Request> Request for Vec<R> {
    type Back = Vec<R::Back>;

    fn operation(&self) -> &'static str {
        OPERATION
    }

    fn check(&mut self, at: &At<'_>) -> Result<()> {
        self.iter_mut().try_for_each(|one| one.check(at))
    }

    fn record<'a>(&'a mut self, at: &At<'a>, group: &mut Group<'a>) -> Result<()> {
        self.iter_mut().try_for_each(|one| one.record(at, group))
    }

    fn into_back(self) -> Vec<R::Back> {
        self.into_iter().map(Request::into_back).collect()
    }
}

macro_rules! tuple {
    ($($name:ident $at:tt)*) => {
        impl<$($name: Request),*> Request for ($($name,)*) {
            type Back = ($($name::Back,)*);

            fn operation(&self) -> &'static str {
                OPERATION
            }

            fn check(&mut self, at: &At<'_>) -> Result<()> {
                $(self.$at.check(at)?;)*
                Ok(())
            }

            fn record<'a>(&'a mut self, at: &At<'a>, group: &mut Group<'a>) -> Result<()> {
                $(self.$at.record(at, group)?;)*
                Ok(())
            }

            fn into_back(self) -> Self::Back {
                ($(self.$at.into_back(),)*)
            }
        }
    };
}

tuple!(A 0);
tuple!(A 0 B 1);
tuple!(A 0 B 1 C 2);
tuple!(A 0 B 1 C 2 D 3);
tuple!(A 0 B 1 C 2 D 3 E 4);
tuple!(A 0 B 1 C 2 D 3 E 4 G 5);
tuple!(A 0 B 1 C 2 D 3 E 4 G 5 H 6);
tuple!(A 0 B 1 C 2 D 3 E 4 G 5 H 6 I 7);
