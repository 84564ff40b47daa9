#!/bin/sh
# make check: every gate that needs no database. Each is run and reported even when an earlier one failed; the
# output of a gate is shown only when it failed.
set -u
cd "$(dirname "$0")/.." || exit 2
bin=$PWD/.venv/bin
log=$(mktemp)
trap 'rm -f "$log"' EXIT
trap 'exit 130' INT TERM
failed=0

gate() {
  name=$1
  shift
  started=$(date +%s)
  if "$@" >"$log" 2>&1; then
    result=ok
  else
    result=FAILED
    failed=$((failed + 1))
  fi
  printf '%-16s %-7s %2d s\n' "$name" "$result" $(($(date +%s) - started))
  [ "$result" = ok ] || cat "$log"
}

gate "ruff check" "$bin/ruff" check --quiet .
gate "ruff format" "$bin/ruff" format --quiet --check .
gate "mypy --strict" "$bin/mypy" --strict
gate "pyright" "$bin/basedpyright" --warnings
gate "import contract" "$bin/lint-imports"
gate "tidy tests" "$bin/python" -m pytest -q -p no:xdist tests/tidy
gate "generated pages" "$bin/python" tools/transitions.py --check
gate "links" "$bin/python" tools/links.py

if [ "$failed" -ne 0 ]; then
  echo "make check: $failed failed"
  exit 1
fi
echo "make check: all passed"
