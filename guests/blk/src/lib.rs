//! Load on a disk, like iometer (vIC 2011).
//!
//! A job is a mix of reads and writes of one block size, random or sequential,
//! with a number of commands in flight. There is a thread for each: it sends its
//! next command when its own last one has completed, so that completions come one
//! by one and each has work to do. Parameters are words of the command line
//! ([`Job`]); `cif=1,2,4` runs the job once for each depth. Each run prints
//! `{"begin":true,..}`, `{"end":true}` and one line of figures ([`report`]).
//!
//! | word | default | what |
//! |---|---|---|
//! | `disk=NAME` | `disk0` | name or serial number |
//! | `cif=N,..` | 1 | commands in flight, 1 to 256 |
//! | `block=BYTES` | 4096 | with `K` or `M`; whole sectors, up to 1 MiB |
//! | `read=PERCENT` | 100 | the rest is written |
//! | `order=random\|sequential` | random | sequential: all threads share one cursor |
//! | `span=BYTES` | the disk | how much of it is used, with `K`, `M` or `G` |
//! | `rate=N` | none | commands a second of all threads; latency from when due |
//! | `flush_every=N` | never | a flush after each N-th write of a thread |
//! | `committer=on\|off` | off | one more thread: writes a block, flushes, again |
//! | `cache=writeback\|writethrough` | as it is | switches the disk's write cache first |
//! | `clear=discard\|zeroes` | no | makes the span empty first, zeroes are checked |
//! | `verify=on\|off` | off | writes patterns, and reads check them |
//! | `ms=N` or `count=N` | `ms=1000` | when a run ends |
//! | `warm_ms=N` | 100 | before anything counts |
//! | `ramp_ms=N` | 0 | over which the threads begin: a slow disk then answers evenly |
//! | `seed=N` | 1 | of the random numbers |

#![cfg_attr(target_os = "none", no_std)]

extern crate alloc;

pub mod histogram;
pub mod job;
pub mod pattern;
pub mod places;
pub mod prepare;
pub mod report;
pub mod run;
mod worker;

pub use job::{Job, JobError};
