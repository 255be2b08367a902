//! Communicators, collectives and groups.
