#!/usr/bin/env bash
# SSH on this machine: two hosts with real sshds, and an example on them by tfrun --hosts; about 20 s.
#   bash run.sh                                           HogWild
#   bash run.sh ../../DOWNPOUR/downpour.py --steps 600    another example, with its flags
#   WORKERS=3 PS=2 bash run.sh                            a larger cluster
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"    # the user's folder stays the working folder
source "$here/../../activate.sh"
case "${1:-}" in
    --help) exec python "$here/virtual_hosts.py" --help ;;
    "" | -*) set -- "$here/../../HogWild/hogwild.py" "$@" ;;
esac
if [ ! -e "$1" ] && [ -e "$here/$1" ]; then set -- "$here/$1" "${@:2}"; fi    # as seen from here
if [ ! -f "$1" ]; then echo "run.sh: there is no script $1" >&2; exit 2; fi
slots="$(((${PS:-1} + ${WORKERS:-2} + 1) / 2))"    # half of the tasks on each host
exec python "$here/virtual_hosts.py" --hosts 2 -- \
    tfrun --hosts "host1:$slots,host2:$slots" --ps "${PS:-1}" --workers "${WORKERS:-2}" -- "$@"
