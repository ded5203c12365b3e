#!/usr/bin/env bash
# A bound on staleness, and momentum that waits, with eight workers; under 3 minutes.
#   bash run.sh --full                      all cases, three runs of each: about 25 minutes
#   OUTPUT_DIR=mine bash run.sh --full      a second call goes on where the first was stopped
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source ../../activate.sh
exec python staleness.py "$@"
