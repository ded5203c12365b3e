#!/usr/bin/env bash
# The tests, in three tiers.
#   bash tests/run.sh                       core, what CI runs: at most 10.5 minutes on 2 cores
#   bash tests/run.sh core -k tfrun         some of it, by pytest's flags
#   bash tests/run.sh all                   everything that changes may break: at most 50 minutes
#   bash tests/run.sh all horovod recovery  these parts, also where they have passed at this commit
#   bash tests/run.sh nightly               also what is slow and rarely breaks; nothing is skipped
#   bash tests/run.sh parts                 the names of the parts, as JSON
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source activate.sh

# Installs what is missing of system-packages.txt, where it may; tests without it say so and skip.
system_packages() {
    local packages
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get dpkg-query >/dev/null; then return; fi
    mapfile -t packages < <(grep -v '^#' tests/system-packages.txt)
    if dpkg-query --show "${packages[@]}" >/dev/null 2>&1; then return; fi
    echo "installing ${packages[*]}" >&2
    export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1    # and no daemon starts
    { timeout 120 apt-get update && timeout 300 apt-get install --yes --no-install-recommends "${packages[@]}"; } \
        >/dev/null </dev/null || echo "apt-get cannot install them; apt-get says why above" >&2
}

tier="${1:-core}"
case "$tier" in
    core)
        if [ "$#" -gt 1 ]; then exec python -m pytest -m "not long and not nightly" "${@:2}"; fi
        exec python tests/parts.py core
        ;;
    all | nightly)
        system_packages
        exec python tests/parts.py "$@"
        ;;
    parts) exec python tests/parts.py parts ;;
    *) echo "tests/run.sh: the tier is core, all or nightly, not $tier" >&2; exit 2 ;;
esac
