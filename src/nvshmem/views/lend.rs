//! Views, lent to brackets.

/// To be read by `&`, and to be written by `&mut`: each type has `note`, which says whose the memory is, its address and its length.
macro_rules! lends {
    ($($view:ident)*) => {$(
        impl<T: crate::element::Element> crate::cuda::Lend for &$view<'_, T> {
            type Lent<'l> = crate::cuda::Lent<'l, T>;

            fn uses<'s>(&'s self, uses: &mut crate::cuda::LentUses<'s>) {
                self.note(uses, crate::cuda::Access::Read);
            }

            fn lent<'l>(&self) -> Self::Lent<'l> {
                crate::cuda::Lent::of(self.as_raw().cast_const().cast(), self.len())
            }
        }

        impl<T: crate::element::Element> crate::cuda::Lend for &mut $view<'_, T> {
            type Lent<'l> = crate::cuda::LentMut<'l, T>;

            fn uses<'s>(&'s self, uses: &mut crate::cuda::LentUses<'s>) {
                self.note(uses, crate::cuda::Access::Write);
            }

            fn lent<'l>(&self) -> Self::Lent<'l> {
                crate::cuda::LentMut::of(self.as_raw().cast(), self.len())
            }
        }
    )*};
}
pub(super) use lends;
