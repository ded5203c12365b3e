#!/usr/bin/env bash
# Which learning rates late workers bear, by the law of their gradients' times: six runs of four
# workers, under 2 minutes.
#   bash run.sh --full                      all searches: about 75 minutes
#   OUTPUT_DIR=mine bash run.sh --full      a second call goes on where the first was stopped
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source ../../activate.sh
exec python same_staleness.py "$@"
