#!/bin/sh
# Writes requirements.lock: every version the project runs, is tested and is checked with, for every supported
# Python and platform, with the hashes of all files that PyPI serves for it. Run by `make lock`.
# uv resolves for all platforms at once; it is fetched into a throw-away environment because the lock itself is
# installed by pip. Settings of the machine (extra indexes, local wheel folders) must not reach the lock.
set -eu
cd "$(dirname "$0")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM

"${PYTHON:-python3}" -m venv "$scratch/venv"
env -u PIP_FIND_LINKS -u PIP_EXTRA_INDEX_URL "$scratch/venv/bin/python" -m pip install --quiet "uv==0.13.*"

for name in $(env | sed -n 's/^\(UV_[A-Z_]*\)=.*/\1/p'); do
  unset "$name"
done
# A lock that exists is a preference: `make lock` keeps its versions unless pyproject.toml excludes them,
# `make lock UPGRADE=1` takes the newest.
[ -z "${UPGRADE:-}" ] && [ -f requirements.lock ] && cp requirements.lock "$scratch/requirements.lock"
"$scratch/venv/bin/uv" --no-config --system-certs pip compile --quiet --universal --generate-hashes --no-emit-index-url \
  --default-index https://pypi.org/simple --python-version 3.11 --all-extras --group dev \
  --no-emit-package fencerow --custom-compile-command "make lock" \
  --output-file "$scratch/requirements.lock" pyproject.toml

if grep -nE '^[^#]*(https?://|file:|--(extra-)?index-url|--find-links)' "$scratch/requirements.lock"; then
  echo "make lock: the lock would name an address (lines above). Remove the source that gives it and run again." >&2
  exit 1
fi
cp "$scratch/requirements.lock" requirements.lock
echo "requirements.lock: $(grep -c '==' requirements.lock) packages"
