#!/usr/bin/env bash
# Several examples on the same data and seeds, in one table and one picture; about 4 minutes.
#   bash run.sh HogWild --seeds 1          only this one, once
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source ../../activate.sh
exec python compare.py "$@"
