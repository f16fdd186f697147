//! Device models: serial, virtio over PCI with MSI-X, net, rng.
