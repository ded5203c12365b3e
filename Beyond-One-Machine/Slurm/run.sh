#!/usr/bin/env bash
# Slurm on this machine: a real Slurm of two virtual nodes, and an example as its job; about a minute.
#   bash run.sh                                           HogWild
#   bash run.sh ../../DOWNPOUR/downpour.py --steps 600    another example, with its flags
#   WORKERS=3 PS=2 bash run.sh                            a larger cluster
#   CHIEF=1 WORKERS=1 bash run.sh                         ps, chief and worker
# Needs Linux, root, and Debian's packages slurm-wlm and munge.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"    # the user's folder stays the working folder
source "$here/../../activate.sh"
case "${1:-}" in
    --help) exec python "$here/slurm_launch.py" --help ;;
    "" | -*) set -- "$here/../../HogWild/hogwild.py" "$@" ;;
esac
if [ ! -e "$1" ] && [ -e "$here/$1" ]; then set -- "$here/$1" "${@:2}"; fi    # as seen from here
if [ ! -f "$1" ]; then echo "run.sh: there is no script $1" >&2; exit 2; fi
script="$(realpath "$1")"
for name in PS WORKERS CHIEF; do
    if ! [[ "${!name:-0}" =~ ^[0-9]{1,2}$ ]]; then
        echo "run.sh: $name must be a number from 0 to 99, is ${!name}" >&2; exit 2
    fi
done
tasks="$((10#${PS:-1} + 10#${WORKERS:-2} + 10#${CHIEF:-0}))"
if [ "$((10#${WORKERS:-2} + 10#${CHIEF:-0}))" -eq 0 ]; then echo "run.sh: a run needs a worker or a chief" >&2; exit 2; fi
if [ -z "${OUTPUT_DIR:-}" ]; then
    OUTPUT_DIR="$RUNS_DIR/Slurm/$(basename "$(dirname "$script")")/$(date +%Y-%m-%d_%H-%M-%S)"
fi
OUTPUT_DIR="$(realpath -m "$OUTPUT_DIR")"
export OUTPUT_DIR
exec python "$here/virtual_slurm.py" --nodes 2 --cpus "$(((tasks + 1) / 2))" -- bash "$here/submit.sh" \
    "--ntasks=$tasks" "--nodes=$((tasks > 1 ? 2 : 1))" -- "$script" "${@:2}"
