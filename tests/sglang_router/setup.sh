#!/usr/bin/env bash
# The real sglang-router for the tests of prefill and decode groups: a virtual environment of its own, without SGLang.
#
#   tests/sglang_router/setup.sh            builds it once in the cache directory and prints where it is
#   tests/sglang_router/setup.sh --where    prints where it would be, builds nothing
#
# The directory is named by a hash of what goes into it. Needs Python 3.8 or newer with venv (PYTHON names another
# interpreter than python3), 150 MB of disk and some 15 seconds.
set -euo pipefail
version=0.3.2
python=${PYTHON:-python3}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/eagletui-ci

hash=$(
    {
        "$python" -c 'import sys; print(sys.version_info[:2], sys.prefix)'
        cat "${BASH_SOURCE[0]}"
    } | sha256sum | cut -c1-12
)
dir=$cache/router-$hash
if [ "${1:-}" = --where ]; then
    echo "$dir"
    exit 0
fi

mkdir -p "$cache"
exec 9>"$cache/router.lock"
flock 9 # two test runs at once build it once
if [ ! -d "$dir" ]; then
    part=$dir.part
    rm -rf "$part"
    "$python" -m venv "$part" >&2
    pip() { "$part/bin/python" -m pip --quiet --no-input --disable-pip-version-check "$@" >&2; }
    pip install "sglang-router==$version" || { sleep 5 && pip install "sglang-router==$version"; } # package servers hiccup
    mv "$part" "$dir" # python -m works from the new place; console scripts are not used
fi
echo "$dir"
