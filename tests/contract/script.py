"""What ranks run in the contract suite: `script.py <mode> <scratch folder>`. Standard library only."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

mode, scratch = sys.argv[1], Path(sys.argv[2])
rank = os.environ["RANK"]
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "MASTER_PORT")
print("env", *(os.environ[name] for name in names), flush=True)
if given := sys.argv[3:]:
    print(*given, os.environ["GIVEN"], flush=True)
with open(scratch / "starts", "a", encoding="utf-8") as file:
    file.write(f"{rank} {os.getpid()}\n")

if mode == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
elif mode == "polite":

    def leave(*_):
        print("leaving", flush=True)
        sys.exit(143)

    signal.signal(signal.SIGTERM, leave)
elif mode == "helpers":
    for own_session in (False, True):
        child = subprocess.Popen(["sleep", "600"], start_new_session=own_session)
        with open(scratch / "helpers", "a", encoding="utf-8") as file:
            file.write(f"{child.pid}\n")

if mode in ("polite", "stubborn", "wait"):
    print("ready", flush=True)
    print("\r 1%\r 2%", end="", flush=True)
    time.sleep(600)
if mode == "one-fails" and rank == "1":
    raise ValueError("out of luck")
if mode == "one-fails":
    time.sleep(600)
if mode == "secret":
    print("secret", hashlib.sha256(os.environ["API_KEY"].encode()).hexdigest(), flush=True)
    time.sleep(600)
if mode == "lines":
    for number in range(2000):
        print(f"line {number}")
