//! The appliance that `tare run ./program --disk FILE` starts: the image `linux`, with the
//! ext4 file system of the disk in the program's tree (ADR 76).

#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
tare_libos::entry!(
    main,
    programs_end = tare_linux::LOW_END,
    console = tare_libos::ports::attach,
    expiries = tare_linux::EXPIRIES
);

#[cfg(target_os = "none")]
fn main() -> Result<u8, tare_linux::RunError> {
    tare_linux::run_with(tare_ext4::mount)
}

#[cfg(not(target_os = "none"))]
fn main() {
    println!("this image boots by: tare run ./program --disk FILE");
}
