//! Sockets that read like `std::net`, on smoltcp and virtio-net.
//!
//! What applications see (guest builds only; the same on every core):
//!
//! ```text
//! TcpListener::bind(impl ToSocketAddrs) -> io::Result<TcpListener>   // backlog 128
//!   .accept() -> io::Result<(TcpStream, SocketAddr)>     blocks
//!   .set_accept_timeout(Option<Duration>)                then accept gives TimedOut
//!   .local_addr() -> io::Result<SocketAddr>
//! TcpStream::connect(impl ToSocketAddrs) -> io::Result<TcpStream>
//!   io::Read + io::Write for TcpStream and &TcpStream (blocking)
//!   .write_vectored(&[IoSlice])          header and body in one segment
//!   .shutdown(Shutdown), .peer_addr(), .local_addr()
//!   .set_read_timeout(Option<Duration>), .set_write_timeout(..)  -> io::Result<()>
//!   .set_nodelay(bool), .set_nonblocking(bool)   then WouldBlock instead of waiting
//!   .peek(&mut [u8]), .readable() -> bool        without waiting
//!   .try_clone() -> io::Result<TcpStream>        both halves in two threads
//!   drop: sends what is buffered, then FIN
//! UdpSocket::bind(..), .send_to(&[u8], addr), .recv_from(&mut [u8]), .local_addr(),
//!   .set_read_timeout(..)
//! net::address() -> Option<Ipv4Addr>      the configured address, None before DHCP
//! net::wait_configured(Option<Duration>) -> io::Result<Ipv4Addr>
//! net::stats() -> Stats                   counters
//! ```

pub mod checksum;
pub mod flow;
pub mod frame;
pub mod link;
pub mod port;
pub mod stack;
pub mod timers;
pub mod waiters;
