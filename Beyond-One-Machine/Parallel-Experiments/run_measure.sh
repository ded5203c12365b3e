#!/usr/bin/env bash
# How long the 2x2 grid takes in three ways, five times each; about 5 minutes on two idle cores.
#   bash run_measure.sh --repeats 1          a quick look
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"    # the user's folder stays the working folder
source "$here/../../activate.sh"
source "$here/../extras.sh"
extra spark
exec python "$here/measure.py" "$@"
