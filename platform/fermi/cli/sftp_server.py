"""SFTP version 3 on standard input and output, for environments whose image has no OpenSSH:
`remote_session.build_sftp_command` sends this text to their Python. Standard library only. The messages are specified
in draft-ietf-secsh-filexfer-02, and `posix-rename@openssh.com` and `fsync@openssh.com` in OpenSSH's PROTOCOL."""

import errno
import os
import pwd
import stat
import struct
import sys
import time
from typing import Any

EOF, NO_SUCH_FILE, DENIED, FAILURE, UNSUPPORTED = 1, 2, 3, 4, 8
SIZE, OWNER, MODE, TIMES = 1, 2, 4, 8
READ, WRITE, APPEND, CREATE, TRUNCATE, EXCLUSIVE = 1, 2, 4, 8, 16, 32
STATUS, HANDLE, DATA, NAME, ATTRS = 101, 102, 103, 104, 105
EXTENSIONS = {b"posix-rename@openssh.com": b"1", b"fsync@openssh.com": b"1"}
MAX_READ_BYTES = 1 << 18


class SftpError(Exception):
    """An answer other than success: status code and message."""


def pack_u32(value: int) -> bytes:
    return struct.pack(">I", value & 0xFFFFFFFF)


def pack_string(value: bytes | str) -> bytes:
    data = value if isinstance(value, bytes) else os.fsencode(value)
    return pack_u32(len(data)) + data


