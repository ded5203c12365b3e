# shellcheck shell=bash
# Sourced by each run.sh here, after activate.sh: packages that only some of these folders need.
#
#   extra spark         the packages of spark.txt, in .extras/spark beside activate.sh; they are
#                       installed there at the first use, and go to the front of PYTHONPATH.
#                       Spark's need Java 17 or later: it is found first
#   java_for_spark      finds Java, or says how to get it

extra() {
    local here root place
    here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
    root="$here/.."
    place="$(cd "$root" && pwd)/.extras/$1"
    if [ "$1" = spark ]; then java_for_spark || return; fi
    if ! cmp -s "$here/$1.txt" "$place/complete"; then
        echo "installing the packages of $1.txt: once, about a minute" >&2
        rm -rf "$place.$$" && mkdir -p "$place.$$"
        if ! PIP_USER=0 python -m pip install --quiet --disable-pip-version-check --no-build-isolation \
            --no-deps --require-hashes --target "$place.$$" -r "$here/$1.txt"; then
            rm -rf "$place.$$"
            echo "set-up failed: the packages of $1.txt cannot be installed; pip says why above" >&2
            return 1
        fi
        cp "$here/$1.txt" "$place.$$/complete"
        if cmp -s "$here/$1.txt" "$place/complete"; then    # by another run meanwhile, which uses it
            rm -rf "$place.$$"
        else
            rm -rf "$place" && mv "$place.$$" "$place"
        fi
    fi
    export PYTHONPATH="$place${PYTHONPATH:+:$PYTHONPATH}"
}

java_for_spark() {
    local java version found=none
    for java in "${JAVA_HOME:+$JAVA_HOME/bin/java}" java /usr/lib/jvm/*/bin/java; do
        if [ -z "$java" ] || ! command -v "$java" >/dev/null; then continue; fi
        version="$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p')" || true
        found="${version:-none}"
        if [ "${version:-0}" -ge 17 ]; then
            JAVA_HOME="$(dirname "$(dirname "$(readlink -f "$(command -v "$java")")")")"
            export JAVA_HOME SPARK_LOCAL_IP="${SPARK_LOCAL_IP:-127.0.0.1}"
            return
        fi
    done
    echo "Spark needs Java 17 or later (found: $found): apt install openjdk-17-jre-headless, or set JAVA_HOME" >&2
    return 1
}
