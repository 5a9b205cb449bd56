"""Logs without metrics, more than 200: each function below writes one kind, and each kind comes with several seeds.

All are written here in the manner of the programs named. They repeat, and have counters, units, names with `loss` and
`step` and numbers that grow: what a search for curves could mistake.
"""

import random
from collections.abc import Callable, Iterator

SEEDS = 4
WORDS = ("alpha", "beta", "gamma", "delta", "tokenizer", "dataset", "worker", "encoder", "decoder", "attention", "config",
         "module", "kernel", "buffer")  # fmt: skip


def build_logs() -> Iterator[tuple[str, str]]:
    """Yield a name and a log each."""
    for writer in WRITERS:
        for seed in range(SEEDS):
            yield f"{writer.__name__}_{seed}", writer(random.Random(f"{writer.__name__}{seed}"))


def _bar(at: int, total: int, rest: str) -> str:
    return f"{at * 100 // total:3d}%|{'#' * (at * 10 // total):<10}| {at}/{total} [{rest}]"


def compiler(r: random.Random) -> str:
    name = r.choice(WORDS)
    return "".join(
        f"[{i}/40] Building CXX object CMakeFiles/{name}.dir/src/file_{i}.cpp.o\n"
        f"src/file_{i}.cpp:{r.randint(1, 900)}:12: warning: unused variable 'loss' [-Wunused-variable]\n"
        f"  {i * 3} |   float loss = 0.5;\n      |         ^~~~\n"
        for i in range(1, 41)
    )


def nvcc(r: random.Random) -> str:
    return "".join(
        f"[{i}/12] nvcc --generate-dependencies -gencode=arch=compute_{r.choice((80, 90))} -O3 -c kernel_{i}.cu -o k.o\n"
        f"ptxas info    : Used {r.randint(20, 200)} registers, {r.randint(300, 900)} bytes cmem[0]\n"
        for i in range(1, 13)
    )


def make_steps(r: random.Random) -> str:
    return "".join(f"[ {i:2d}%] Building C object lib/{r.choice(WORDS)}.c.o\n" for i in range(0, 100, 3))


def pip_install(r: random.Random) -> str:
    return (
        "".join(
            f"Collecting {w}=={r.randint(0, 9)}.{i}.0\n  Downloading {w}-{i}.0-py3-none-any.whl ({r.uniform(1, 900):.1f} MB)\n"
            f"     {'━' * i}{' ' * (40 - i)} {i / 2:.1f}/20.0 MB {r.uniform(1, 90):.1f} MB/s eta 0:00:0{i % 10}\n"
            for i, w in enumerate(WORDS, 1)
        )
        + "Successfully installed alpha-1.0 beta-2.0\n"
    )


def apt(r: random.Random) -> str:
    return (
        "".join(
            f"Get:{i} http://deb.debian.org/debian bookworm/main amd64 {r.choice(WORDS)} amd64 1.{i}-2 [{r.randint(9, 900)} kB]\n"
            for i in range(1, 30)
        )
        + "Fetched 12.3 MB in 3s (4,321 kB/s)\n"
    )


def npm(r: random.Random) -> str:
    return "".join(
        f"npm http fetch GET 200 https://registry.example/{w} {r.randint(9, 900)}ms (cache miss)\n" for w in WORDS
    )


def nccl_debug(r: random.Random) -> str:
    return "".join(
        f"node1:{4000 + i}:{5000 + i} [{i % 8}] NCCL INFO Channel {i:02d}/0 : {i % 8}[{i % 8}] -> {(i + 1) % 8}[{(i + 1) % 8}] "
        f"via P2P/IPC\nnode1:{4000 + i}:{5000 + i} [{i % 8}] NCCL INFO AllReduce: opCount {i:x} sendbuff 0x7f{i:04x} "
        f"count {r.randint(1, 1 << 20)} datatype 7 op 0 root 0 comm 0x55 [nranks=8] stream 0x56\n"
        for i in range(40)
    )


def docker_build(r: random.Random) -> str:
    return "".join(
        f"Step {i}/20 : RUN pip install {r.choice(WORDS)}=={i}.{r.randint(0, 9)}\n ---> Running in {r.getrandbits(48):012x}\n"
        for i in range(1, 21)
    )


def docker_buildkit(r: random.Random) -> str:
    return "".join(f"#{i} [{i}/14] RUN step {i}\n#{i} DONE {r.uniform(0, 90):.1f}s\n" for i in range(1, 15))


