//! tare-monitor: one virtual machine, its threads, its control socket, confined.

fn main() {}
