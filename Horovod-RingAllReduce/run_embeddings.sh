#!/usr/bin/env bash
# Horovod-RingAllReduce with embeddings on this machine: 2 ranks, no parameter server; about 20 s (the first time 5 minutes more).
#   bash run_embeddings.sh --steps 20          a quick look
#   WORKERS=3 bash run_embeddings.sh           more ranks
#   DRY_RUN=1 bash run_embeddings.sh           print the plain command instead: a bash script that runs without tfrun
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
[ -z "${PS:-}" ] || { echo "run_embeddings.sh: PS means nothing here: there is no parameter server" >&2; exit 2; }
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"    # the user's folder stays the working folder
source "$here/../activate.sh"
python "$here/build/build.py"
exec tfrun -- horovodrun --gloo -np "${WORKERS:-2}" python "$here/horovod_embeddings.py" "$@"
