#!/usr/bin/env bash
# D-PSGD on this machine: 4 workers, no parameter server; about 15 s.
#   bash run.sh --steps 20          a quick look
#   WORKERS=8 bash run.sh           a larger ring
#   DRY_RUN=1 bash run.sh           print the plain commands instead: a bash script that runs without tfrun
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
[ -z "${PS:-}" ] || { echo "run.sh: PS means nothing here: there is no parameter server" >&2; exit 2; }
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"    # the user's folder stays the working folder
source "$here/../../activate.sh"
exec tfrun --workers "${WORKERS:-4}" -- "$here/d_psgd.py" "$@"
