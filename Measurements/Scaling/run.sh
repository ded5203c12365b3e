#!/usr/bin/env bash
# 1 to 16 workers whose gradient takes a given time without a core; under 4 minutes.
#   bash run.sh --full                      all cases, three runs of each: about 45 minutes
#   OUTPUT_DIR=mine bash run.sh --full      a second call goes on where the first was stopped
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source ../../activate.sh
exec python scaling.py "$@"
