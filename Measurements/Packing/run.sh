#!/usr/bin/env bash
# Gradients sent in packs of different sizes, during and after back-propagation; about 8 minutes.
#   bash run.sh --steps 50 --repeats 1         a quick look
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source ../../activate.sh
exec python packing.py "$@"
