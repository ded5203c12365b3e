#!/usr/bin/env bash
# Model-Parallelism in one process: one model on 2 logical devices of its CPU; about 10 s.
#   bash run_devices.sh --steps 20          a quick look
#   bash run_devices.sh --devices 3         a place for each layer
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
[ -z "${WORKERS:-}${PS:-}" ] || { echo "run_devices.sh: WORKERS and PS mean nothing here: there is one process" >&2; exit 2; }
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"    # the user's folder stays the working folder
source "$here/../activate.sh"
exec tfrun -- "$here/model_parallelism.py" --devices 2 "$@"
