//! Parts of a buffer, by which operations are made of others.

use super::buffers::Elements;
use super::call::Call;
use super::kind::Kind;
use super::site::Site;
use crate::cuda::Region;

/// `count` elements at element `offset` of a region whose bounds were checked.
pub(crate) fn part(region: Region<'_>, of: Elements, (offset, count): (usize, usize)) -> Region<'_> {
    region.part(offset * of.size, count * of.size)
}

/// A message of a part of `from` to `peer`.
#[inline]
pub(crate) fn send_part<'a>(
    site: &Site<'a>,
    (from, of): (Region<'a>, Elements),
    place: (usize, usize),
    peer: usize,
) -> Call<'a> {
    Call { send: Some(part(from, of, place)), ..site.call(Kind::Send { peer }, of, place.1) }
}

/// A message from `peer` into a part of `to`.
#[inline]
pub(crate) fn recv_part<'a>(
    site: &Site<'a>,
    (to, of): (Region<'a>, Elements),
    place: (usize, usize),
    peer: usize,
) -> Call<'a> {
    Call { recv: Some(part(to, of, place)), ..site.call(Kind::Recv { peer }, of, place.1) }
}
