#!/usr/bin/env bash
set -euo pipefail
echo "node $NODE_RANK of $NNODES: $NPROC_PER_NODE ranks, LOCAL_RANK ${LOCAL_RANK:-none}"
torchrun --nnodes="$NNODES" --nproc_per_node="$NPROC_PER_NODE" --node_rank="$NODE_RANK" \
  --master_addr="$MASTER_ADDR" --master_port="$MASTER_PORT" train.py "$@"
