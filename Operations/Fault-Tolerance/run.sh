#!/usr/bin/env bash
# Faults on real runs, and whether each promise about them is kept; about 7 minutes.
#   bash run.sh --list                    the drills and their promises
#   bash run.sh --only worker             those with this in their names
#   bash run.sh --without-recovery        the same faults with recovery switched off: no promise is kept
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"    # the user's folder stays the working folder
source "$here/../../activate.sh"
exec python "$here/fault_tolerance.py" "$@"
