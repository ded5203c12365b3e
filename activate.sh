# Sourced by every run.sh: puts Python with all packages, and the command tfrun, on the PATH.
#
# Uses the environment that is active (VIRTUAL_ENV, CONDA_PREFIX) if it has everything of
# requirements.lock, and .venv beside this file otherwise, made on first use. PYTHON=/path/to/python
# chooses the Python that .venv is made with.

activate() {
    local root python
    root="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

    # Any Python can look for one that fits, and set up .venv with it; setup_environment.py does both.
    for python in "${PYTHON:-}" python3 python3.13 python3.12 python3.11 python3.10 python; do
        if [ -n "$python" ] && "$python" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
            if [ -n "${VIRTUAL_ENV:-}${CONDA_PREFIX:-}" ] && python "$root/tfrun/environment.py" --active; then
                export PATH="$root/tfrun/bin:$PATH"
            elif "$python" "$root/tfrun/environment.py" "$root"; then
                export VIRTUAL_ENV="$root/.venv" PATH="$root/tfrun/bin:$root/.venv/bin:$PATH"
            else
                return 1
            fi
            export RUNS_DIR="${RUNS_DIR:-$root/runs}"
            return 0
        fi
    done
    echo "Python 3.10, 3.11, 3.12 or 3.13 is needed and was not found; install one, or name it: PYTHON=/path/to/python" >&2
    return 1
}
activate || exit 1
