//! Groups as one request: lists of requests, and tuples.

use crate::error::{Error, Result};
use crate::nccl::Group;
use crate::world::at::At;
use crate::world::request::Request;

/// What groups are called, in errors and in what is told of them.
const OPERATION: &str = "group";

/// What is wrong with a member of a group, which is to record something.
fn check<R: Request>(one: &mut R, member: usize, at: &At<'_>) -> Result<()> {
    let checked = one.check(at).and_then(|()| at.rehearse(OPERATION, |at, group| one.record(at, group)));
    checked.map_err(|error| match error {
        Error::InvalidArgument { operation, what, expected, got } => {
            let got = format!("{got}, in member {member} of the group");
            Error::InvalidArgument { operation, what, expected, got }
        }
        error => error,
    })
}

impl<R: Request> Request for Vec<R> {
    type Back = Vec<R::Back>;

    fn operation(&self) -> &'static str {
        OPERATION
    }

    fn check(&mut self, at: &At<'_>) -> Result<()> {
        self.iter_mut().enumerate().try_for_each(|(member, one)| check(one, member, at))
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
                $(check(&mut self.$at, $at, at)?;)*
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
