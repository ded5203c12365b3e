#!/usr/bin/env bash
# HogWild with many messages and with few, by turns; about 4 minutes.
#   bash run.sh --steps 300 --repeats 1                          a quick look
#   bash run.sh --wide --batch-size 100 --steps 500              a larger model
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source ../../activate.sh
exec python messages.py "$@"
