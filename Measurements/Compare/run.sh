#!/usr/bin/env bash
# Each algorithm at its best setting, for the same seconds; about half an hour, told beforehand.
#   bash run.sh HogWild ADAG               these, tuned, under two laws of times
#   bash run.sh --full                     all, in about 12 hours; it goes on where it was stopped
#   bash run.sh --problem my_model.py      a problem file of your own
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"    # the user's folder stays the working folder
source "$here/../../activate.sh"
exec python "$here/compare.py" "$@"
