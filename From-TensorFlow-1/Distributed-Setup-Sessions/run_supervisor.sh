#!/usr/bin/env bash
# Distributed-Setup-Sessions with tf.train.Supervisor: 1 parameter server, 1 worker; about 20 s.
#   bash run_supervisor.sh --steps 20          a quick look
#   DRY_RUN=1 bash run_supervisor.sh           print the plain commands instead
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
[ -z "${WORKERS:-}" ] || { echo "run_supervisor.sh: WORKERS means nothing here: there is one worker; HogWild-Sessions has several" >&2; exit 2; }
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"    # the user's folder stays the working folder
source "$here/../../activate.sh"
exec tfrun --ps "${PS:-1}" --workers 1 -- "$here/distributed_setup_supervisor.py" "$@"
