//! tare: run, observe and weigh appliances.

fn main() {}
