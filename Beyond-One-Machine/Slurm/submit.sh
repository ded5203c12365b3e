#!/usr/bin/env bash
# Submits train.sbatch with these arguments, shows its output, and ends with its exit code.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
text="$(mktemp)"
job="$(sbatch --parsable --output "$text" train.sbatch "$@")"
trap 'scancel "$job" 2>/dev/null; rm -f "$text"' EXIT
tail -F --pid $$ --sleep-interval 0.2 "$text" 2>/dev/null &
state=PENDING
while [[ "$state" =~ ^(PENDING|RUNNING|COMPLETING|REQUEUE|CONFIGURING) ]]; do
    sleep 0.5
    state="$(scontrol show job "$job" | sed -n 's/.*JobState=\([A-Z_]*\).*/\1/p')"
done
sleep 0.5    # the last lines
echo "[slurm] job $job: $state"
[ "$state" = COMPLETED ]
