"""What runs in an environment for an SSH session: a command under the user's shell, SFTP, a relay to a port. A user
with a shell there could start all of it."""

from pathlib import Path

SHELL_SCRIPT = 'exec "${SHELL:-/bin/sh}" -c "$0"'
SFTP_SCRIPT = """
for one in "$(command -v sftp-server)" /usr/lib/openssh/sftp-server /usr/libexec/openssh/sftp-server \
    /usr/libexec/sftp-server /usr/lib/ssh/sftp-server /usr/lib/sftp-server; do
  [ -x "$one" ] && exec "$one"
done
exec "$(command -v python3 || command -v python || echo python3)" -c "$0"
"""
PYTHON_SCRIPT = 'exec "$(command -v python3 || command -v python || echo python3)" -c "$0" "$@"'
RELAY_SOURCE = """
import os, socket, sys, threading

if sys.argv[1] == "unix":
    there = socket.socket(socket.AF_UNIX)
    there.connect(sys.argv[2])
else:
    there = socket.create_connection((sys.argv[2], int(sys.argv[3])), 10)
    there.settimeout(None)

def up():
    try:
        while data := os.read(0, 65536):
            there.sendall(data)
        there.shutdown(socket.SHUT_WR)
    except OSError:
        pass

threading.Thread(target=up, daemon=True).start()
while data := there.recv(65536):
    while data:
        data = data[os.write(1, data):]
"""


def build_shell_command(text: str) -> list[str]:
    """Return the command line that runs `text` under the user's shell."""
    return ["/bin/sh", "-c", SHELL_SCRIPT, text]


def build_sftp_command() -> list[str]:
    """Return the command line of OpenSSH's SFTP server, or of ours where there is none."""
    source = Path(__file__).with_name("sftp_server.py").read_text("utf-8")
    return ["/bin/sh", "-c", SFTP_SCRIPT, source]


def build_relay_command(kind: str, *where: object) -> list[str]:
    """Return the command line of a relay to `tcp`, host and port, or to `unix` and a path."""
    return ["/bin/sh", "-c", PYTHON_SCRIPT, RELAY_SOURCE, kind, *map(str, where)]
