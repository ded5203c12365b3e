#!/usr/bin/env bash
# Checks the manifests against the published schemas; about 5 s. The first time it installs the
# validators (170 MB) beside the other packages.
#   bash validate.sh                 all manifests of this folder
#   bash validate.sh mine.yaml       these
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"    # the user's folder stays the working folder
source "$here/../../activate.sh"
source "$here/../extras.sh"
extra kubernetes
exec python "$here/validate.py" "$@"