def git_clone(r: random.Random) -> str:
    total = r.randint(1000, 9000)
    return (
        "Cloning into 'repo'...\n"
        + "".join(
            f"Receiving objects: {p:3d}% ({total * p // 100}/{total}), {p / 10:.2f} MiB | {r.uniform(1, 9):.2f} MiB/s\r"
            for p in range(1, 101)
        )
        + "\n"
        + "".join(f"Resolving deltas: {p:3d}% ({p * 7}/700)\r" for p in range(1, 101))
    )


def git_log(r: random.Random) -> str:
    return "".join(
        f"commit {r.getrandbits(160):040x}\nDate:   Mon Jan {i} 10:00:0{i % 10} 2024 +0000\n\n    Fix step {i}: loss was "
        f"{r.choice(('NaN', 'wrong'))} after {i} epochs\n\n"
        for i in range(1, 20)
    )


def tracebacks(r: random.Random) -> str:
    return "".join(
        f'Traceback (most recent call last):\n  File "train.py", line {10 + i}, in <module>\n    loss = step(batch, {i})\n'
        f'  File "model.py", line {20 + i}, in forward\n    assert loss < {i}.5\nRuntimeError: loss is nan at step {r.choice(WORDS)}\n'
        for i in range(8)
    )


def warnings(r: random.Random) -> str:
    return "".join(
        f"/usr/lib/python3/torch/optim/lr_scheduler.py:{i}: UserWarning: Detected call of `lr_scheduler.step()` before "
        f"`optimizer.step()` ({r.choice(WORDS)}).\n  warnings.warn(\n"
        for i in range(100, 120)
    )


def disk_table(r: random.Random) -> str:
    return "Filesystem      Size  Used Avail Use% Mounted on\n" + "".join(
        f"/dev/sd{c}1       {r.randint(10, 900)}G  {r.randint(1, 99)}G  {r.randint(1, 99)}G  {r.randint(1, 99)}% /mnt/{c}\n"
        for c in "abcdefgh"
    )


def file_list(r: random.Random) -> str:
    return "total 1234\n" + "".join(
        f"-rw-r--r-- 1 root root {r.randint(10, 1 << 30):>10} Jan {i:2d} 10:0{i % 10} checkpoint_step_{i * 100}_loss_{r.uniform(1, 3):.2f}.pt\n"
        for i in range(1, 25)
    )


def processes(r: random.Random) -> str:
    return "USER         PID %CPU %MEM    VSZ   RSS TTY      STAT START   TIME COMMAND\n" + "".join(
        f"root      {1000 + i} {r.uniform(0, 99):4.1f} {r.uniform(0, 9):4.1f} {r.randint(1, 1 << 20)} {r.randint(1, 9999)} ?   "
        f"Sl   10:0{i % 10}   0:{i:02d} python train.py --epochs {i} --lr 0.1\n"
        for i in range(1, 30)
    )


def gpu_table(r: random.Random) -> str:
    row = "|-----------------------------------------+----------------------+----------------------+\n"
    return "".join(
        f"| NVIDIA-SMI 550.54       Driver Version: 550.54       CUDA Version: 12.4     |\n{row}"
        + "".join(
            f"|   {i}  NVIDIA H100                    On | 00000000:1{i}:00.0 Off |                    0 |\n"
            f"| N/A   {r.randint(20, 80)}C    P0             {r.randint(60, 700)}W / 700W | {r.randint(1, 80000)}MiB / 81559MiB "
            f"|     {r.randint(0, 100)}%      Default |\n{row}"
            for i in range(8)
        )
        for _ in range(3)
    )


def gpu_dmon(r: random.Random) -> str:
    return (
        "# gpu   pwr gtemp mtemp    sm   mem   enc   dec\n# Idx     W     C     C     %     %     %     %\n"
        + "".join(
            f"    {i % 4}   {r.randint(60, 700)}    {r.randint(20, 80)}    40    {r.randint(0, 99)}    {r.randint(0, 99)}     0     0\n"
            for i in range(40)
        )
    )


def kernel_log(r: random.Random) -> str:
    return "".join(
        f"[{i * 1.5:12.6f}] pci 0000:00:{i:02x}.0: BAR {i}: assigned [mem 0x{r.getrandbits(32):08x}]\n"
        for i in range(40)
    )


def http_access(r: random.Random) -> str:
    return "".join(
        f'10.0.0.{i} - - [01/Jan/2024:10:00:{i:02d} +0000] "GET /api/step/{i}?loss={r.uniform(1, 3):.2f} HTTP/1.1" 200 {r.randint(10, 9999)} "-" "curl/8.0"\n'
        for i in range(1, 50)
    )


