# shellcheck shell=bash
# Sourced by the run.sh of the examples on Spark: finds Java, and puts pyspark on the PYTHONPATH.
#
# pyspark is an extra: its 450 MB go into .spark beside activate.sh at the first use.

spark_environment() {
    local root java version
    root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
    java="${JAVA_HOME:+$JAVA_HOME/bin/}java"
    version="$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p')" || true
    if [ "${version:-0}" -lt 17 ]; then
        echo "Spark needs Java 17 or later (found: ${version:-none}): apt install openjdk-17-jre-headless, or set JAVA_HOME" >&2
        return 1
    fi
    if ! cmp -s "$root/Beyond-One-Machine/spark.txt" "$root/.spark/complete"; then
        echo "installing pyspark: once, about a minute" >&2
        rm -rf "$root/.spark"
        python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps \
            --target "$root/.spark" -r "$root/Beyond-One-Machine/spark.txt" || return 1
        cp "$root/Beyond-One-Machine/spark.txt" "$root/.spark/complete"
    fi
    export PYTHONPATH="$root/.spark${PYTHONPATH:+:$PYTHONPATH}" SPARK_LOCAL_IP="${SPARK_LOCAL_IP:-127.0.0.1}"
}
spark_environment
