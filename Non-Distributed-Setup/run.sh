#!/usr/bin/env bash
# Non-Distributed-Setup: one process, no cluster; about 8 s.
#   bash run.sh --steps 20          a quick look
#   DRY_RUN=1 bash run.sh           print the plain commands instead: a bash script that runs without tfrun
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
[ -z "${WORKERS:-}${PS:-}" ] || { echo "run.sh: WORKERS and PS mean nothing here: there is one process" >&2; exit 2; }
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"    # the user's folder stays the working folder
source "$here/../activate.sh"
exec tfrun -- "$here/non_distributed_setup.py" "$@"
