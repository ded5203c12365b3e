#!/usr/bin/env bash
# Train-and-Evaluate on this machine: 1 parameter server, 2 workers, 1 evaluator; about 30 s.
#   bash run.sh --steps 20             a quick look
#   RECORDS=my-records bash run.sh     files that write_records.py has written before
#   DRY_RUN=1 bash run.sh              print the plain commands instead: a bash script that runs without tfrun
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"    # the user's folder stays the working folder
source "$here/../../activate.sh"
runs="${RUNS_DIR:-runs}"
records="${RECORDS:-$runs/records}"
export OUTPUT_DIR="${OUTPUT_DIR:-$runs/Train-and-Evaluate/$(date +%Y-%m-%d_%H-%M-%S)}"
if [ ! -e "$records/records.json" ]; then
    mkdir -p "$(dirname "$records")"
    python "$here/write_records.py" "$records"
fi
tfrun --own-evaluator --ps "${PS:-1}" --workers "${WORKERS:-2}" -- \
    "$here/train_and_evaluate.py" --dataset "$records" --checkpoint-steps 250 --early-stopping 10 "$@"
# A client asks the exported model; after --help or a dry run there is none.
if [ "${DRY_RUN:-0}" = 0 ] && [ -e "$OUTPUT_DIR/saved_model" ]; then
    python "$here/client.py" "$OUTPUT_DIR/saved_model" "$records"
fi
