//! The 64-bit Linux boot protocol: a bzImage's payload or a vmlinux is entered
//! in 64-bit mode with its boot parameters in RSI.
//!
//! Reference: Linux `Documentation/arch/x86/boot.rst` ("64-bit boot protocol"),
//! `zero-page.rst`. linux-loader's bzImage loader trusts sizes and addresses of
//! the header; images here are hostile, so the header is parsed here.

mod bzimage;
mod page_table;
mod setup_header;
mod zero_page;

pub(crate) use bzimage::BzImage;
pub(crate) use page_table::write as write_page_table;
pub(crate) use setup_header::SetupHeader;
pub(crate) use zero_page::ZeroPage;
