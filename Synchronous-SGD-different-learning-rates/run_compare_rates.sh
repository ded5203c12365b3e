#!/usr/bin/env bash
# Compare rates: 9 pairs of rates, 4 cases, 5 seeds, in one process; about 2 minutes.
#   bash run_compare_rates.sh --seeds 1     a quick look
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"    # the user's folder stays the working folder
source "$here/../activate.sh"
exec python "$here/compare_rates.py" "$@"
