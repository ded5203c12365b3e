#!/usr/bin/env bash
# Your model under any algorithm: by default a small GPT by DiLoCo, which then writes; about a minute.
#   bash run.sh                                  gpt.py, by DiLoCo
#   bash run.sh recommender.py HogWild           another problem, another example
#   bash run.sh my.py Collective-AllReduce --steps 500    your own file, and flags for the script
#   DRY_RUN=1 bash run.sh           print the plain commands instead: a bash script that runs without tfrun
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"    # the user's folder stays the working folder
source "$here/../activate.sh"
PROBLEM=gpt.py example=DiLoCo
if [[ "${1:-}" =~ ^[^-] ]]; then PROBLEM="$1"; shift; fi
if [[ "${1:-}" =~ ^[^-] ]]; then example="$1"; shift; fi
if [ ! -e "$PROBLEM" ] && [ -e "$here/$PROBLEM" ]; then PROBLEM="$here/$PROBLEM"; fi
launcher="$(cd "$here/.." && find . -maxdepth 3 -path "*/$example/run.sh" -not -path "./.*" | sed -n 1p)"
if [ -z "$launcher" ]; then echo "run.sh: there is no example $example; README.md lists all" >&2; exit 2; fi
export PROBLEM OUTPUT_DIR="${OUTPUT_DIR:-$RUNS_DIR/Your-Model/$(date +%Y-%m-%d_%H-%M-%S)}"
if [ "$example" = DiLoCo ]; then set -- --learning-rate 0.003 --steps 50 --checkpoint-steps 10 "$@"; fi
if [ "$PROBLEM" != "$here/gpt.py" ] || [ "${DRY_RUN:-0}" != 0 ] || [[ " $* " =~ " -h "|" --help " ]]; then
    exec bash "$here/../$launcher" "$@"
fi
bash "$here/../$launcher" "$@"
echo
python "$here/generate.py" "$OUTPUT_DIR" --save "$OUTPUT_DIR"
echo "its curve: $OUTPUT_DIR/loss.png"
