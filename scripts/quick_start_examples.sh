#!/usr/bin/env bash
# A menu of the common ways to start, and of common problems, with commands to copy. Without a terminal: --list.
exec python3 "$(dirname "$0")/by_hand.py" quickstart "$@"
