#!/usr/bin/env bash
# How much of the time the two workers of Model-Parallelism are idle, by the number of micro-batches; about 4 minutes.
#   bash run.sh --micro-batches 1,4 --repeats 1 --updates 5       a quick look
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source ../../activate.sh
exec python pipeline.py "$@"
