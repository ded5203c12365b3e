#!/usr/bin/env bash
# How long the places of Model-Parallelism are idle, and what they store, by schedule and micro-batches; about 15 minutes.
#   bash run.sh --micro-batches 1,4 --repeats 1 --updates 5       a quick look
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source ../../activate.sh
exec python pipeline.py "$@"
