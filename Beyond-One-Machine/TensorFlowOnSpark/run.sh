#!/usr/bin/env bash
# TensorFlowOnSpark on this machine: a real standalone cluster of Spark, HogWild in both input modes;
# about 70 s on 2 cores.
#   bash run.sh                      both modes
#   bash run.sh spark --epochs 20    one mode, with flags of tfos.py
#   WORKERS=3 PS=2 bash run.sh       a larger cluster
#   bash run.sh rates                the measurement of the page, about 15 minutes
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"    # the user's folder stays the working folder
source "$here/../../activate.sh"
source "$here/../extras.sh"
java_for_spark
extra spark
extra tensorflowonspark
run="tfos.py"
case "${1:-}" in
    rates) run="rates.py" && shift ;;
    "" | -*) ;;
    *) set -- --mode "$@" ;;
esac
[ "$run" = rates.py ] || set -- --ps "${PS:-1}" --workers "${WORKERS:-2}" "$@"
# One core each: TensorFlowOnSpark needs executors of one task.
exec python "$here/../Spark-Cluster/standalone.py" --workers "$((${PS:-1} + ${WORKERS:-2}))" -- \
    python "$here/$run" "$@"
