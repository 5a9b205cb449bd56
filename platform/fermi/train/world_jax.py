"""A process of a JAX job: its rank, the platform that it computes on, and the initialisation of JAX's distributed
runtime."""

import argparse
import os
import re
from typing import Any, NamedTuple

import jax

from fermi.train.common import ConfigError, print_line

SLURM_VARIABLES = {
    "SLURM_JOB_ID",
    "SLURM_STEP_NODELIST",
    "SLURM_NTASKS",
    "SLURM_PROCID",
    "SLURM_LOCALID",
}  # set by srun
GPU_PLATFORMS = {"gpu", "cuda", "rocm", "oneapi"}  # JAX's word for any of them, and its words for each


def choose_platform() -> None:
    """Set JAX's platform. JAX_PLATFORMS sets what JAX initialises, JAX_PLATFORM_NAME (older, and still read) which of
    that it computes on. Where only the older one says cpu, JAX would initialise the GPUs, too. Raise ConfigError where
    they contradict each other."""
    name = os.environ.get("JAX_PLATFORM_NAME", "").strip().lower()
    listed = [one.strip().lower() for one in os.environ.get("JAX_PLATFORMS", "").split(",") if one.strip()]
    meant = GPU_PLATFORMS if name == "gpu" else {name, "gpu"} if name in GPU_PLATFORMS else {name}
    if name and listed and meant.isdisjoint(listed):
        raise ConfigError(
            f"JAX_PLATFORM_NAME is {name}, but JAX_PLATFORMS is {','.join(listed)}: set both alike, or only one"
        )
    if name == "cpu" and not listed:
        jax.config.update("jax_platforms", "cpu")


class JaxWorld(NamedTuple):
    """Rank and size of this process, from flags or the launcher's variables. `coordinator` None: a single process, or
    JAX reads the address from Slurm's node list."""

    rank: int
    local_rank: int
    size: int
    coordinator: str | None
    launcher: str

    @classmethod
    def find(cls, args: argparse.Namespace) -> "JaxWorld":
        """Return this process's world. Raise ConfigError where flags and variables are incomplete or contradict each
        other."""
        env = os.environ
        local = args.local_rank if args.local_rank is not None else int(env.get("LOCAL_RANK", 0))
        address = args.coordinator_address or env.get("JAX_COORDINATOR_ADDRESS")
        if not address and "MASTER_ADDR" in env and "MASTER_PORT" in env:
            address = f"{env['MASTER_ADDR']}:{env['MASTER_PORT']}"
        size, rank, launcher = args.num_processes, args.process_id, "flags"
        if args.coordinator_address is None and size is None and rank is None:
            if "RANK" in env:
                size, rank, launcher = env.get("WORLD_SIZE"), env["RANK"], "variables"
            elif env.keys() >= SLURM_VARIABLES:
                return cls(
                    int(env["SLURM_PROCID"]), int(env["SLURM_LOCALID"]), int(env["SLURM_NTASKS"]), address, "slurm"
                )
            else:
                return cls(0, local, 1, None, "none")
        needed = {"the coordinator's address": address, "the number of processes": size, "the process id": rank}
        if missing := [name for name, value in needed.items() if value is None]:
            raise ConfigError(f"{' and '.join(missing)} must be given by {launcher}, too")
        size, rank = int(size), int(rank)
        if not 0 <= rank < size:
            raise ConfigError(f"the process id is {rank}, but must be below the number of processes, {size}")
        if not re.fullmatch(r".+:\d+", address or ""):
            raise ConfigError(f"the coordinator's address is {address}, but must be host:port")
        return cls(rank, local, size, address, launcher)

    def join(self, args: argparse.Namespace) -> list[Any]:
        """Initialise JAX's distributed runtime; return all devices, one of each process, in the order of ranks. Raise
        ConfigError."""
        choose_platform()
        jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM for itself
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        own = 0 if visible and "," not in visible else self.local_rank  # some launchers show each process its GPU only
        if self.size > 1:
            jax.distributed.initialize(
                self.coordinator,
                self.size,
                self.rank,
                local_device_ids=int(os.environ.get("JAX_LOCAL_DEVICE_IDS", own)),
                cluster_detection_method="slurm" if self.launcher == "slurm" else "deactivate",
                initialization_timeout=args.initialization_timeout_seconds,
                heartbeat_timeout_seconds=args.heartbeat_timeout_seconds,
            )
        try:
            devices = sorted(jax.devices(), key=lambda device: device.process_index)
        except (RuntimeError, AssertionError) as error:  # JAX asserts that there is any device at all
            raise explain_platform_error(error) from error
        if self.size == 1:
            devices = select_device(jax.local_devices(), own)
        if [device.process_index for device in devices] != list(range(self.size)):
            raise ConfigError(f"{len(devices)} devices for {self.size} processes: each must have exactly one")
        where = f"local rank {self.local_rank}, coordinator {self.coordinator or self.launcher}"
        print_line(f"[rank {self.rank}] world size {self.size}, {where}, device {jax.local_devices()[0]}")
        return devices


def select_device(devices: list[Any], index: int) -> list[Any]:
    return [devices[index % len(devices)]]


def explain_platform_error(error: Exception) -> Exception:
    """Return an exception that names the variables that selected the platform; JAX's own error where none is set."""
    asked = [f"{name}={os.environ[name]}" for name in ("JAX_PLATFORM_NAME", "JAX_PLATFORMS") if os.environ.get(name)]
    if not asked:
        return error
    why = str(error).split("\n")[0].rstrip(".") or "JAX finds no device of it"
    return ConfigError(f"{' and '.join(asked)} cannot be had here ({why}): unset it, or set it to cpu")
