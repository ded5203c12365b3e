#!/usr/bin/env bash
# Parallel-Experiments on this machine: a 2x2 grid on Spark and on local processes; about 35 s.
#   bash run.sh --backend local                                   without Spark, and without Java
#   bash run.sh --set learning_rate=0.001,0.01 --set epochs=4,8   another grid
#   SPARK_MASTER=spark://host:7077 bash run.sh                    on a cluster
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"    # the user's folder stays the working folder
source "$here/../../activate.sh"
source "$here/../extras.sh"
case " $* " in
    *" --backend local "* | *" --backend=local "* | *" --help "*) ;;
    *) extra spark ;;
esac
exec python "$here/parallel_experiments.py" "$@"