def uvicorn(r: random.Random) -> str:
    return "".join(
        f'INFO:     127.0.0.1:{50000 + i} - "POST /v1/tasks/{i}/steps HTTP/1.1" 200 OK in {r.uniform(1, 90):.1f}ms\n'
        for i in range(40)
    )


def pytest_verbose(r: random.Random) -> str:
    return (
        "".join(
            f"tests/test_{r.choice(WORDS)}.py::test_loss[{i}-0.5] PASSED{' ' * 20}[{i * 2:3d}%]\n" for i in range(1, 51)
        )
        + "============ 50 passed, 2 warnings in 12.34s ============\n"
    )


def pytest_durations(r: random.Random) -> str:
    return "slowest 20 durations\n" + "".join(
        f"{20 - i}.{r.randint(10, 99)}s call     tests/test_step.py::test_epoch_{i}\n" for i in range(20)
    )


def timing_table(r: random.Random) -> str:
    return "phase           calls      total(s)   mean(ms)\n" + "".join(
        f"{w:<15} {i * 10:>5}      {r.uniform(1, 99):8.3f}   {r.uniform(1, 99):8.3f}\n" for i, w in enumerate(WORDS, 1)
    )


def profiler_table(r: random.Random) -> str:
    line = "-" * 60 + "\n"
    return (
        line
        + "Name                 Self CPU %      Self CPU     # of Calls\n"
        + line
        + "".join(
            f"aten::{w:<14} {r.uniform(0, 50):6.2f}%     {r.uniform(1, 900):8.3f}us         {i}\n"
            for i, w in enumerate(WORDS, 1)
        )
        + line
    )


def hyperparameters(r: random.Random) -> str:
    dump = "".join(
        f"{k}: {v}\n"
        for k, v in {
            "learning_rate": 0.001, "epochs": 10, "batch_size": 32, "max_steps": 1000, "warmup_steps": 100,
            "weight_decay": 0.1, "loss_scale": 128.0, "seed": r.randint(1, 99), "eval_interval": 250, "grad_clip": 1.0,
        }.items()
    )  # fmt: skip
    return dump * 4


def argparse_dump(r: random.Random) -> str:
    return (
        "".join(
            f"Namespace(lr={r.uniform(0, 1):.4f}, epochs={i}, steps={i * 100}, loss='mse', batch_size=32, momentum=0.9)\n"
            for i in range(1, 2)
        )
        * 5
    )


def model_summary(r: random.Random) -> str:
    return (
        "  | Name     | Type       | Params | Mode\n-----------------------------------------\n"
        + "".join(f"{i} | {w:<8} | Linear     | {r.randint(1, 900)} K  | train\n" for i, w in enumerate(WORDS))
        + "-----------------------------------------\n12.3 M    Trainable params\n0         Non-trainable params\n49.2      Total estimated model params size (MB)\n"
    )


def keras_summary(r: random.Random) -> str:
    return "┃ Layer (type)        ┃ Output Shape     ┃    Param # ┃\n" + "".join(
        f"│ dense_{i} (Dense)     │ (None, {r.randint(1, 512)})      │     {r.randint(1, 99999):,} │\n"
        for i in range(1, 20)
    )


def torch_module(r: random.Random) -> str:
    return (
        "Net(\n"
        + "".join(
            f"  (layer{i}): Linear(in_features={r.randint(1, 512)}, out_features={r.randint(1, 512)}, bias=True)\n  (norm{i}): "
            f"LayerNorm((128,), eps=1e-05, elementwise_affine=True)\n"
            for i in range(20)
        )
        + "  (loss): CrossEntropyLoss()\n)\n"
    )


def download_bars(r: random.Random) -> str:
    return (
        "".join(
            "\r"
            + f"model-0000{f}-of-00004.safetensors: "
            + _bar(i, 20, f"00:0{i % 10}<00:09, {r.uniform(1, 90):.1f}MB/s")
            for f in range(1, 5)
            for i in range(1, 21)
        )
        + "\n"
    )


def download_bytes(r: random.Random) -> str:
    return (
        "".join(
            f"\rDownloading:  {i * 5:2d}%|{'█' * (i // 2):<10}| {i * 5.0:.1f}M/100M [00:{i:02d}<00:{20 - i:02d}, {r.uniform(1, 9):.2f}MB/s]"
            for i in range(1, 21)
        )
        + "\n"
    )


