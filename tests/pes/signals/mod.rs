//! Signals, waits for values, and what orders puts.

mod graphs;
mod order;
mod values;
mod words;
