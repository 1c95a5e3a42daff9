#!/usr/bin/env bash
# The real SGLang on a CPU, with EAGLE-3, for the end-to-end tests: a virtual environment and tiny models.
#
#   tests/sglang_cpu/setup.sh            builds it once in the cache directory and prints where it is
#   tests/sglang_cpu/setup.sh --where    prints where it would be, builds nothing
#
# The directory is named by a hash of everything that goes into it, so that a change here builds a new one.
# Needs Python 3.10 to 3.13 with venv (PYTHON names another interpreter than python3), some 3 GB of disk with a CPU
# build of torch (several times that with the default one) and 2 to 10 minutes.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-python3}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/eagletui-ci

hash=$(
    cd "$here"
    {
        "$python" -c 'import sys; print(sys.version_info[:2], sys.prefix)'
        find requirements.txt setup.sh make_models.py stubs -type f ! -name '*.pyc' -print0 | sort -z | xargs -0 sha256sum
    } | sha256sum | cut -c1-12
)
dir=$cache/sglang-$hash
if [ "${1:-}" = --where ]; then
    echo "$dir"
    exit 0
fi

mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9 # two test runs at once build it once
if [ ! -d "$dir" ]; then
    part=$dir.part
    rm -rf "$part"
    mkdir "$part"
    "$python" -m venv "$part/venv" >&2
    pip() { "$part/venv/bin/python" -m pip --quiet --no-input --disable-pip-version-check "$@" >&2; }
    retry() { "$@" || { sleep 5 && "$@"; }; } # package servers hiccup
    retry pip install -r "$here/requirements.txt"
    retry pip install --no-deps sglang==0.5.23
    site=$("$part/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    cp -r "$here"/stubs/* "$site/"
    "$part/venv/bin/python" "$here/make_models.py" "$part/models" >&2
    # First imports are the slow ones: compile now, not inside somebody's deadline.
    "$part/venv/bin/python" -m compileall -q "$site" >/dev/null 2>&1 || true
    mv "$part" "$dir" # python -m works from the new place; console scripts are not used
fi
echo "$dir"
