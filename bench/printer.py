"""The script that the `logs` section trains: each step computes a little and prints; nothing of ours is imported.

    printer.py <lines per step> <steps> <steps per second> <folder>

A step keeps to its time slot, so that all ranks together print at a given rate. Every tenth step of rank 0 also prints
a line of metrics. At the end each rank writes `<folder>/<rank>.json`: seconds spent in steps, and in printing alone.
"""

import json
import os
import sys
import time

LINE = "0123456789 abcdefghij 0123456789 abcdefghij 0123456789 abcdefghij"
WORK = 100_000


def main(lines: int, steps: int, rate: float, folder: str) -> None:
    rank = int(os.environ["RANK"])
    began, working, printing = time.perf_counter(), 0.0, 0.0
    for step in range(1, steps + 1):
        time.sleep(max(0.0, began + step / rate - time.perf_counter()))
        start = time.perf_counter()
        total = sum(range(WORK))
        computed = time.perf_counter()
        for line in range(lines):
            sys.stdout.write(f"rank {rank} step {step} line {line} {total} {LINE}\n")
            sys.stdout.flush()
        if rank == 0 and step % 10 == 0:
            sys.stdout.write(json.dumps({"step": step, "loss": 1 / step}) + "\n")
            sys.stdout.flush()
        end = time.perf_counter()
        working += end - start
        printing += end - computed
    result = {"working": working, "printing": printing, "elapsed": time.perf_counter() - began}
    with open(f"{folder}/{rank}.json", "w", encoding="utf-8") as file:
        json.dump(result, file)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4])
