"""What runs in an environment for an SSH session: a command under the user's own shell, SFTP, a relay to a port there.
Nothing of it is more than a person with a shell could start."""

from pathlib import Path

UNDER_SHELL = 'exec "${SHELL:-/bin/sh}" -c "$0"'
SFTP = """
for one in "$(command -v sftp-server)" /usr/lib/openssh/sftp-server /usr/libexec/openssh/sftp-server \
    /usr/libexec/sftp-server /usr/lib/ssh/sftp-server /usr/lib/sftp-server; do
  [ -x "$one" ] && exec "$one"
done
exec "$(command -v python3 || command -v python || echo python3)" -c "$0"
"""
PYTHON = 'exec "$(command -v python3 || command -v python || echo python3)" -c "$0" "$@"'
RELAY = """
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


def command(text: str) -> list[str]:
    return ["/bin/sh", "-c", UNDER_SHELL, text]


def sftp() -> list[str]:
    """OpenSSH's server where there is one, else ours."""
    source = Path(__file__).with_name("sftp_server.py").read_text("utf-8")
    return ["/bin/sh", "-c", SFTP, source]


def relay(kind: str, *where: object) -> list[str]:
    """`tcp`, a host and a port, or `unix` and a path."""
    return ["/bin/sh", "-c", PYTHON, RELAY, kind, *map(str, where)]
