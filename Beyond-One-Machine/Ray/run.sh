#!/usr/bin/env bash
# Ray on this machine: a Ray of its own, and an example on it; about 30 s.
#   bash run.sh                                           HogWild
#   bash run.sh ../../DOWNPOUR/downpour.py --steps 600    another example, with its flags
#   WORKERS=3 PS=2 bash run.sh                            a larger cluster
#   RAY_ADDRESS=host:6379 bash run.sh                     on a Ray cluster that runs already
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"    # the user's folder stays the working folder
source "$here/../../activate.sh"
source "$here/../extras.sh"
extra ray
case "${1:-}" in
    --help) exec python "$here/ray_launch.py" --help ;;
    "" | -*) set -- "$here/../../HogWild/hogwild.py" "$@" ;;
esac
if [ ! -e "$1" ] && [ -e "$here/$1" ]; then set -- "$here/$1" "${@:2}"; fi    # as seen from here
if [ ! -f "$1" ]; then echo "run.sh: there is no script $1" >&2; exit 2; fi
exec python "$here/ray_launch.py" --ps "${PS:-1}" --workers "${WORKERS:-2}" "$@"
