"""What an agent says of its host's ports."""

import os
import socket

from fermi.agent.host_facts import BusyPorts


def test_ports_of_other_programs_are_reported_with_their_holders() -> None:
    taken = BusyPorts()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        (said,) = (one for one in taken.list_ports(()) if one["port"] == port)
        assert said["holder"].startswith(f"pid {os.getpid()} (")
        assert port not in [one["port"] for one in taken.list_ports({os.getsid(0)})], "a rank's session is our own"
    assert port not in [one["port"] for one in taken.list_ports(())]
