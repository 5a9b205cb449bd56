#!/usr/bin/env bash
# Trains on several nodes with one command, over ssh:
#
#   ./scripts/launch_multi_node.sh MASTER_IP NODES GPUS_PER_NODE [OTHER_IP …]
#   ./scripts/launch_multi_node.sh 192.168.1.100 2 4 192.168.1.101
#
# It writes the folder `job` (`fermi render`) and runs its start-all.sh. SCRIPT is what each rank runs, by default
# scripts/train.py; the project's folder lies at the same path on all nodes. DRY_RUN=1 writes the folder only.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if (($# < 3)) || ! [[ $2 =~ ^[1-9][0-9]*$ && $3 =~ ^[1-9][0-9]*$ ]]; then
    echo "usage: $0 MASTER_IP NODES GPUS_PER_NODE [OTHER_IP …]" >&2
    exit 2
fi
master=$1 nodes=$2 gpus=$3
shift 3
if (($# != nodes - 1)); then
    echo "$nodes nodes: give the addresses of the other $((nodes - 1)) behind the number of GPUs, not $#" >&2
    echo "  $0 $master $nodes $gpus ADDRESS …" >&2
    exit 2
fi
words=()
for address in "$master" "$@"; do
    words+=(--node "$address:$gpus")
done
python3 "$here/by_hand.py" render --target shell --framework jax "${words[@]}" \
    --script "${SCRIPT:-$here/train.py}" -o job
if [[ -z ${DRY_RUN:-} ]]; then
    exec job/start-all.sh
fi
