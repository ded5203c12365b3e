#!/usr/bin/env bash
# The ring all-reduce over loopback, beside a raw TCP stream; about 2 minutes.
#   bash run.sh --megabytes 1 --repeats 1        a quick look
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source ../../activate.sh
exec python ring_bandwidth.py "$@"
