# Every target does its own set-up; PYTHON names the interpreter that makes .venv (3.11 or newer).
PYTHON ?= python3
PY := .venv/bin/python
# One thread a process: two busy ones on two cores slow each other down tenfold.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM ?= false

# One more than two cores: many tests wait for a process, a server or a clock.
PARALLEL ?= -n 3 --dist worksteal

.PHONY: help demo test test-all check format perf clean

help:
	@echo "make demo      asciieval on a model that ships with the package and on two methods, with a report"
	@echo "make test      the tests (minutes)"
	@echo "make test-all  the slow and the browser tests too"
	@echo "make check     ruff, pyright, import contracts"
	@echo "make perf      assay beside its peers"

.venv/.demo: requirements/demo.txt pyproject.toml scripts/setup.sh
	sh scripts/setup.sh "$(PYTHON)" requirements/demo.txt .venv/.demo

# The speaker encoder declares a backport of typing and a package that compiles; it needs neither.
.venv/.test: requirements/demo.txt requirements/test.txt pyproject.toml scripts/setup.sh
	sh scripts/setup.sh "$(PYTHON)" requirements/test.txt .venv/.test
	.venv/bin/python -m pip install --quiet --no-deps resemblyzer==0.1.4

demo: .venv/.demo
	sh scripts/demo.sh

# Without bubblewrap, g++ or PostgreSQL the tests that need them are skipped, and say so.
test: .venv/.test
	-sh scripts/debian.sh "Tests of sandbox and server" bwrap:bubblewrap g++:g++ pg_createcluster:postgresql openssl:openssl
	$(PY) -m pytest $(PARALLEL)

test-all: .venv/.test
	sh scripts/debian.sh "All tests" chromium:chromium bwrap:bubblewrap g++:g++ pg_createcluster:postgresql openssl:openssl
	$(PY) -m pytest $(PARALLEL) -m ""

check: .venv/.test
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	.venv/bin/pyright
	.venv/bin/lint-imports

format: .venv/.test
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

perf: .venv/.test
	for file in perf/*.py; do $(PY) $$file || exit 1; done

clean:
	rm -rf .venv build dist src/*.egg-info
