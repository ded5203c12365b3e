#!/usr/bin/env bash
# The notebooks of this folder in JupyterLab; Ctrl-C ends it.
#   bash run.sh --no-browser               other flags go to jupyter lab
#   bash run.sh --execute                  run all without a browser, and write nothing; about 6 minutes
#   bash run.sh --execute Servers Sessions    only these
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source ../activate.sh
if [ "${1:-}" = --execute ]; then
    exec python ../lab/notebooks/make.py --run "${@:2}"
fi
# The root is the whole project, because the notebooks show pictures of docs/figures/.
exec jupyter lab --ServerApp.root_dir="$(dirname "$PWD")" --LabApp.default_url=/lab/tree/Basics-Tutorial "$@"
