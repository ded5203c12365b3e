#!/usr/bin/env bash
# What each compressor of Compressed-AllReduce sends, and to which loss it comes; under 2 minutes.
#   bash run.sh --full                      all cases, three runs of each: about 3 minutes
#   OUTPUT_DIR=mine bash run.sh --full      a second call goes on where the first was stopped
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source ../../activate.sh
exec python compression.py "$@"
