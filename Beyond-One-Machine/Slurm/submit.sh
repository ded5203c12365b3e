#!/usr/bin/env bash
# Submits train.sbatch, shows its output until it ends, and ends with 0 where it has completed.
#   OUTPUT_DIR=/shared/run bash submit.sh [--FLAG=VALUE of sbatch ... --] SCRIPT [its flags]
# Ctrl-C cancels the job. The output is also in OUTPUT_DIR, which this machine must see.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
options=()
while [ "${1:-}" != -- ] && [[ "${1:-}" = -* ]]; do options+=("$1"); shift; done
if [ "${1:-}" = -- ]; then shift; fi
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
if [ -z "${OUTPUT_DIR:-}" ]; then echo "submit.sh: set OUTPUT_DIR, a folder that all nodes share" >&2; exit 2; fi
mkdir -p "$OUTPUT_DIR"
OUTPUT_DIR="$(realpath "$OUTPUT_DIR")"
export OUTPUT_DIR
text="$OUTPUT_DIR/slurm.txt"
# At each start of TensorFlow.
notices="WARNING: All log messages before absl|oneDNN custom operations are on|Could not find cuda drivers|TensorFlow binary is optimized|To enable the following instructions"
touch "$text"
seen="$(wc -l <"$text")"    # of an earlier job
folder="$PWD"    # the job's, too; train.sbatch must be submitted in its own
if [ -e "${1:-}" ]; then set -- "$(realpath "$1")" "${@:2}"; fi
job="$(cd "$here" && sbatch --parsable --chdir "$folder" --output "$text" \
    ${options[@]+"${options[@]}"} train.sbatch "$@")"
trap 'scancel "$job"; exit 130' INT
trap 'scancel "$job"; exit 143' TERM
tail -n "+$((seen + 1))" -F --pid $$ --sleep-interval 0.2 "$text" 2>/dev/null |
    grep --line-buffered -vE "$notices" &
state=PENDING silent=0
while [[ "$state" =~ ^(PENDING|RUNNING|COMPLETING|REQUEUED|CONFIGURING|SUSPENDED)$ ]] && [ "$silent" -lt 60 ]; do
    sleep 0.5
    if now="$(scontrol show job "$job" 2>/dev/null)"; then
        state="$(sed -n 's/.*JobState=\([A-Z_]*\).*/\1/p' <<<"$now")" silent=0
    else
        silent=$((silent + 1))
    fi
done
sleep 0.5    # for the last lines
echo "[slurm] job $job: $state"
[ "$state" = COMPLETED ]
