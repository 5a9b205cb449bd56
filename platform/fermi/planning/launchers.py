"""The options of programs that start training, each with or without a value, so that the script is found after them.

Read from their own parsers: torch 2.13 `torch/distributed/run.py` and `launch.py`, accelerate 1.15
`commands/launch.py`, deepspeed 0.19 `launcher/runner.py`, horovod `runner/launch.py`, lightning-fabric 2.6 `cli.py`, uv
0.13 `uv run --help`, conda 26 `conda/cli/main_run.py`, micromamba `micromamba/src/run.cpp`, Slurm 26.11
`src/common/slurm_opt.c` (those that srun sets) with the options of the plugin Pyxis. `mpirun` is one of several: Open
MPI 4.1 (`mpirun --help CATEGORY`), Open MPI 5, whose parser is PRRTE's `src/mca/schizo/prte` and `…/ompi`, and MPICH
4.0 (`mpiexec.hydra --help`); what takes a value in one of them alone is in no table. A command with an option that its
table does not have is run as it is. Names stand without their dashes, with `-` for `_`. Pure.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Options:
    """`flags` have no value, `values` have one, and `pairs` two; `optional` have one only where it is in the same word
    (`--nice=5`, `-K0`). `abbreviated`: argparse and getopt_long(3) accept the beginning of a name where it is the only
    one that begins so."""

    flags: frozenset[str]
    values: frozenset[str]
    pairs: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()
    abbreviated: bool = False


class Option(NamedTuple):
    """An option as it was given. `name`: as in the tables; `source`: as written."""

    name: str
    value: str
    source: str


class ParsedOptions(NamedTuple):
    """`rest`: the words after the options. `unknown`: the first option that the table does not have; empty if it has
    all."""

    options: list[Option]
    rest: list[str]
    unknown: str = ""


def list_names(text: str) -> frozenset[str]:
    """Return the names of a text, which white space separates."""
    return frozenset(text.split())


TORCHRUN = Options(
    list_names(
        "h help standalone m module no-python run-path virtual-local-rank use-env"
    ),
    list_names(
        "nnodes nproc-per-node rdzv-backend rdzv-endpoint rdzv-id rdzv-conf max-restarts monitor-interval"
        " start-method event-log-handler role log-dir r redirects t tee local-ranks-filter"
        " duplicate-stdout-filters duplicate-stderr-filters node-rank master-addr master-port local-addr"
        " logs-specs numa-binding signals-to-handle shutdown-timeout"
    ),
    abbreviated=True,
)  # fmt: skip

ACCELERATE = Options(
    list_names(
        "h help q quiet m module no-python debug cpu use-cpu multi-gpu tpu no-tpu-cluster tpu-cluster"
        " tpu-use-sudo use-deepspeed use-fsdp use-megatron-lm use-parallelism-config same-network"
        " enable-cpu-affinity downcast-bf16 dynamo-use-dynamic dynamo-use-fullgraph"
        " dynamo-use-regional-compilation fp8-use-autocast-during-eval fp16 mps use-mps-device use-xpu ipex"
    ),
    list_names(
        "config-file num-processes num-machines machine-rank main-process-ip main-process-port"
        " main-training-function mixed-precision num-cpu-threads-per-process gpu-ids"
        " gradient-accumulation-steps gradient-clipping rdzv-backend rdzv-conf max-restarts monitor-interval"
        " role log-dir tee t dynamo-backend dynamo-mode zero-stage offload-optimizer-device"
        " offload-optimizer-nvme-path offload-param-device offload-param-nvme-path zero3-init-flag"
        " zero3-save-16bit-model deepspeed-config-file deepspeed-exclusion-filter deepspeed-hostfile"
        " deepspeed-inclusion-filter deepspeed-moe-layer-cls-names deepspeed-multinode-launcher"
        " fsdp-activation-checkpointing fsdp-activation-checkpointing-offload fsdp-auto-wrap-policy"
        " fsdp-backward-prefetch fsdp-cpu-ram-efficient-loading fsdp-forward-prefetch fsdp-min-num-params"
        " fsdp-offload-params fsdp-reshard-after-forward fsdp-sharding-strategy fsdp-state-dict-type"
        " fsdp-sync-module-states fsdp-transformer-layer-cls-to-wrap fsdp-use-orig-params fsdp-version"
        " fp8-amax-compute-algo fp8-amax-history-len fp8-backend fp8-enable-fsdp-float8-all-gather fp8-format"
        " fp8-interval fp8-margin fp8-opt-level fp8-override-linear-precision fp8-pad-inner-dim"
        " megatron-lm-attention-backend megatron-lm-attention-dropout megatron-lm-attention-softmax-in-fp32"
        " megatron-lm-calculate-per-token-loss megatron-lm-context-parallel-size"
        " megatron-lm-decoder-last-pipeline-num-layers megatron-lm-eod-mask-loss"
        " megatron-lm-expert-model-parallel-size megatron-lm-expert-tensor-parallel-size"
        " megatron-lm-gradient-clipping megatron-lm-hidden-dropout megatron-lm-no-load-optim"
        " megatron-lm-no-save-optim megatron-lm-num-micro-batches megatron-lm-optimizer-cpu-offload"
        " megatron-lm-overlap-cpu-optimizer-d2h-h2d megatron-lm-pp-degree megatron-lm-recompute-activations"
        " megatron-lm-recompute-granularity megatron-lm-recompute-method megatron-lm-recompute-num-layers"
        " megatron-lm-sequence-parallelism megatron-lm-tp-degree megatron-lm-use-custom-fsdp"
        " megatron-lm-use-distributed-optimizer megatron-lm-use-precision-aware-optimizer"
        " megatron-lm-use-rotary-position-embeddings parallelism-config-cp-backend"
        " parallelism-config-cp-comm-strategy parallelism-config-cp-size parallelism-config-dp-replicate-size"
        " parallelism-config-dp-shard-size parallelism-config-sp-attn-implementation"
        " parallelism-config-sp-backend parallelism-config-sp-seq-length"
        " parallelism-config-sp-seq-length-is-variable parallelism-config-sp-size parallelism-config-tp-size"
        " mpirun-hostfile vm env aws-access-key-id aws-secret-access-key"
    ),
)  # fmt: skip

DEEPSPEED = Options(
    list_names(
        "h help force-multi module no-python no-local-rank no-ssh no-ssh-check q quiet bind-cores-to-rank"
        " save-pid elastic-training"
    ),
    list_names(
        "H hostfile i include e exclude num-nodes num-gpus num-accelerators master-port master-addr node-rank"
        " launcher launcher-args autotuning min-elastic-nodes max-elastic-nodes enable-each-rank-log log-level"
        " bind-core-list ssh-port venv-script"
    ),
    abbreviated=True,
)

FABRIC = Options(
    list_names("help"),
    list_names("accelerator strategy devices num-nodes node-rank main-address main-port precision"),
)

HOROVODRUN = Options(
    list_names(
        "h help v version cb check-build disable-cache verbose hierarchical-allreduce"
        " no-hierarchical-allreduce hierarchical-allgather no-hierarchical-allgather autotune no-autotune"
        " timeline-mark-cycles no-timeline-mark-cycles no-stall-check stall-check mpi-threads-disable"
        " no-mpi-threads-disable tcp log-with-timestamp log-without-timestamp prefix-timestamp"
        " prefix-output-with-timestamp log-hide-timestamp no-log-hide-timestamp gloo mpi jsrun"
    ),
    list_names(
        "np num-proc start-timeout network-interfaces network-interface output-filename config-file p"
        " ssh-port i ssh-identity-file fusion-threshold-mb cycle-time-ms cache-capacity autotune-log-file"
        " autotune-warmup-samples autotune-steps-per-sample autotune-bayes-opt-max-samples"
        " autotune-gaussian-process-noise min-np min-num-proc max-np max-num-proc slots-per-host"
        " elastic-timeout reset-limit timeline-filename stall-check-warning-time-seconds"
        " stall-check-shutdown-time-seconds mpi-args binding-args num-nccl-streams thread-affinity"
        " gloo-timeout-seconds log-level H hosts hostfile host-discovery-script"
    ),
    list_names("blacklist-cooldown-range"),
    abbreviated=True,
)

MPIRUN = Options(
    list_names(
        "d h l q s V v allow-run-as-root bind-to-core bind-to-socket bycore bynode byslot bysocket"
        " continuous daemonize debug debug-daemons debug-daemons-file debug-devel disable-auto-cleanup"
        " disable-hostname-propagation disable-recovery disable-x display-allocation display-comm"
        " display-comm-finalize display-devel-allocation display-devel-map display-diffable-map display-map"
        " do-not-connect do-not-launch do-not-resolve enable-instant-on-support enable-recovery enable-x"
        " envall envnone fwd-mpirun-port genvall genvnone get-stack-traces help hetero-nodes include-pmix"
        " index-argv-by-rank info leave-session-attached merge-stderr-to-stdout no-aggregate-help"
        " no-app-prefix no-ready-msg nolocal nooversubscribe noprefix novm output-proctable oversubscribe"
        " pernode pmi-port preload-binary prepend-rank print-all-exitcodes profile quiet report-bindings"
        " report-child-jobs-separately report-state-on-timeout set-cwd-to-session-dir set-sid show-progress"
        " skip-launch-node soft stop-in-init stop-on-exec sync system-server system-server-first"
        " system-server-only tag-output timestamp-output tree-spawn tv uniform-nodes use-hwthread-cpus"
        " use-regexp verbose version xml"
    ),
    list_names(
        "c f H N n x add-host add-hostfile am amca app app-pmix-prefix bind-to binding bindto cartofile cf"
        " configfile cpu-list cpu-set cpus-per-proc cpus-per-rank debugger default-hostfile demux display"
        " dvm-uri envlist errfile-pattern exec-agent file forward-signals genvlist gpu-support gpus-per-proc"
        " hnp host hostfile hostlist hosts iface initial-errhandler interface keepalive launch-agent"
        " launcher launcher-exec localhost machinefile map-by mapby max-restarts max-vm-size"
        " mca-base-env-list membind memory-alloc-kinds nameserver namespace np npernode npersocket"
        " num-connect-retries ompi-server order-nodes outfile-pattern output output-directory"
        " output-filename path perhost personality plm-rsh-agent pmix-prefix ppn ppr prefix preload-files"
        " prepend-pattern pset pubsub-server rank-by rankby rankfile report-events report-pid report-uri rf"
        " rmk rtos runtime-options session-id singleton slot-list spawn-timeout stdin stream-buffering"
        " timeout tmpdir topolib tune usize wait-to-connect wd wdir with-ft xml-file xterm"
    ),
    list_names("mca gmca omca gomca pmixmca gpmixmca prtemca gprtemca env genv"),
)  # fmt: skip

SRUN = Options(
    list_names(
        "E H h l O Q s u V v X Z async consolidate-segments container-entrypoint container-entrypoint-log"
        " container-mount-home container-readonly container-remap-root container-writable contiguous"
        " debugger-test disable-status exact help hold interactive label multi-prog no-allocate"
        " no-container-entrypoint no-container-mount-home no-container-remap-root overcommit oversubscribe"
        " parsable preserve-env quiet quit-on-interrupt reboot spread-job spread-segments stepmgr test-only"
        " unbuffered usage use-min-nodes verbose version wait-for-children whole"
    ),
    list_names(
        "A B b C c D d e F G i J L M m N n o p q r S T t W w x accel-bind account acctg-freq autocomplete"
        " bb bbf bcast-exclude begin chdir cluster cluster-constraint clusters comment constraint container"
        " container-env container-id container-image container-mounts container-name container-save"
        " container-workdir context core-spec cores-per-socket cpu-bind cpu-freq cpus-per-gpu cpus-per-task"
        " deadline delay-boot dependency distribution epilog error exclude export export-file extra"
        " extra-node-info gid gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task gres"
        " gres-flags het-group hint ignore-signals input job-name jobid licenses mail-type mail-user"
        " mcs-label mem mem-bind mem-per-cpu mem-per-gpu mem-update mincpus mpi msg-timeout network nodefile"
        " nodelist nodes ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket"
        " ntasks-per-tres open-mode output pack-group partition power prefer priority profile prolog qos"
        " relative reservation resources runtime segment signal slurmd-debug sockets-per-node switches"
        " task-epilog task-prolog tasks-per-node thread-spec threads threads-per-core time time-min tmp"
        " treewidth tres-bind tres-per-task uid wait wckey"
    ),
    optional=list_names(
        "I K k bcast compress exclusive external-launcher immediate kill-on-bad-exit nice no-kill"
        " oom-kill-step overlap propagate pty resv-ports send-libs x11"
    ),
    abbreviated=True,
)  # fmt: skip

UV_RUN = Options(
    list_names(
        "h help m module s script gui-script all-extras no-dev only-dev no-default-groups all-groups"
        " no-editable exact no-env-file isolated active no-sync locked frozen all-packages no-project no-index"
        " U upgrade no-sources reinstall compile-bytecode no-build-isolation no-build no-binary"
        " require-build-hashes no-require-build-hashes n no-cache refresh managed-python no-managed-python"
        " no-python-downloads q quiet v verbose system-certs native-tls offline no-progress no-config"
    ),
    list_names(
        "extra no-extra group no-group only-group no-editable-package env-file w with with-editable"
        " with-requirements package python-platform index default-index i index-url extra-index-url f"
        " find-links index-strategy keyring-provider P upgrade-package upgrade-group resolution prerelease"
        " prerelease-package fork-strategy exclude-newer exclude-newer-package no-sources-package"
        " reinstall-package link-mode C config-setting config-settings-package no-build-isolation-package"
        " no-build-package no-binary-package cache-dir refresh-package p python color allow-insecure-host"
        " directory project config-file"
    ),
)

CONDA_RUN = Options(
    list_names("h help v verbose dev debug-wrapper-scripts live-stream no-capture-output s d detach clean-env"),
    list_names("n name p prefix cwd e env a attach label r root-prefix"),
    abbreviated=True,
)

PYTHON = Options(list_names("b bb B d E h i I O OO P q s S u v V VV x"), list_names("W X check-hash-based-pycs m c"))
"""Options of the interpreter (`python --help`); after `-m` and `-c` all words are arguments."""

WRAPPERS = {
    "nohup": Options(frozenset(), frozenset()),
    "setsid": Options(list_names("c ctty f fork w wait"), frozenset()),
    "time": Options(list_names("p v"), list_names("f o")),
    "exec": Options(frozenset(), frozenset()),
    "command": Options(frozenset(), frozenset()),
    "builtin": Options(frozenset(), frozenset()),
    "sudo": Options(list_names("E H n S b preserve-env"), list_names("u g")),
    "stdbuf": Options(frozenset(), list_names("i o e input output error")),
    "unbuffer": Options(list_names("p"), frozenset()),
    "nice": Options(frozenset(), list_names("n adjustment")),
    "ionice": Options(list_names("t"), list_names("c n p class classdata")),
    "caffeinate": Options(list_names("d i m s u"), list_names("t")),
}
"""Programs that run another one, and whose own purpose the platform serves."""

KEPT_WRAPPERS = ("numactl", "taskset", "nsys", "ncu", "nvprof", "py-spy", "gdb", "valgrind", "strace", "xvfb-run",
                 "scalene", "memray", "viztracer", "pyinstrument", "kernprof", "coverage", "timeout")  # fmt: skip
"""Programs that run another one, and stay before it."""

SETUP_PROGRAMS = list_names(
    "pip pip3 apt apt-get yum dnf brew module ml spack ulimit umask mkdir rm cp mv ln ls cat head tail less"
    " grep echo printf pwd which wget curl git tar unzip chmod chown touch sleep wait trap alias unset"
    " nvidia-smi tmux screen clear huggingface-cli hf wandb gsutil aws rsync scp pushd popd true false test ["
    " shopt hash date hostname whoami ps kill pkill jobs disown fg bg tensorboard open xdg-open code vim nano"
    " virtualenv pre-commit pytest make cmake tee"
)
"""Programs of lines that prepare a start, or look at it."""


def parse_options(words: Sequence[str], table: Options) -> ParsedOptions:
    """Return the options with which `words` begin, and the rest."""
    found: list[Option] = []
    index = 0
    while index < len(words):
        word = words[index]
        if word == "--":
            return ParsedOptions(found, [*words[index + 1 :]])
        if not word.startswith("-") or word == "-":
            break
        written, equals, value = word.partition("=")
        name = _resolve_name(written, table)
        index += 1
        if name in table.flags or name in table.optional:
            found.append(Option(name, value, word))
        elif name in table.values or name in table.pairs:
            count = (2 if name in table.pairs else 1) - bool(equals)
            more = words[index : index + count]
            index += count
            found.append(Option(name, " ".join([*([value] if equals else []), *more]), " ".join([word, *more])))
        elif attached := _split_attached(word, table):
            found += attached
        else:
            return ParsedOptions(found, [*words[index - 1 :]], word)
    return ParsedOptions(found, [*words[index:]])


def _resolve_name(written: str, table: Options) -> str:
    """Return the table's name of an option as it is written; the name itself where the table has none."""
    name = re.sub("_", "-", written.lstrip("-")) if len(written) > 2 else written.lstrip("-")
    known = table.flags | table.values | table.pairs | table.optional
    if name in known or not table.abbreviated or not written.startswith("--"):
        return name
    begins = [one for one in known if one.startswith(name) and len(one) > 1]
    return begins[0] if len(begins) == 1 else name


def _split_attached(word: str, table: Options) -> list[Option]:
    """Return the options of `-N2` or `-lu`; none where that is not what the word is."""
    if word.startswith("--") or len(word) < 3:
        return []
    found: list[Option] = []
    for at in range(1, len(word)):
        if word[at] in table.values or (word[at] in table.optional and at + 1 < len(word)):
            return [*found, Option(word[at], word[at + 1 :].removeprefix("="), word)] if at + 1 < len(word) else []
        if word[at] not in table.flags | table.optional:
            return []
        found.append(Option(word[at], "", word))
    return found
