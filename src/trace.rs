//! Spans of the crate `tracing`, with the feature of that name; without it nothing is left of them.

/// A span for a wait of the host, as long as what is returned lives.
#[cfg(feature = "tracing")]
pub(crate) fn wait(operation: &'static str, device: i32, stream: u64) -> tracing::span::EnteredSpan {
    tracing::trace_span!(target: "gpucomm", "wait", operation, device, stream).entered()
}

/// No span.
#[cfg(not(feature = "tracing"))]
pub(crate) struct Nothing;

#[cfg(not(feature = "tracing"))]
#[inline(always)]
pub(crate) fn wait(_: &'static str, _: i32, _: u64) -> Nothing {
    Nothing
}
