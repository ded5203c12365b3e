#!/usr/bin/env bash
# The examples on links of 10 Mbit/s to 1 Gbit/s; under 4 minutes. Needs Linux, iproute2, and root
# or user namespaces.
#   bash run.sh --full                      all cases, three runs of each: about half an hour
#   OUTPUT_DIR=mine bash run.sh --full      a second call goes on where the first was stopped
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source ../../activate.sh
exec python slow_network.py "$@"
