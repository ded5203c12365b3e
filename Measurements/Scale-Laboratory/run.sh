#!/usr/bin/env bash
# What 8 to 4,096 workers would do, simulated: under two minutes, on any machine.
#   bash run.sh --workers 64 --compute 0.26 --gigabits 10      your own case: a few seconds
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source ../../activate.sh
exec python scale_laboratory.py "$@"