def wget(r: random.Random) -> str:
    return "".join(
        f"  {i * 50}K .......... .......... .......... ..........  {i}% {r.uniform(1, 90):.1f}M {60 - i}s\n"
        for i in range(60)
    )


def curl_meter(r: random.Random) -> str:
    return (
        "  % Total    % Received % Xferd  Average Speed   Time    Time     Time  Current\n"
        + "".join(
            f"\r {i:2d}  100M   {i}  {i}.0M    0     0  {r.uniform(1, 9):.1f}M      0  0:00:20  0:00:{i:02d}  0:00:{60 - i:02d} {r.uniform(1, 9):.1f}M"
            for i in range(60)
        )
        + "\n"
    )


def tokenizer_bars(r: random.Random) -> str:
    return (
        "".join(
            "\r"
            + "Running tokenizer on dataset (num_proc=4): "
            + _bar(i * 100, 2000, f"00:0{i % 10}<00:09, {r.uniform(900, 9000):.2f} examples/s")
            for i in range(1, 21)
        )
        + "\n"
        + "".join(
            "\r" + "Map: " + _bar(i * 10, 200, f"00:01<00:09, {r.uniform(9, 90):.2f} examples/s") for i in range(1, 21)
        )
    )


def dataset_preparation(r: random.Random) -> str:
    return "".join(
        f"Generating train split: {i * 1000} examples [00:0{i % 10}, {r.uniform(900, 9000):.2f} examples/s]\n"
        for i in range(1, 30)
    ) + "".join(f"\rprocessed batch {i}/30: {i * 32} files" for i in range(1, 31))


def preprocessing_with_postfix(r: random.Random) -> str:
    return "".join(
        "\r" + "reading: " + _bar(i, 40, f"00:01<00:09, 9.9it/s, file=shard_{i}, bytes={i * r.randint(10, 90)}")
        for i in range(1, 41)
    )


def checkpoint_shards(r: random.Random) -> str:
    return (
        "".join(
            "\r" + "Loading checkpoint shards: " + _bar(i, 8, f"00:0{i}<00:01,  {r.uniform(1, 3):.2f}s/it")
            for i in range(9)
        )
        + "\n"
    )


def checksums(r: random.Random) -> str:
    return "".join(f"{r.getrandbits(256):064x}  epoch_{i}/model_step_{i * 100}.bin\n" for i in range(20))


def dataloader_warnings(r: random.Random) -> str:
    return "".join(
        f"UserWarning: This DataLoader will create {i} worker processes in total. Our suggested max number of worker in "
        f"current system is {r.randint(1, 4)}, which is smaller.\nhuggingface/tokenizers: The current process just got forked\n"
        for i in range(4, 20)
    )


def garbage_collector(r: random.Random) -> str:
    return "".join(
        f"[{i * 0.5:.3f}s][info][gc] GC({i}) Pause Young (Normal) (G1 Evacuation Pause) {r.randint(20, 90)}M->{r.randint(1, 20)}M({256}M) {r.uniform(1, 9):.3f}ms\n"
        for i in range(40)
    )


def go_gc(r: random.Random) -> str:
    return "".join(
        f"gc {i} @{i * 0.5:.3f}s {r.randint(0, 3)}%: 0.018+1.{i}+0.004 ms clock, 0.1+0.2/0.3/0+0.02 ms cpu, 4->4->0 MB, 5 MB goal, 8 P\n"
        for i in range(1, 40)
    )


def json_config(r: random.Random) -> str:
    return (
        "{\n"
        + "".join(f'  "{w}_lr": {r.uniform(0, 1):.4f},\n  "{w}_steps": {i * 10},\n' for i, w in enumerate(WORDS))
        + '  "epochs": 3\n}\n'
    )


def yaml_config(r: random.Random) -> str:
    return "trainer:\n  max_epochs: 10\n" + "".join(
        f"  - name: {w}\n    step: {i}\n    loss_weight: {r.uniform(0, 1):.2f}\n    lr: 0.{i + 1}\n"
        for i, w in enumerate(WORDS)
    )


def csv_print(r: random.Random) -> str:
    return "id,name,price,quantity\n" + "".join(
        f"{i},{r.choice(WORDS)},{r.uniform(1, 99):.2f},{r.randint(1, 9)}\n" for i in range(40)
    )


def dataframe(r: random.Random) -> str:
    return "       user_id  rating  timestamp\n" + "".join(
        f"{i:<6} {r.randint(1, 999):>8}     {r.uniform(1, 5):.1f}  {880000000 + i}\n" for i in range(40)
    )


