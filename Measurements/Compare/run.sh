#!/usr/bin/env bash
# Each algorithm at its best learning rate, for the same seconds; about 3 minutes.
#   bash run.sh HogWild ADAG --seeds 1     these, once each
#   bash run.sh --full                     all, in about 3 hours; it goes on where it was stopped
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source ../../activate.sh
exec python compare.py "$@"
