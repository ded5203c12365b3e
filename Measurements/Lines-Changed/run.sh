#!/usr/bin/env bash
# How many lines of a program change for two workers, by five ways; about 1 minute.
#   bash run.sh --only Horovod      one of them
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source ../../activate.sh
source ../../Beyond-One-Machine/extras.sh
python ../../Horovod-RingAllReduce/build/build.py
extra torch || echo "PyTorch is left out" >&2
exec python lines_changed.py "$@"
