#!/usr/bin/env bash
# Model-Parallelism on this machine: one model on 2 workers, some layers on each; about 15 s.
#   bash run.sh --steps 20          a quick look
#   WORKERS=3 bash run.sh           a place for each layer
#   DRY_RUN=1 bash run.sh           print the plain commands instead: a bash script that runs without tfrun
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
[ -z "${PS:-}" ] || { echo "run.sh: PS means nothing here: there is no parameter server" >&2; exit 2; }
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"    # the user's folder stays the working folder
source "$here/../activate.sh"
exec tfrun --workers "${WORKERS:-2}" -- "$here/model_parallelism.py" "$@"
