# Two commands matter: `make demo` and `make test`. Both set up everything they need; the second time they set up nothing.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
# The environment is made anew when what it is made from changes.
STAMP := $(VENV)/.made-of-$(shell cat pyproject.toml | $(PYTHON) -c "import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest()[:12])")
RUN := $(VENV)/bin/python -m

.PHONY: help setup demo test test-all-sglang lint types imports tests format snapshots pictures clean

help: ## this list
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*## /\t/'

$(STAMP):
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" || { echo "Python 3.11 or newer is needed, $(PYTHON) is older: make PYTHON=/path/to/python3.11"; exit 2; } >&2
	@echo "making $(VENV) (once, about half a minute)" >&2
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV)
	@$(RUN) pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1" >&2
	@$(RUN) pip install --quiet --disable-pip-version-check --editable . --group dev >&2
	@touch $@

setup: $(STAMP) ## the development environment in .venv

demo: setup ## the whole job on this machine; ARGS="--headless --samples 64 --json" without a screen
	@$(VENV)/bin/eagle3-console demo $(ARGS)

test: lint types imports tests ## everything that must hold

lint: setup ## ruff: rules and format
	$(RUN) ruff check .
	$(RUN) ruff format --check .

types: setup ## mypy, strict
	$(RUN) mypy

imports: setup ## who may import whom
	$(VENV)/bin/lint-imports

tests: setup ## pytest; ARGS="-k link" for some of it
	$(RUN) pytest $(ARGS)

test-all-sglang: setup ## the patch against nine SGLang releases and every model class (about 15 minutes)
	EAGLE3_ALL_SGLANG=1 $(RUN) pytest tests/patch/test_launch_lines.py tests/patch/test_releases.py tests/patch/test_models.py

format: setup ## let ruff mend what it can
	$(RUN) ruff check --fix .
	$(RUN) ruff format .

snapshots: setup ## accept the screens as they look now (look at them first)
	$(RUN) pytest tests/ui --snapshot-update

pictures: setup ## the pictures of the README, from the recording that comes along
	$(RUN) tests.pictures.make

clean: ## remove .venv and caches here; the cached test beds stay
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist
