"""What ranks run in the Kubernetes scenarios: `python script.py <mode>`. Standard library only, but for `train`."""

import os
import signal
import socket
import sys
import time

mode = sys.argv[1]
rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
head = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))


def meet() -> None:
    """Everybody tells rank 0 its number and hears the sum."""
    if rank == 0:
        with socket.create_server(("", head[1])) as door:
            peers = [door.accept()[0] for _ in range(world_size - 1)]
            total = sum(int(peer.recv(20)) for peer in peers)
            for peer in peers:
                peer.sendall(str(total).encode())
                peer.close()
    else:
        deadline = time.monotonic() + 60
        while True:
            try:
                peer = socket.create_connection(head, timeout=60)
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        peer.sendall(str(rank).encode())
        total = int(peer.recv(20))
    print(f"rank {rank} of {world_size}: sum {total}", flush=True)


def train() -> None:
    """Fits a line with DistributedDataParallel; every rank has its own share of the points."""
    try:
        import torch
    except ImportError:
        print("no torch here", flush=True)
        return
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(rank)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = 50
    for _ in range(steps):
        x = torch.rand(32, 1)
        loss = ((model(x) - 3 * x - 1) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    weight = model.module.weight.item()
    print(f'{{"step": {steps}, "loss": {loss.item():.5f}, "weight": {weight:.6f}}}', flush=True)
    dist.destroy_process_group()
    os._exit(0)  # a thread of torch's can abort a process that is torn down


def leave(*_: object) -> None:
    print("leaving", flush=True)
    sys.exit(143)


if mode == "meet":
    meet()
elif mode == "train":
    train()
elif mode == "fail" and rank == 1:
    print("about to fail", flush=True)
    raise ValueError("out of luck")
elif mode == "lines":
    for number in range(3000):
        print(f"line {number} of rank {rank}", flush=number % 10 == 0)
        if number % 100 == 0:
            time.sleep(0.05)
elif mode in ("wait", "fail"):
    signal.signal(signal.SIGTERM, leave)
    print("ready", flush=True)
    time.sleep(3600)
