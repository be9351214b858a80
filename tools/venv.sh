#!/usr/bin/env bash
# Make .venv with Python 3.11 if it is missing, install a lock into it, and then write a stamp.
#   tools/venv.sh PYTHON|'' LOCK STAMP [WHEELS]
# WHEELS: a folder with all wheels of the lock and of requirements/build.txt; then the network is not used.
set -euo pipefail
wanted=$1 lock=$2 stamp=$3 wheels=${4-}

fail() { echo "make: $1" >&2; exit 2; }
is_311() { [[ $("$1" -c 'import sys; print(sys.version_info[:2] == (3, 11))' 2>/dev/null) == True ]]; }

exec 9>.venv.lock
if command -v flock >/dev/null && ! flock -n 9; then
  echo "waiting for another make that is making .venv" >&2
  flock 9
fi
if [[ -f $stamp && ! $lock -nt $stamp ]]; then exit 0; fi  # the other make has done it

if [[ ! -x .venv/bin/python ]] || ! is_311 .venv/bin/python; then
  python=
  if [[ -n $wanted ]]; then candidates=("$wanted"); else candidates=(python3.11 python3); fi
  for candidate in "${candidates[@]}"; do
    if is_311 "$candidate"; then python=$candidate; break; fi
  done
  [[ -n $python || -z $wanted ]] || fail "PYTHON=$wanted is not a Python 3.11"
  [[ -n $python ]] || fail "Python 3.11 was not found: sudo apt-get install python3.11 python3.11-venv \
(or pyenv install 3.11, or uv python install 3.11), or name one: make PYTHON=/path/to/python3.11 …"
  "$python" -c 'import venv, ensurepip' 2>/dev/null \
    || fail "$python has no venv module: sudo apt-get install python3.11-venv"
  echo "making .venv ($lock: under a minute)" >&2
  rm -rf .venv
  "$python" -m venv .venv || fail "$python could not make .venv: is the folder writable and the disk not full?"
else
  echo "bringing .venv up to date ($lock)" >&2
fi
# The one package without a wheel, antlr4-python3-runtime, is pure Python: no compiler is ever needed.
install=(.venv/bin/python -m pip install -qq --disable-pip-version-check --no-input --require-hashes
  --only-binary=:all: --no-binary=antlr4-python3-runtime)
if [[ -n $wheels ]]; then
  [[ -d $wheels ]] || fail "$wheels is not there: a bundle of \`make fetch\` has it; unset BUNDLE to use the network"
  install+=(--no-index --find-links "$wheels")
  # otherwise pip fetches unpinned build requirements of that one package
  "${install[@]}" -r requirements/build.txt || fail "installing requirements/build.txt from $wheels failed, see above"
  install+=(--no-build-isolation --use-pep517)
fi
"${install[@]}" -r "$lock" \
  || fail "installing $lock failed, see above: needs ${wheels:-the network or a mirror that pip is configured with (PIP_INDEX_URL)}"
touch "$stamp"
