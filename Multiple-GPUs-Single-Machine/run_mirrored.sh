#!/usr/bin/env bash
# Multiple-GPUs-Single-Machine with MirroredStrategy on this machine: one process, all its GPUs or 2 logical devices of its CPU; about 10 s.
#   bash run_mirrored.sh --steps 20          a quick look
#   bash run_mirrored.sh --devices 4         so many devices
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
[ -z "${WORKERS:-}${PS:-}" ] || { echo "run_mirrored.sh: WORKERS and PS mean nothing here: there is one process; --devices N gives it N replicas" >&2; exit 2; }
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"    # the user's folder stays the working folder
source "$here/../activate.sh"
exec tfrun -- "$here/multiple_gpus_single_machine_mirrored.py" "$@"
