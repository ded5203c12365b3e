#!/usr/bin/env bash
# Your-Model's table: which problem files train under which examples; about 15 minutes, and Horovod's build.
#   bash run_matrix.sh --only HogWild     one example
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"    # the user's folder stays the working folder
source "$here/../activate.sh"
exec python "$here/matrix.py" "$@"
