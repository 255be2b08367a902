//! What memory of a communicator is, as a type.

use std::fmt;

/// Up to so many bytes [`Communicator::alloc`](crate::nccl::Communicator::alloc) makes symmetric windows, where it makes any: 16 MiB.
///
/// On four H200s with NCCL 2.28.9 an `all_reduce` between windows took less time than one between other memory up to 8 MiB, as much at
/// 16 MiB, and 1.11 to 1.19 times as much from 32 to 512 MiB (docs/measurements/2026-11-21-h200-by-size.md).
pub const SYMMETRIC_UP_TO: usize = 16 << 20;

/// What the memory of a [`CommBuffer`](crate::nccl::CommBuffer) is: [`Fitting`], [`Symmetric`] or [`Local`]. Nobody else can implement it.
pub trait MemoryKind: Sealed + fmt::Debug + Send + Sync + 'static {}

/// Whatever fits: of [`Communicator::alloc`](crate::nccl::Communicator::alloc) a symmetric window up to [`SYMMETRIC_UP_TO`] bytes, where NCCL has them, and other
/// memory beyond; [`is_window`](crate::nccl::CommBuffer::is_window) tells. Buffers of the other kinds become this one by
/// [`into_fitting`](crate::nccl::CommBuffer::into_fitting).
#[derive(Debug)]
pub enum Fitting {}

/// A symmetric window, of any size: what other ranks put to ([`Communicator::put_signal`](crate::nccl::Communicator::put_signal)), and what is fastest for
/// small messages. Made by [`Communicator::alloc_symmetric`](crate::nccl::Communicator::alloc_symmetric).
#[derive(Debug)]
pub enum Symmetric {}

/// No window: the other ranks have no part in it. What is fastest for large reductions, and can be registered. Made by
/// [`Communicator::alloc_local`](crate::nccl::Communicator::alloc_local).
#[derive(Debug)]
pub enum Local {}

impl MemoryKind for Fitting {}
impl MemoryKind for Symmetric {}
impl MemoryKind for Local {}

/// Keeps the kinds to those of this file.
pub trait Sealed {}

impl Sealed for Fitting {}
impl Sealed for Symmetric {}
impl Sealed for Local {}
