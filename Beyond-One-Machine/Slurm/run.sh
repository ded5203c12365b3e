#!/usr/bin/env bash
# Slurm on this machine: a real Slurm with two virtual nodes, and an example as its job; about 25 s.
#   bash run.sh                                           HogWild
#   bash run.sh ../../DOWNPOUR/downpour.py --steps 600    another example, with its flags
# Needs root, and Debian's packages slurm-wlm and munge.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"    # the user's folder stays the working folder
source "$here/../../activate.sh"
case "${1:-}" in "" | -*) set -- "$here/../../HogWild/hogwild.py" "$@" ;; esac
script="$(realpath "$1")"
exec python "$here/virtual_slurm.py" --nodes 2 -- \
    bash "$here/submit.sh" "$script" "${@:2}"
