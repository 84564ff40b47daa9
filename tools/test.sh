#!/bin/sh
# make test: the whole suite on the embedded PostgreSQL, then the folders that speak to the engine's SQL on an
# installed PostgreSQL 15, the oldest that is supported. `make test PG=15` runs the whole suite on that one.
# Usage: tools/test.sh "[major]" [pytest arguments]
set -u
cd "$(dirname "$0")/.." || exit 2
major=${1:-}
[ $# -gt 0 ] && shift

# Prints the folder with postgres and initdb of an installed major version, looking where packagers put it.
installed() {
  for folder in "/usr/lib/postgresql/$1/bin" "/usr/pgsql-$1/bin" "/opt/homebrew/opt/postgresql@$1/bin" \
    "/usr/local/opt/postgresql@$1/bin" "/Applications/Postgres.app/Contents/Versions/$1/bin"; do
    if [ -x "$folder/postgres" ] && [ -x "$folder/initdb" ]; then
      echo "$folder"
      return 0
    fi
  done
  return 1
}

# Worker processes: one per processor, at least two (tests wait more than they compute), at most four servers at once.
workers=$(.venv/bin/python -c 'import os; print(max(2, min(4, os.cpu_count() or 2)))')

suite() {
  .venv/bin/python -m pytest -q -n "$workers" --dist worksteal "$@"
}

if [ -n "$major" ]; then
  if ! FENCEROW_PG_BIN=$(installed "$major"); then
    echo "make test: PostgreSQL $major is not installed in a usual folder. Install it, or set FENCEROW_PG_BIN and run make test." >&2
    exit 2
  fi
  export FENCEROW_PG_BIN
  echo "== the whole suite on $FENCEROW_PG_BIN"
  suite tests "$@"
  exit
fi

if [ -n "${FENCEROW_PG_BIN:-}" ]; then
  echo "== the whole suite on $FENCEROW_PG_BIN"
  suite tests "$@"
  exit
fi

echo "== the whole suite on the embedded PostgreSQL"
suite tests "$@"
first=$?
oldest=15
if ! folder=$(installed "$oldest"); then
  echo "== sql and race not run on PostgreSQL $oldest: none is installed in a usual folder"
  exit "$first"
fi
folders=
for name in sql race; do
  [ -d "tests/$name" ] && folders="$folders tests/$name"
done
if [ -z "$folders" ]; then
  echo "== no tests/sql and tests/race to run on PostgreSQL $oldest"
  exit "$first"
fi
echo "== sql and race on $folder"
# shellcheck disable=SC2086 # two plain folder names
FENCEROW_PG_BIN=$folder suite $folders "$@"
second=$?
if [ "$first" -ne 0 ]; then
  echo "make test: the run on the embedded PostgreSQL failed (see above)." >&2
  exit "$first"
fi
# 5 is pytest's "nothing selected": arguments that chose tests of other folders are no fault of this run.
[ "$second" -eq 5 ] && [ $# -gt 0 ] && exit 0
exit "$second"
