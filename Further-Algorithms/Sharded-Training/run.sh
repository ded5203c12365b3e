#!/usr/bin/env bash
# Sharded-Training on this machine: 2 workers, no parameter server; about 20 s.
#   bash run.sh --steps 20          a quick look
#   WORKERS=4 bash run.sh           a larger cluster
#   DRY_RUN=1 bash run.sh           print the plain commands instead: a bash script that runs without tfrun
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
[ -z "${PS:-}" ] || { echo "run.sh: PS means nothing here: there is no parameter server" >&2; exit 2; }
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"    # the user's folder stays the working folder
source "$here/../../activate.sh"
exec tfrun --workers "${WORKERS:-2}" -- "$here/sharded_training.py" "$@"
