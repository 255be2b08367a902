//! What each PE does: starts, measures row after row, and ends.

use gpucomm::nvshmem::{Context, ContextOptions, ContextUniqueId};
use gpucomm::{Device, ElementKind, bf16, f16};
use serde_json::{Value, json};

use super::member::Member;
use super::row::{Found, Row, Setup, footer, header, line, report};
use super::{pair, together};
use crate::failure::{Failure, Result};
use crate::options::nvshmem::NvshmemOptions;
use crate::perf::rank::bytes;
use crate::perf::row::RankInfo;
use crate::perf::team::Peers;

/// Measures as PE `pe` on `device`; true if nothing was wrong.
pub fn run(options: &NvshmemOptions, peers: &dyn Peers, device: Device, pe: usize, n_pes: usize) -> Result<bool> {
    let id = if pe == 0 { json!(ContextUniqueId::new()?.as_bytes().as_slice()) } else { Value::Null };
    let ids = peers.exchange(id)?;
    let id = bytes(&ids[0])
        .map(ContextUniqueId::from_bytes)
        .ok_or_else(|| Failure::run("PE 0 sent something that is no unique id"))?;
    let infos = peers.exchange(RankInfo::new(pe, device)?.json())?;
    // SAFETY: all PEs run this program, started with the same arguments: they make the same calls in the same order.
    let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, pe, n_pes)) }?;
    let setup = Setup {
        options,
        libraries: libraries()?,
        pes: infos.iter().map(RankInfo::from_json).collect::<Result<_>>()?,
        status: format!("{:?}", ctx.status()),
    };
    let good = measure(&Member::new(options, peers, &ctx)?, &setup)?;
    ctx.close()?;
    Ok(good)
}

/// What runs underneath, in words.
fn libraries() -> Result<String> {
    let nvshmem = gpucomm::version::running_nvshmem()?;
    let cuda = gpucomm::cuda::runtime_version()?;
    let backend = if gpucomm::backend() == gpucomm::Backend::Emulator { ", CPU emulator" } else { "" };
    let (major, minor, patch) = (nvshmem.major, nvshmem.minor, nvshmem.patch);
    Ok(format!("NVSHMEM {major}.{minor}.{patch}, CUDA {}.{}{backend}", cuda / 1000, cuda % 1000 / 10))
}

fn measure(member: &Member<'_>, setup: &Setup<'_>) -> Result<bool> {
    for line in header(setup) {
        member.print(&line)?;
    }
    let (mut rows, mut all) = (Vec::new(), Found::default());
    let mut add = |row: Row| {
        member.print(&line(member.options, &row))?;
        all += row.found.unwrap_or_default();
        rows.push(row);
        Ok(())
    };
    if member.options.operation.is_of_two() {
        pair::rows(member, &mut add)?;
    } else {
        match member.options.kind {
            ElementKind::I8 => together::rows::<i8>(member, &mut add),
            ElementKind::U8 => together::rows::<u8>(member, &mut add),
            ElementKind::I32 => together::rows::<i32>(member, &mut add),
            ElementKind::U32 => together::rows::<u32>(member, &mut add),
            ElementKind::I64 => together::rows::<i64>(member, &mut add),
            ElementKind::U64 => together::rows::<u64>(member, &mut add),
            ElementKind::F16 => together::rows::<f16>(member, &mut add),
            ElementKind::Bf16 => together::rows::<bf16>(member, &mut add),
            ElementKind::F32 => together::rows::<f32>(member, &mut add),
            ElementKind::F64 => together::rows::<f64>(member, &mut add),
            other => Err(Failure::usage(format!("NVSHMEM does not know the type {other}"))),
        }?;
    }
    for line in footer(member.options, all) {
        member.print(&line)?;
    }
    if member.pe() == 0 {
        member.peers.report(report(setup, &rows, all))?;
    }
    Ok(all == Found::default())
}
