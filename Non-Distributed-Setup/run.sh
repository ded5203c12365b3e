#!/usr/bin/env bash
# Non-Distributed-Setup: one process, no cluster; about 8 s.
#   bash run.sh --steps 20          a quick look
#   DRY_RUN=1 bash run.sh           print the plain commands instead: a bash script that runs without tfrun
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source ../activate.sh
exec tfrun -- non_distributed_setup.py "$@"
