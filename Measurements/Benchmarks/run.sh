#!/usr/bin/env bash
# The examples beside TensorFlow's strategies and PyTorch, by turns; about 40 minutes.
#   bash run.sh --quick                     one round of the smaller model, under 6 minutes
#   OUTPUT_DIR=mine bash run.sh             a second call goes on where the first was stopped
#   bash run.sh --forms                     each peer in several forms, about 12 minutes
#   bash run.sh --gpu --rounds 2            examples on a GPU and beside it on the processor, 20 minutes
#   WITHOUT_PYTORCH=1 bash run.sh           without the packages of PyTorch, 190 MB
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source ../../activate.sh
source ../../Beyond-One-Machine/extras.sh
[ -n "${WITHOUT_PYTORCH:-}" ] || extra torch || echo "the rows of PyTorch are left out" >&2
exec python benchmarks.py "$@"
