"""What the platform knows of a job says what an error means there."""

from typing import Any

import pytest

from fermi import messages
from fermi.diagnosis import root_cause
from fermi.diagnosis.facts import MAX_FOLDERS, MAX_IGNORE_BYTES, MAX_IGNORES, MAX_PATH, JobFacts, SentCode
from fermi.jobs.spec import JobSpec, Node, RankStatus
from fermi.runner.code import SnapshotFile

EMULATED = Node("a", "env-001", gpu_type="A100", gpu_count=2, emulated=True)
REAL = Node("b", "gn5", gpu_type="A100", gpu_count=2)
WITHOUT = Node("c", "cpu1")
IGNORES = {".gitignore": b"*.bin\ndata/\n!data/keep.bin\n", "src/.fermiignore": b"cache/\n"}
PATHS = (*IGNORES, "train.py", "src/models/net.py", "src/models/__init__.py", "src/plain/tool.py", "util.py")
CODE = SentCode.from_snapshot(
    "8c1c" * 16, [SnapshotFile(path, size=5, sha256=path) for path in PATHS], lambda sha256: IGNORES[sha256]
)  # fmt: skip


def explained(log: str, node: Node = REAL, sent: SentCode | None = None, **seen: Any) -> root_cause.RankFailure:
    job = JobSpec("task-x", "ddp", (node,), node.id)
    rank = RankStatus(0, 0, "exited", exit_code=1, ended_at=10.0, **seen)
    told = root_cause.explain_failure([rank], 0, [node.name], lambda _: log.encode(), facts=JobFacts(job, lambda: sent))
    assert told is not None
    return told


def write_message(told: root_cause.RankFailure, lang: str = "en") -> str:
    message, hint = messages.render_text(told.why, lang, **(told.about or {}))
    assert messages.MISSING_VALUE not in message + hint
    return f"{message} {hint}"


def raised(exception: str, file: str = "/run/code/0/train.py") -> str:
    return f'Traceback (most recent call last):\n  File "{file}", line 4, in <module>\n    go()\n{exception}\n'


CUDA = [
    "AttributeError: module 'torch._C' has no attribute '_cuda_setDevice'",
    "AttributeError: module 'torch._C' has no attribute '_nccl_version'",
    "AssertionError: Torch not compiled with CUDA enabled",
    "RuntimeError: Distributed package doesn't have NCCL built in",
    "RuntimeError: Cannot access accelerator device when none is available.",
    "RuntimeError: PyTorch was compiled without CUDA support",
    "RuntimeError: Tried to instantiate dummy base class CUDAGraph",
    "TypeError: type torch.cuda.FloatTensor not available. Torch not compiled with CUDA enabled.",
    "ValueError: device_id cuda:0 does not match the current compilation's accelerator support: None. Please use a different compiled version that supports your accelerator.",  # noqa: E501
    "ValueError: DistributedDataParallel device_ids and output_device arguments only work with single-device/multiple-device GPU modules or CPU modules, but got device_ids [0], output_device None, and module parameters {device(type='cpu')}.",  # noqa: E501
    "RuntimeError: Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. If you are running on a CPU-only machine, please use torch.load with map_location=torch.device('cpu') to map your storages to the CPU.",  # noqa: E501
    "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU",
    "ValueError: Your setup doesn't support bf16/gpu.",
    "ValueError: FP16 Mixed precision training with AMP or APEX (`--fp16`) and FP16 half precision evaluation (`--fp16_full_eval`) can only be used on CUDA devices.",  # noqa: E501
    "ValueError: fp16 mixed precision requires a GPU (not 'cpu').",
    "MisconfigurationException: No supported gpu backend found!",
    "ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
    "RuntimeError: Unknown backend: 'gpu' requested, but no platforms that are instances of gpu are present. Platforms present are: cpu",  # noqa: E501
]
"""As torch 2.13 without CUDA, torch with it and no driver, transformers, accelerate, Lightning and jax 0.10 say it."""


ELSEWHERE = ("TORCH_WITHOUT_CUDA", "NO_GPU_VISIBLE", "HALF_PRECISION_NOT_SUPPORTED")


@pytest.mark.parametrize("exception", CUDA, ids=range(len(CUDA)))
def test_cuda_on_emulated_gpus_is_explained(exception: str) -> None:
    told = explained(raised(exception), EMULATED)
    assert told.why == "NODE_WITHOUT_GPU"
    assert "the GPUs of env-001 are emulated by CPU processes" in write_message(told)
    assert "FERMI_BACKEND" in write_message(told, "zh")
    finding = told.finding()
    assert finding is not None
    assert not {one.code for one in finding.actions} & {"INSTALL", "PREFLIGHT", "WITHOUT_NODE"}
    assert "env-001" not in str(explained(raised(exception)).about), "a fact of another node"
    assert explained(raised(exception)).why in ELSEWHERE
    assert write_message(explained(raised(exception), WITHOUT)).startswith(
        "The script requires a GPU, but cpu1 has none"
    )


