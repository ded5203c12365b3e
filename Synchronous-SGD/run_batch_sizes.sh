#!/usr/bin/env bash
# Batch sizes: 7 sizes, 3 learning rates, 5 seeds, in one process; about 3 minutes.
#   OUTPUT_DIR=/tmp/quick bash run_batch_sizes.sh --seeds 1     a quick look, which keeps the committed results
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"    # the user's folder stays the working folder
source "$here/../activate.sh"
exec python "$here/batch_sizes.py" "$@"
