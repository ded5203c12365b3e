#!/usr/bin/env bash
# Late pushes: 8 workers, and 4 of which one is slow, in five asynchronous examples; about 4 minutes.
#   bash run.sh --steps 400 --repeats 1        a quick look
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source ../../activate.sh
exec python late_workers.py "$@"
