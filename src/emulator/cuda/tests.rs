//! Tests of the C functions together.
