#!/usr/bin/env bash
# An Optuna study of the same training function on this machine: 12 trials; about 30 s.
#   bash run_study.sh --logdir my-study --trials 24     again: goes on where it was
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"    # the user's folder stays the working folder
source "$here/../../activate.sh"
source "$here/../extras.sh"
extra optuna
exec python "$here/study.py" "$@"
