//! Flexible Data Placement at work: what [`fdp`](crate::fdp) keeps is looked after, and hosts place writes by
//! it.
//!
//! | module | concept |
//! |---|---|
//! | `attend` | what is done at the end of a turn: notes and time limits become events |
//! | `manage` | I/O Management Receive and Send, and placing a write |

mod attend;
mod manage;
