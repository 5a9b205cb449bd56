"""Training on Slurm: each attempt is one batch job, each of its nodes one task of one `srun` (our node runner), and
each rank a process of that runner.

    <data>/runs/<task>-<attempt>/     on a folder that the platform and all nodes share:
        job.sh  order.json  files/  fermi/       what `submit` writes: script, order, the plan's files, our modules
        submitted.json                           the job's id, once Slurm has accepted it
        begun  node-<k>.status.json  end.json    what the job writes: its id, the ranks' status, its end
        node-<k>.pulse.json                      and the ranks' progress
        stop.json  slurm.log                     a request to end; output of Slurm, srun and the runners
    <data>/logs/<task>/<attempt>/     <rank>.log, written by the ranks themselves

render.py           a plan as an sbatch script; pure
components.py       options of sbatch, for both drivers; pure
engine.py           the backend's methods
rundir.py           the folder above
rest.py             slurmrestd
commands.py         sbatch, squeue, scancel
state.py            an observation from folder and job; pure
pending_queue.py    pending jobs in Slurm's order; pure
environments.py     dev environments, each a job
environment_job.py  the job's script, and its status; pure
inside.py           nodes inside of environments' allocations
allocations.py      how these are named; pure
discover.py         allocations that users offer
run_location.py     whether ranks run inside or beside
causes.py           Slurm's states and reasons, and what they mean
sandbox.py          what ranks and environments may reach; pure

Slurm knows an attempt by the comment `fermi:<task>-<attempt>`, and by nothing else: its controller uses ids again after
a crash. The folder is the memory: a job that Slurm has forgotten (MinJobAge) is still known by it.

The connection (no secrets, only where they are):

    url                    slurmrestd: `http://host:6820`, `https://…` or `unix:/run/slurmrestd.socket`. Without it,
                           sbatch, squeue and scancel are run; of `bin` if given, with `conf` as SLURM_CONF
    user                   user of the jobs; default: the user that the platform runs as
    token_file, key_file   a file with a JWT, read at each use; or Slurm's jwt_hs256.key, with which tokens are made
    ca_file                authorities that are trusted for https
    folder                 where the nodes see the platform's data directory; default: at the same path
    workspace              folder in which relative scripts are looked for; default `<folder>/workspace`
    python                 interpreter on the nodes; default `python3`
    partition, account, qos, reservation, constraint, time_limit, mem, gres, options
                           as in sbatch; `options`: any other of its long options. The first three may differ by project
                           and by priority (`connection_options`)
    nice                   by priority, what is subtracted from a job's priority
    modules, conda, setup  what makes the training stack usable: `module load`, `conda activate`, any shell lines
    container              {"runtime": "pyxis" or "apptainer", "image": "…", "mounts": ["/a:/b"]}; default image: the
                           environment's
    discover               true: allocations that users offer are environments (`discover`)
    confine, reads, writes what a task may reach on a node: see `sandbox.py`
    bounds                 what a task may use of a node beside what Slurm divides: see `fermi.jobs.bounds`

What a node's `engine` may hold: `node` (the Slurm node it is), else any node that fits; and `partition`, `constraint`,
`gres` (e.g. `gpu:a100:4`; default `gpu:<count>`), `mem`, `cpus`, `python`, `image` of its own. Of an environment that
is an allocation: see `allocations`.
"""

from typing import Any

from fermi.engines.connections import cache_by_connection
from fermi.engines.slurm.engine import SlurmBackend

__all__ = ["SlurmBackend", "connect"]


@cache_by_connection
def connect(connection: dict[str, Any]) -> SlurmBackend:
    """Return the backend of a connection; the same one for equal connections."""
    return SlurmBackend(connection)
