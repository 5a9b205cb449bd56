"""Rank 0 sends a checkpoint over a slow line; all others wait."""

from tests.faults.catalogue.fault import Healthy

HEALTHY = Healthy(
    """
import socket, subprocess, sys
from gang import RANK, Gang, dist

STORE = '''
import socket, time
door = socket.create_server(("127.0.0.1", 0))
print(door.getsockname()[1], flush=True)
line, _ = door.accept()
while line.recv(1 << 16):
    time.sleep(0.05)
'''
gang = Gang()
for step in range(1, 101):
    gang.step()
    if step == 60:
        if RANK == 0:
            store = subprocess.Popen([sys.executable, "-c", STORE], stdout=subprocess.PIPE, text=True)
            line = socket.create_connection(("127.0.0.1", int(store.stdout.readline())))
            for _ in range(240):
                line.sendall(bytes(1 << 16))
            line.close()
            store.wait()
        dist.barrier()
""",
    times=5,
)