def kubernetes_events(r: random.Random) -> str:
    return "".join(
        f"{i}m        Normal   Pulled   pod/{r.choice(WORDS)}-{i}   Successfully pulled image in {r.uniform(1, 9):.2f}s\n"
        for i in range(1, 40)
    )


def slurm(r: random.Random) -> str:
    return "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n" + "".join(
        f"            {1000 + i}       gpu    train   user{i}  R    {i}:{r.randint(10, 59)}      {i % 4}   node{i}\n"
        for i in range(30)
    )


def retries(r: random.Random) -> str:
    return "".join(
        f"Attempt {i}/20 failed: connection refused, retrying in {2 ** (i % 6)}.{r.randint(0, 9)} seconds\n"
        for i in range(1, 21)
    )


def elapsed_only(r: random.Random) -> str:
    return "".join(f"step {i}: done in {r.uniform(1, 9):.2f} seconds\n" for i in range(1, 20))


def worker_reports(r: random.Random) -> str:
    return "".join(
        f"[worker {i % 4}] processed batch {i}: {r.randint(10, 99)} items, queue size: {r.randint(0, 9)}\n"
        for i in range(1, 60)
    )


def heartbeats(r: random.Random) -> str:
    return "".join(
        f"2024-01-01 10:00:{i:02d},000 DEBUG heartbeat: pid=1234 seq={i} load={r.uniform(0, 4):.2f} mem={r.uniform(10, 90):.1f}%\n"
        for i in range(60)
    )


def database_queries(r: random.Random) -> str:
    return "".join(
        f"LOG:  duration: {r.uniform(1, 90):.3f} ms  statement: SELECT loss, step FROM runs WHERE epoch = {i} LIMIT 10\n"
        for i in range(40)
    )


def resumed_notes(r: random.Random) -> str:
    return "".join(
        f"Resuming from checkpoint epoch_{i}.pt ... skipping the first {i * r.randint(10, 99)} batches in the dataloader\n"
        for i in range(1, 9)
    )


def prose(r: random.Random) -> str:
    return "".join(
        f"Note {i}: the loss function accepts {r.randint(2, 9)} arguments; a step of the optimizer takes {r.randint(2, 9)} of them.\n"
        for i in range(30)
    )


def videos_of_episodes(r: random.Random) -> str:
    return "".join(
        f"Saved video of episode {i} to videos/episode_{i}.mp4 ({r.uniform(1, 9):.2f} MB)\n"
        f"Episode {i}: {r.randint(10, 500)} frames, recorded in {r.uniform(1, 9):.1f} s\n"
        for i in range(0, 60, 10)
    )


def scans_with_thin_bars(r: random.Random) -> str:
    name = r.choice(WORDS)
    return "".join(
        f"\x1b[Ktrain: Scanning {name}/labels/train... {i} images, 0 backgrounds, 0 corrupt: {i * 2}% "
        f"{'━' * (i // 5):─<12} {i}/48 {r.uniform(1, 900):.1f}it/s 0.1s<{r.uniform(1, 9):.1f}s\n"
        for i in range(1, 49)
    )


def functions_in_a_table(r: random.Random) -> str:
    return "".join(f"[{i}/40] checking f(x) with x={i}: O(n) {r.choice(WORDS)} ok\n" for i in range(1, 41))


def docstrings(r: random.Random) -> str:
    return "".join(
        f" |      >>> # lr = {0.05 * r.uniform(0.8, 0.9) ** i:.5f}    if epoch == {i}\n |      >>> if step == {i}: loss = 0.{i}\n"
        for i in range(20)
    )


WRITERS: tuple[Callable[[random.Random], str], ...] = (
    compiler, nvcc, make_steps, pip_install, apt, npm, nccl_debug, docker_build, docker_buildkit, git_clone, git_log,
    tracebacks, warnings, disk_table, file_list, processes, gpu_table, gpu_dmon, kernel_log, http_access, uvicorn,
    pytest_verbose, pytest_durations, timing_table, profiler_table, hyperparameters, argparse_dump, model_summary,
    keras_summary, torch_module, download_bars, download_bytes, wget, curl_meter, tokenizer_bars, dataset_preparation,
    preprocessing_with_postfix, checkpoint_shards, checksums, dataloader_warnings, garbage_collector, go_gc,
    json_config, yaml_config, csv_print, dataframe, kubernetes_events, slurm, retries, elapsed_only, worker_reports,
    heartbeats, database_queries, resumed_notes, prose, videos_of_episodes, scans_with_thin_bars, functions_in_a_table,
    docstrings,
)  # fmt: skip
