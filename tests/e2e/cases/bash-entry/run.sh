#!/usr/bin/env bash
set -eu
exec python train.py "$@"
