//! Client of a machine's control socket.
