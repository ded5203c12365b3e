#!/usr/bin/env bash
# Writes the site, docs/_build/html, from the pages and notebooks of this repository; about 20 s.
#   bash docs/build.sh         then open docs/_build/html/index.html: it needs no server
# Needs Python 3.11 or later. The first run installs Sphinx into .venv.site: 250 MB, about a minute.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
unset PYTHONPATH PYTHONHOME
lock=docs/site/requirements.lock place=.venv.site

if ! cmp -s "$lock" "$place/complete"; then
    for python in "${PYTHON:-python3}" python3.13 python3.12 python3.11; do
        if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then break; fi
        python=
    done
    [ -n "$python" ] || { echo "set-up failed: the site needs Python 3.11 or later" >&2; exit 1; }
    echo "installing the packages of $lock: once, about a minute" >&2
    "$python" -m venv --clear "$place"
    "$place/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: \
        --require-hashes -r "$lock"
    cp "$lock" "$place/complete"
fi

rm -rf docs/_build/html
mkdir -p docs/_build/source
# -E: a build that goes on from the last one would keep old tables of contents.
"$place/bin/python" -m sphinx -q -E -W --keep-going -b html -c docs/site -d docs/_build/doctrees \
    docs/_build/source docs/_build/html "$@"
echo "written: docs/_build/html/index.html"
