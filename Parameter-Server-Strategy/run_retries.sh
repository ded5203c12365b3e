#!/usr/bin/env bash
# Retries: 5 runs of ParameterServerStrategy, in each of which a worker is killed; about 4 minutes.
#   bash run_retries.sh --repeats 1      a quick look
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"    # the user's folder stays the working folder
source "$here/../activate.sh"
exec python "$here/retries.py" "$@"
