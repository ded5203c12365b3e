#!/usr/bin/env bash
# Elastic-Training on this machine: 1 parameter server, 2 asynchronous workers; about 20 s.
#   bash run.sh --steps 20          a quick look
#   WORKERS=4 PS=2 bash run.sh      a larger cluster
#   tfrun scale RUN --workers 4     in another terminal: two workers more; RUN is what tfrun status shows
#   DRY_RUN=1 bash run.sh           print the plain commands instead: a bash script that runs without tfrun
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"    # the user's folder stays the working folder
source "$here/../../activate.sh"
exec tfrun --ps "${PS:-1}" --workers "${WORKERS:-2}" -- "$here/elastic_training.py" "$@"
