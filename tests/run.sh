#!/usr/bin/env bash
# The tests.
#   bash tests/run.sh                       the core tier, what CI runs: at most 15 minutes on 2 cores
#   bash tests/run.sh core -k tfrun         some of it, by pytest's flags
#   bash tests/run.sh all                   everything, part by part: at most 60 minutes
#   bash tests/run.sh all horovod recovery  these parts, also where they have passed at this commit
#   bash tests/run.sh parts                 the names of the parts, as JSON
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source activate.sh
tier="${1:-core}"
case "$tier" in
    core) exec python -m pytest -m "not long" "${@:2}" ;;
    all | parts) exec python tests/parts.py "$@" ;;
    *) echo "tests/run.sh: the tier is core or all, not $tier" >&2; exit 2 ;;
esac
