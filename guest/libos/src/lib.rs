//! Library OS: threads, idle, net, files, clock; the API that applications see.

#![cfg_attr(target_os = "none", no_std)]