class SftpMessage:
    """Reader of one message."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def read_bytes(self, count: int) -> bytes:
        self.at += count
        return self.data[self.at - count : self.at]

    def u32(self) -> int:
        return int.from_bytes(self.read_bytes(4), "big")

    def u64(self) -> int:
        return int.from_bytes(self.read_bytes(8), "big")

    def text(self) -> bytes:
        return self.read_bytes(self.u32())

    def attributes(self) -> dict[str, Any]:
        flags = self.u32()
        found: dict[str, Any] = {}
        if flags & SIZE:
            found["size"] = self.u64()
        if flags & OWNER:
            found["owner"] = (self.u32(), self.u32())
        if flags & MODE:
            found["mode"] = stat.S_IMODE(self.u32())
        if flags & TIMES:
            found["times"] = (self.u32(), self.u32())
        return found


def pack_attributes(status: os.stat_result) -> bytes:
    numbers = (status.st_uid, status.st_gid, status.st_mode, int(status.st_atime), int(status.st_mtime))
    return pack_u32(SIZE | OWNER | MODE | TIMES) + struct.pack(">Q", status.st_size) + b"".join(map(pack_u32, numbers))


def pack_name_entry(name: bytes, status: os.stat_result) -> bytes:
    """Return a name, its line as in `ls -l`, and its attributes."""
    try:
        owner = pwd.getpwuid(status.st_uid).pw_name
    except KeyError:
        owner = str(status.st_uid)
    when = time.strftime("%b %d %H:%M", time.localtime(status.st_mtime))
    line = (
        f"{stat.filemode(status.st_mode)} {status.st_nlink:4} {owner:8} {status.st_gid:8} {status.st_size:10} {when} "
    )
    return pack_string(name) + pack_string(line.encode() + name) + pack_attributes(status)


def set_attributes(where: bytes | int, given: dict[str, Any]) -> None:
    """Set attributes of a path or a descriptor."""
    if "size" in given:
        os.truncate(where, given["size"])
    if "owner" in given:
        os.chown(where, *given["owner"])
    if "mode" in given:
        os.chmod(where, given["mode"])
    if "times" in given:
        os.utime(where, given["times"])


class SftpServer:
    """Handles of one session, and the answers to its requests."""

    def __init__(self) -> None:
        self.handles: dict[bytes, Any] = {}
        self.next = 0

    def answer(self, kind: int, message: SftpMessage) -> bytes:
        """Return the answer to one request."""
        number = message.read_bytes(4)
        try:
            said = self.ACTS[kind](self, message) if kind in self.ACTS else self.status(UNSUPPORTED, "not supported")
        except SftpError as error:
            said = self.status(*error.args)
        except FileNotFoundError as error:
            said = self.status(NO_SUCH_FILE, error.strerror)
        except PermissionError as error:
            said = self.status(DENIED, error.strerror)
        except (OSError, ValueError) as error:
            said = self.status(FAILURE, getattr(error, "strerror", None) or str(error))
        said = self.status(0, "") if said is None else said
        return said[:1] + number + said[1:]

    def status(self, code: int, why: str | None) -> bytes:
        return bytes([STATUS]) + pack_u32(code) + pack_string(why or "") + pack_string("")

    def add_handle(self, thing: Any) -> bytes:
        self.next += 1
        name = str(self.next).encode()
        self.handles[name] = thing
        return bytes([HANDLE]) + pack_string(name)

    def get_handle(self, message: SftpMessage, kind: type) -> Any:
        thing = self.handles.get(message.text())
        if not isinstance(thing, kind):
            raise SftpError(FAILURE, "no such handle")
        return thing

    def open(self, message: SftpMessage) -> bytes:
        path, asked, given = message.text(), message.u32(), message.attributes()
        flags = os.O_RDWR if asked & READ and asked & WRITE else os.O_WRONLY if asked & WRITE else os.O_RDONLY
        for bit, flag in ((APPEND, os.O_APPEND), (CREATE, os.O_CREAT), (TRUNCATE, os.O_TRUNC), (EXCLUSIVE, os.O_EXCL)):
            flags |= flag if asked & bit else 0
        return self.add_handle(os.open(path, flags, given.get("mode", 0o666)))

    def close(self, message: SftpMessage) -> None:
        name = message.text()
        thing = self.handles.pop(name, None)
        if thing is None:
            raise SftpError(FAILURE, "no such handle")
        if isinstance(thing, int):
            os.close(thing)

    def read(self, message: SftpMessage) -> bytes:
        where, at, count = self.get_handle(message, int), message.u64(), message.u32()
        data = os.pread(where, min(count, MAX_READ_BYTES), at)
        if not data:
            raise SftpError(EOF, "end of file")
        return bytes([DATA]) + pack_string(data)

    def write(self, message: SftpMessage) -> None:
        where, at, data = self.get_handle(message, int), message.u64(), message.text()
        while data:
            count = os.pwrite(where, data, at)
            at, data = at + count, data[count:]

    def stat(self, message: SftpMessage) -> bytes:
        return bytes([ATTRS]) + pack_attributes(os.stat(message.text()))

    def lstat(self, message: SftpMessage) -> bytes:
        return bytes([ATTRS]) + pack_attributes(os.lstat(message.text()))

    def fstat(self, message: SftpMessage) -> bytes:
        return bytes([ATTRS]) + pack_attributes(os.fstat(self.get_handle(message, int)))

    def setstat(self, message: SftpMessage) -> None:
        set_attributes(message.text(), message.attributes())

    def fsetstat(self, message: SftpMessage) -> None:
        set_attributes(self.get_handle(message, int), message.attributes())

    def opendir(self, message: SftpMessage) -> bytes:
        path = message.text()
        return self.add_handle((path, [b".", b"..", *sorted(os.listdir(path))]))

    def readdir(self, message: SftpMessage) -> bytes:
        path, names = self.get_handle(message, tuple)
        found: list[bytes] = []
        while names and len(found) < 100:
            name = names.pop(0)
            try:
                found.append(pack_name_entry(name, os.lstat(os.path.join(path, name))))
            except FileNotFoundError:  # gone meanwhile
                continue
        if not found:
            raise SftpError(EOF, "no more")
        return bytes([NAME]) + pack_u32(len(found)) + b"".join(found)

    def named(self, path: bytes) -> bytes:
        return bytes([NAME]) + pack_u32(1) + pack_string(path) + pack_string(path) + pack_u32(0)

    def realpath(self, message: SftpMessage) -> bytes:
        return self.named(os.path.realpath(message.text() or b"."))

    def readlink(self, message: SftpMessage) -> bytes:
        return self.named(os.readlink(message.text()))

    def symlink(self, message: SftpMessage) -> None:
        target, link = message.text(), message.text()  # OpenSSH's order, which all clients have taken over
        os.symlink(target, link)

    def rename(self, message: SftpMessage) -> None:
        old, new = message.text(), message.text()
        if os.path.lexists(new):
            raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))
        os.rename(old, new)

    def extended(self, message: SftpMessage) -> None:
        what = message.text()
        if what == b"posix-rename@openssh.com":
            os.replace(message.text(), message.text())
            return
        if what == b"fsync@openssh.com":
            os.fsync(self.get_handle(message, int))
            return
        raise SftpError(UNSUPPORTED, "not supported")

    ACTS: dict[int, Any] = {
        3: open, 4: close, 5: read, 6: write, 7: lstat, 8: fstat, 9: setstat, 10: fsetstat, 11: opendir, 12: readdir,
        13: lambda self, message: os.remove(message.text()),
        14: lambda self, message: os.mkdir(message.text(), message.attributes().get("mode", 0o777)),
        15: lambda self, message: os.rmdir(message.text()),
        16: realpath, 17: stat, 18: rename, 19: readlink, 20: symlink, 200: extended,
    }  # fmt: skip


def main() -> None:
    server, source, sink = SftpServer(), sys.stdin.buffer, sys.stdout.buffer
    while len(head := source.read(5)) == 5:
        length, kind = struct.unpack(">IB", head)
        message = SftpMessage(source.read(length - 1))
        if kind == 1:
            said = (
                b"\x02"
                + pack_u32(3)
                + b"".join(pack_string(name) + pack_string(value) for name, value in EXTENSIONS.items())
            )
        else:
            said = server.answer(kind, message)
        sink.write(pack_u32(len(said)) + said)
        sink.flush()


if __name__ == "__main__":
    main()