@pytest.mark.parametrize(
    ("path", "by"),
    [
        ("data/train/x.txt", "data/ (.gitignore)"),
        ("/run/code/0/data/x.txt", "data/ (.gitignore)"),
        ("weights.bin", "*.bin (.gitignore)"),
        ("src/cache/a.txt", "cache/ (src/.fermiignore)"),
        ("./data", "data/ (.gitignore)"),
    ],
)
def test_a_file_excluded_by_an_ignore_file_is_named_with_its_line(path: str, by: str) -> None:
    told = explained(raised(f"FileNotFoundError: [Errno 2] No such file or directory: '{path}'"), sent=CODE)
    assert told.why == "FILE_MISSING"
    assert f"the line {by} excludes it" in write_message(told)
    assert by in write_message(told, "zh")


def test_a_line_of_many_wildcards_is_matched_in_linear_time() -> None:
    lines = {".gitignore": b"*a*a*a*a*a*a*a*a*a*b\n" + b"**/*a*a/" * 20 + b"b\n"}
    code = SentCode.from_snapshot(
        "8c1c" * 16, [SnapshotFile(path, size=1, sha256=path) for path in lines], lambda sha256: lines[sha256]
    )
    assert code.find_ignore_line("a" * MAX_PATH) == code.find_ignore_line("/".join(["a" * 7] * 31)) == ""
    assert code.find_ignore_line("a" * (MAX_PATH - 1) + "b") == "*a*a*a*a*a*a*a*a*a*b (.gitignore)"
    assert code.find_ignore_line("aa/" * 30 + "b") == "**/*a*a/" * 20 + "b (.gitignore)"


def test_too_many_or_too_large_ignore_files_are_not_read() -> None:
    def sent(count: int, size: int) -> SentCode:
        files = [SnapshotFile(f"{number}/.gitignore", size=size, sha256="x") for number in range(count)]
        return SentCode.from_snapshot("8c1c" * 16, files, lambda _: read.append(1) or b"*")  # type: ignore[func-returns-value]

    read: list[int] = []
    many, large = sent(MAX_IGNORES + 1, 1), sent(2, MAX_IGNORE_BYTES)
    assert (read, many.find_ignore_line("0/x"), large.find_ignore_line("0/x")) == ([], "", "")
    few = sent(MAX_IGNORES, 1)
    assert len(read) == MAX_IGNORES
    assert few.find_ignore_line("0/x") == "* (0/.gitignore)"
    assert few.find_ignore_line(f"0/{'x' * MAX_PATH}") == few.find_ignore_line("0/" + "x/" * MAX_FOLDERS) == ""


@pytest.mark.parametrize(
    ("path", "known"),
    [("config.json", True), ("/run/code/0/config.json", True), ("/data/x.txt", False), ("../x.txt", False)],
)
def test_a_file_that_was_not_sent_is_named_with_its_expected_path(path: str, known: bool) -> None:
    told = explained(raised(f"FileNotFoundError: [Errno 2] No such file or directory: '{path}'"), sent=CODE)
    assert told.why == "FILE_MISSING"
    assert ("it is not part of the uploaded code (8c1c8c1c8c1c)" in write_message(told)) is known


@pytest.mark.parametrize(("module", "folder"), [("models.net", "src"), ("net", "src/models"), ("util", "."),
                                                ("plain", "src"), ("models", "src")])  # fmt: skip
def test_a_module_found_in_the_code_is_named_with_its_folder(module: str, folder: str) -> None:
    told = explained(raised(f"ModuleNotFoundError: No module named '{module}'"), sent=CODE)
    assert told.why == "MODULE_NOT_ON_PATH"
    assert f"PYTHONPATH={folder} " in write_message(told)
    finding = told.finding()
    assert finding is not None
    assert "INSTALL" not in {one.code for one in finding.actions}


def test_a_missing_module_is_to_be_installed() -> None:
    told = explained(raised("ModuleNotFoundError: No module named 'data.loader'"), sent=CODE)
    assert told.why == "MODULE_MISSING"
    assert "data/ (.gitignore)" in write_message(told)
    words = (
        "ModuleNotFoundError: Requirement 'demo[extra]>=1.2' not met. HINT: Try running `pip install -U demo[extra]`"
    )
    told = explained(raised(words))
    assert told.why == "MODULE_MISSING"
    assert write_message(told).startswith("Python on gn5 has no module demo[extra]>=1.2 ")
    told = explained(raised("ModuleNotFoundError: please get demo from us"))
    assert write_message(told).startswith("A module is missing on gn5: please get demo from us ")
    told = explained(raised("ImportError: loading in 8 bits takes bits: `pip install bits`"))
    assert (told.why, (told.about or {})["packages"]) == ("PACKAGES_REQUIRED", "bits")


@pytest.mark.parametrize(("refused", "text"), [("hidden", "Tasks may not access /home/ann/x on gn5"),
                                               ("readOnly", "on gn5, but not write to it")])  # fmt: skip
def test_a_path_denied_by_the_sandbox_is_explained(refused: str, text: str) -> None:
    message = "[Errno 13] Permission denied: '/home/ann/x'"
    error = {"type": "PermissionError", "message": message, "refused": refused}
    told = explained(raised(f"PermissionError: {message}"), error=error)
    assert told.why == "PATH_REFUSED"
    assert text in write_message(told)
    assert "FERMI_TASK_" in write_message(told, "zh")
    assert explained(raised(f"PermissionError: {message}")).why == "PERMISSION_DENIED"
