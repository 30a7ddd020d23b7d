# Everything runs in .venv, which is made on first use and renewed when the requirements change.
# PYTHON chooses the interpreter: make test PYTHON=python3.12
# The tests that need data sets read the folder named in CVGP_DATA; without it they are skipped.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
INSTALL := $(PY) -m pip install --quiet -c constraints.txt
SETUP := $(VENV)/.stamp-dev
SETUP_DOCS := $(VENV)/.stamp-docs

.PHONY: help setup demo test test-slow lint bench docs clean

help:
	@echo "make demo       fit, predict, evaluate and draw a small table, in demo/"
	@echo "make test       lint, types, layers and the tests"
	@echo "make test-slow  the tests marked slow"
	@echo "make lint       lint, types and layers alone"
	@echo "make bench      compare with other libraries; ARGS=--quick takes a few minutes"
	@echo "make docs       build the documentation in site/"
	@echo "make clean      remove what the commands above wrote (not .venv, nor .bench)"

$(SETUP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) -e '.[dev]'
	@touch $@

$(SETUP_DOCS): $(SETUP)
	$(INSTALL) -e '.[docs]'
	@touch $@

setup: $(SETUP)

demo: $(SETUP)
	$(BIN)/cvgp demo

lint: $(SETUP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/pytest

test-slow: $(SETUP)
	$(BIN)/pytest -m slow

bench: $(SETUP)
	$(PY) -m benchmarks all $(ARGS)

docs: $(SETUP_DOCS)
	$(BIN)/mkdocs build --strict

clean:
	rm -rf demo site dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find src tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
