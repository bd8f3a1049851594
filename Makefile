# The verbs of this project. `make suggest` needs nothing but Python 3.11 or newer; everything lands in $(VENV).
#
#   make suggest                    ranked plans for Llama 3.1 405B on 16,384 H100
#   make suggest ARGS="--model ..."  the same command with your own flags
#   make test                       the tests (PYTEST_ARGS="-k layout" picks some)
#   make check                      lint, format, types and import rules
#   make bench                      how well, and how fast, plans are ranked, listed, served and shown
#   make image-check                the steps of the Dockerfile, without a container engine
#   make openapi                    write docs/openapi.json as the application has it
#   make format                     rewrite the sources as `make check` wants them
#   make clean                      remove everything that these targets made

PYTHON ?= python3
VENV   ?= .venv
PY     := $(VENV)/bin/python
PIP    := $(PY) -m pip install --quiet --disable-pip-version-check

# A stamp says that an install finished; a newer pyproject.toml makes it stale.
# The packages are installed editable, so an edited source file needs no new install.
PLAIN := $(VENV)/.installed-plain
DEV   := $(VENV)/.installed-dev

SOURCES := costmodel db planner api

ARGS ?= --model llama-3.1-405b --cluster dgx-h100 --devices 16384 \
	--global-batch-size 2048 --seq-len 8192 --precision bf16

# A worker per core up to four; a file stays on one worker, so that what its fixtures build is built once. Files are begun
# in the order of tests/conftest.py, the slow ones first, and not in that of how many tests they have.
PYTEST_ARGS ?= -n auto --maxprocesses=4 --dist=loadfile --no-loadscope-reorder

# Two targets at once would install into one environment at once.
.NOTPARALLEL:
.PHONY: suggest test check bench image-check openapi format clean
.DEFAULT_GOAL := suggest

suggest: $(PLAIN)
	@$(VENV)/bin/planner suggest $(ARGS)

test: $(DEV)
	$(PY) -m pytest $(PYTEST_ARGS)

check: $(DEV)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy --strict
	$(VENV)/bin/lint-imports --no-logo

bench: $(DEV)
	$(PY) -m tests.bench.bench_ranking
	$(PY) -m tests.bench.bench_sweep
	$(PY) -m tests.bench.bench_devices
	$(PY) -m tests.bench.bench_runs
	$(PY) -m tests.bench.bench_store
	$(PY) -m tests.bench.bench_service
	$(PY) -m tests.bench.bench_pages

image-check: $(DEV)
	$(PY) docker/check_image.py

openapi: $(DEV)
	$(PY) -m api.documentation > docs/openapi.json

format: $(DEV)
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

clean:
	rm -rf $(VENV) .ci-venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find $(SOURCES) tests -name __pycache__ -type d -prune -exec rm -rf {} +

# `--clear` replaces an environment whose interpreter is gone, or whose making was interrupted.
define ensure_venv
@$(PY) -m pip --version >/dev/null 2>&1 || { \
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "The planner needs Python 3.11 or newer, and '$(PYTHON)' is not one; try: make PYTHON=python3.12" >&2; exit 1; }; \
	$(PYTHON) -m venv --clear $(VENV); }
endef

$(PLAIN): pyproject.toml
	$(ensure_venv)
	@echo "Installing the planner into $(VENV) (once; about a minute) ..." >&2
	@$(PIP) --editable .
	@touch $@

# The plain packages come along, so a later `make suggest` has nothing to do.
$(DEV): pyproject.toml
	$(ensure_venv)
	@echo "Installing the planner and its development tools into $(VENV) (once; about a minute) ..." >&2
	@$(PIP) --editable '.[dev]'
	@touch $(PLAIN) $@
