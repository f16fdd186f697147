//! IPv6 on one link: addresses and routes ([`table`]), how addresses are made
//! ([`address`]), and the messages of neighbour discovery ([`message`]) and
//! stateless DHCPv6 ([`dhcp`]). What is done with them is in `stack::ipv6`.

pub(crate) mod address;
pub(crate) mod dhcp;
pub(crate) mod message;
pub(crate) mod table;
