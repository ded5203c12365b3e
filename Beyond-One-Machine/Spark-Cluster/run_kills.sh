#!/usr/bin/env bash
# Spark-Cluster's kills on this machine: five processes in turn, each while HogWild trains; about 2 min.
#   bash run_kills.sh --output kills.json
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"    # the user's folder stays the working folder
source "$here/../../activate.sh"
source "$here/../extras.sh"
extra spark
exec python "$here/standalone.py" --workers 3 -- python "$here/kills.py" "$@"
