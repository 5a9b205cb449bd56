"""`python -m server.up [down|dev]`; FERMI_DATA, FERMI_HOST and FERMI_PORT set where."""

import os
import sys

from fermi.runner import cgroups, programs
from server import paths
from server.up import console
from server.up.checks import CannotStart
from server.up.dev import Development
from server.up.down import down
from server.up.listen_address import Address
from server.up.supervisor import Platform


def main(arguments: list[str]) -> int:
    """Run the command and return its exit code; 2 where the platform was not started."""
    data = paths.data_dir()
    programs.set_trusted_path([str(data)])
    try:
        if arguments == ["down"]:
            return down(data)
        if arguments == ["dev"]:
            return Development(data, _address()).run()
        if arguments:
            raise CannotStart("The arguments are `down` and `dev`; without one the platform starts.")
        cgroups.divide_own_group()
        return Platform(data, _address()).run()
    except CannotStart as error:
        console.say(str(error), fault=True)
        return 2


def _address() -> Address:
    port = os.environ.get("FERMI_PORT") or "8000"
    if not port.isdecimal():
        raise CannotStart(f"{port!r} is not a port: choose one from 1 to 65535 with PORT=<number>.")
    return Address(os.environ.get("FERMI_HOST") or "127.0.0.1", int(port))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
