#!/usr/bin/env bash
# Gradients-To-All on this machine: 4 workers, no parameter server; about 20 s.
#   bash run.sh --steps 20          a quick look
#   PS=1 bash run.sh                with a parameter server, which forwards the gradients
#   WORKERS=8 bash run.sh           more workers
#   DRY_RUN=1 bash run.sh           print the plain commands instead: a bash script that runs without tfrun
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"    # the user's folder stays the working folder
source "$here/../../activate.sh"
exec tfrun --ps "${PS:-0}" --workers "${WORKERS:-4}" -- "$here/gradients_to_all.py" "$@"
