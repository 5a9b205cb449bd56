"""The `fermi` command, a client of `fermi.client`."""
