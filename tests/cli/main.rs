//! The program as a user runs it: tables, checks, JSON, several processes, and nonsense.

mod harness;
mod nonsense;
mod processes;
mod tables;
