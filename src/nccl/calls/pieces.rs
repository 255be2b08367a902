//! Parts of a buffer, by which operations are made of others.

use super::call::Call;
use super::kind::Kind;
use super::site::Site;
use crate::cuda::Region;
use crate::element::Element;

/// `count` elements at element `offset` of a region whose bounds were checked.
#[inline]
pub(crate) fn part<T: Element>(region: Region<'_>, offset: usize, count: usize) -> Region<'_> {
    region.part(offset * size_of::<T>(), count * size_of::<T>())
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
    call.send = Some(part::<T>(from, offset, count));
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
    call.recv = Some(part::<T>(to, offset, count));
    call
}
