#!/usr/bin/env bash
# Multiple-GPUs-Single-Machine on this machine: one process, all its GPUs or 2 logical devices of its CPU; about 10 s.
#   bash run.sh --steps 20          a quick look
#   bash run.sh --devices 4         so many devices
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source ../activate.sh
exec tfrun -- multiple_gpus_single_machine.py "$@"
