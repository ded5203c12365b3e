# shellcheck shell=bash
# Sourced by every run.sh: puts Python with all packages, and the command tfrun, on the PATH, and
# this folder on the PYTHONPATH, so that Python imports tfrun and lab from here.
#
# Uses the environment that is active (VIRTUAL_ENV, CONDA_PREFIX) if that has everything of
# requirements.lock; otherwise .venv beside this file, which is made on first use.
# PYTHON=/path/to/python chooses the Python that .venv is made with.

activate() {
    local root python
    unset PYTHONHOME    # as venv's own activate does
    root="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
    export RUNS_DIR="${RUNS_DIR:-$root/runs}" PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"

    local active="${VIRTUAL_ENV:-${CONDA_PREFIX:-$root/.venv}}"
    if [ "$active" != "$root/.venv" ] && python "$root/lab/environment.py" --active; then
        export PATH="$root/tfrun/bin:$PATH"
        return
    fi
    local pythons=(python3 python3.13 python3.12 python3.11 python3.10)
    [ -z "${PYTHON:-}" ] || pythons=("$PYTHON")
    for python in "${pythons[@]}"; do
        if "$python" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
            "$python" "$root/lab/environment.py" "$root" || return
            export VIRTUAL_ENV="$root/.venv" PATH="$root/tfrun/bin:$root/.venv/bin:$PATH"
            return
        fi
    done
    echo "set-up failed: Python 3.10, 3.11, 3.12 or 3.13 is needed${PYTHON:+, and PYTHON=$PYTHON is none}; install one, or name it: PYTHON=/path/to/python" >&2
    return 1
}
activate
