#!/usr/bin/env bash
# The tests.
#   bash tests/run.sh           what needs only Python packages; about 12 minutes on 2 cores
#   bash tests/run.sh all       also the long ones; about 55 minutes
#   bash tests/run.sh core -k tfrun      a part of them, by pytest's flags
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source activate.sh
tier="${1:-core}"
case "$tier" in
    core) marks="not long" ;;
    all) marks="not short" ;;
    *) echo "tests/run.sh: the tier is core or all, not $tier" >&2; exit 2 ;;
esac
exec python -m pytest -m "$marks" "${@:2}"
