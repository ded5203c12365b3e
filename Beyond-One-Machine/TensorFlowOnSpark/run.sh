#!/usr/bin/env bash
# TensorFlowOnSpark on this machine: a real standalone cluster of Spark, HogWild in both input modes;
# about two minutes on 2 cores.
#   bash run.sh                      both modes
#   bash run.sh spark --epochs 20    one mode, with flags of tfos.py
#   WORKERS=3 PS=2 bash run.sh       a larger cluster
#   bash run.sh rates                the measurement of the page, about 15 minutes
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"    # the user's folder stays the working folder
source "$here/../../activate.sh"
source "$here/../extras.sh"
extra spark
extra tensorflowonspark
# One core each: TensorFlowOnSpark needs executors of one task.
cluster=(python "$here/../Spark-Cluster/standalone.py" --workers "$((${PS:-1} + ${WORKERS:-2}))")
if [ "${1:-}" != rates ]; then
    case "${1:-}" in "" | -*) ;; *) set -- --mode "$@" ;; esac
    exec "${cluster[@]}" -- \
        python "$here/tfos.py" --ps "${PS:-1}" --workers "${WORKERS:-2}" "$@"
fi
exec "${cluster[@]}" -- python "$here/rates.py" "${@:2}"
