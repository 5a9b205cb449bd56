"""The address that the platform listens on, and the host names by which it may be reached."""

import ipaddress
import socket
from dataclasses import dataclass

ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


@dataclass(frozen=True)
class ListenAddress:
    """Host and port to listen on."""

    host: str
    port: int

    @property
    def probe(self) -> str:
        """Host by which this machine itself reaches it."""
        return ANY_ADDRESS.get(self.host, self.host)

    @property
    def url(self) -> str:
        name = f"[{self.probe}]" if ":" in self.probe else self.probe
        return f"http://{name}:{self.port}"

    @property
    def loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def allowed_hosts(self) -> list[str]:
        """Return the Host headers to accept in addition to the loopback names: this machine's own names and addresses,
        so that a foreign name for our address (DNS rebinding) gets no answer."""
        if self.loopback:
            return []
        if self.host not in ANY_ADDRESS:
            return [f"[{self.host}]" if ":" in self.host else self.host]
        names = {socket.gethostname(), socket.getfqdn(), *_list_own_addresses()}
        return sorted(names)


def _list_own_addresses() -> set[str]:
    """Return what the host name resolves to, and the source address of packets to other networks (none is sent)."""
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None)}
    except OSError:
        found = set()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as outward:
        try:
            outward.connect(("192.0.2.1", 9))  # a documentation address: UDP's connect only looks up the route
            found.add(outward.getsockname()[0])
        except OSError:
            pass
    return {f"[{address}]" if ":" in address else address for address in found}
