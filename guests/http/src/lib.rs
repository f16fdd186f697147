//! HTTP/1.1 static file server as an appliance.
