"""The `fermi` command, on top of `fermi.client`."""
