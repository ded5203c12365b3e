#!/usr/bin/env bash
# n workers make the step of one on the union of their mini-batches: all implementations, as a table.
#   bash run.sh --workers 2         a quick look
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source ../../activate.sh
exec python one_step.py "$@"
