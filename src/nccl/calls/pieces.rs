//! Parts of a buffer, by which operations are made of others.

use super::call::Call;
use super::kind::Kind;
use super::site::Site;
use crate::cuda::Region;
use crate::element::{Element, ElementKind};

/// `count` elements of `kind` at element `offset` of a region whose bounds were checked.
#[inline]
pub(crate) fn part(region: Region<'_>, kind: ElementKind, offset: usize, count: usize) -> Region<'_> {
    region.part(offset * kind.size(), count * kind.size())
}

/// A message of a part of `from` to `peer`.
#[inline]
pub(crate) fn send_part<'a, T: Element>(
    site: &Site<'a>,
    from: Region<'a>,
    (offset, count): (usize, usize),
    peer: usize,
) -> Call<'a> {
    let mut call = site.call::<T>(Kind::Send { peer }, count);
    call.send = Some(part(from, T::KIND, offset, count));
    call
}

/// A message from `peer` into a part of `to`.
#[inline]
pub(crate) fn recv_part<'a, T: Element>(
    site: &Site<'a>,
    to: Region<'a>,
    (offset, count): (usize, usize),
    peer: usize,
) -> Call<'a> {
    let mut call = site.call::<T>(Kind::Recv { peer }, count);
    call.recv = Some(part(to, T::KIND, offset, count));
    call
}
