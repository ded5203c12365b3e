#!/usr/bin/env bash
# One worker of three at a third of its speed: what that costs the others; about 8 minutes.
#   bash run.sh --seconds 3 --repeats 1        a quick look
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source ../../activate.sh
exec python stragglers.py "$@"
