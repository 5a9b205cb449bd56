"""`python -m server.up [down|dev]`; FERMI_DATA, FERMI_HOST and FERMI_PORT set where."""

import os
import sys

from fermi.runner import cgroups, programs
from server import paths
from server.up import console
from server.up.checks import StartupError
from server.up.dev import DevPlatform
from server.up.down import stop_platform
from server.up.listen_address import ListenAddress
from server.up.supervisor import Platform


def main(arguments: list[str]) -> int:
    """Run the command and return its exit code; 2 where the platform was not started."""
    data = paths.get_data_dir()
    programs.set_trusted_path([str(data)])
    try:
        if arguments == ["down"]:
            return stop_platform(data)
        if arguments == ["dev"]:
            return DevPlatform(data, _address()).run()
        if arguments:
            raise StartupError("The arguments are `down` and `dev`; without one the platform starts.")
        cgroups.divide_own_group()
        return Platform(data, _address()).run()
    except StartupError as error:
        console.print_line(str(error), fault=True)
        return 2


def _address() -> ListenAddress:
    port = os.environ.get("FERMI_PORT") or "8000"
    if not port.isdecimal():
        raise StartupError(f"{port!r} is not a port: choose one from 1 to 65535 with PORT=<number>.")
    return ListenAddress(os.environ.get("FERMI_HOST") or "127.0.0.1", int(port))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
