//! What requests of this crate have in common.

/// A request: its name, its type and where the elements are, what it owns, the name of its operation, and how it is recorded.
macro_rules! request {
    (
        $(#[$doc:meta])*
        $name:ident<$($param:ident: $bound:path),*> of $element:ty $(, $reduce:ident)?;
        { $($field:ident: $kind:ty),* $(,)? }
        $operation:literal -> $back:ty = |$this:ident| $give:expr;
        |$me:ident, $at:ident, $group:ident| $record:expr
    ) => {
        $(#[$doc])*
        pub struct $name<$($param: $bound),*> $(where $element: $reduce)? {
            $(pub(super) $field: $kind,)*
        }

        impl<$($param: $bound),*> std::fmt::Debug for $name<$($param),*> $(where $element: $reduce)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }

        impl<$($param: $bound),*> $crate::world::request::Request for $name<$($param),*> $(where $element: $reduce)? {
            type Back = $back;

            fn operation(&self) -> &'static str {
                $operation
            }

            fn element(&self) -> Option<$crate::element::ElementKind> {
                $crate::element::kind::<$element>()
            }

            fn check(&mut self, at: &$crate::world::at::At<'_>) -> $crate::error::Result<()> {
                at.rehearse($operation, move |at, group| self.record(at, group))
            }

            fn record<'a>(
                &'a mut self,
                $at: &$crate::world::at::At<'a>,
                $group: &mut $crate::nccl::Group<'a>,
            ) -> $crate::error::Result<()> {
                let $me = self;
                $record
            }

            fn into_back(self) -> $back {
                let $this = self;
                $give
            }
        }
    };
}
pub(super) use request;
