# Everything runs in .venv, which is made on first use and renewed when the requirements change.
# PYTHON chooses the interpreter: make test PYTHON=python3.12
# The tests that need data sets read the folder named in CVGP_DATA; without it they are skipped.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
# Quiet twice: no warnings of pip, which are about this machine's settings. Errors are shown.
INSTALL = $(PY) -m pip install -qq --disable-pip-version-check -c $(CONSTRAINTS)
CONSTRAINTS := constraints.txt
MINIMUM := .venv-minimum
SMOKE := .venv-smoke

.PHONY: help setup demo test test-slow test-minimum coverage lint bench paper docs build smoke clean

help:
	@echo "make demo          fit, predict, evaluate and draw a small table, in demo/"
	@echo "make test          lint, types, layers, the tests and the examples in docstrings"
	@echo "make test-slow     the tests marked slow"
	@echo "make test-minimum  the tests of the estimator with the lowest versions that pyproject.toml allows"
	@echo "make coverage      the tests of make test, and the lines that none of them reaches"
	@echo "make lint          lint, types and layers alone"
	@echo "make bench         measure speed beside other libraries; ARGS=--quick takes a few minutes"
	@echo "make paper         run every experiment of the paper in small, and write its pages, in .bench/paper"
	@echo "make docs          build the documentation in site/"
	@echo "make build         build the wheel and the source distribution in dist/"
	@echo "make smoke         build the wheel, install it into a new environment, and use it there"
	@echo "make clean         remove what the commands above wrote (not .venv, nor .bench)"

# One stamp per set of packages: a demo does not wait for linters.
$(VENV)/.stamp-%: pyproject.toml constraints.txt
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(INSTALL) -e '.[$*]'
	@touch $@

setup: $(VENV)/.stamp-dev

demo: $(VENV)/.stamp-cli
	$(BIN)/cvgp demo

lint: $(VENV)/.stamp-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/pytest

test-slow: $(VENV)/.stamp-dev
	$(BIN)/pytest -m slow

coverage: $(VENV)/.stamp-dev
	$(BIN)/pytest --cov --cov-report=term-missing:skip-covered

test-minimum: $(MINIMUM)/.stamp
	$(MINIMUM)/bin/python -m pytest -n 0 -W default tests/estimators/test_regressor.py tests/estimators/test_persistence.py

$(MINIMUM)/.stamp: pyproject.toml constraints-minimum.txt
	test -x $(MINIMUM)/bin/python || $(PYTHON) -m venv $(MINIMUM)
	$(MINIMUM)/bin/python -m pip install -qq --disable-pip-version-check -c constraints-minimum.txt \
		-e '.[cli]' pytest pytest-xdist hypothesis
	@touch $@

bench: $(VENV)/.stamp-dev
	$(PY) -m experiments speed all $(ARGS)

paper: $(VENV)/.stamp-dev
	$(PY) -W ignore -m experiments paper all --preset smoke
	$(PY) -m experiments paper report --preset smoke

docs: $(VENV)/.stamp-docs
	$(BIN)/mkdocs build --strict

build: $(VENV)/.stamp-dev
	$(PY) -m build --outdir dist .

# A new environment each time: what is not declared as a dependency is not there.
smoke: $(VENV)/.stamp-dev
	rm -rf $(SMOKE) build/smoke
	$(PY) -m build --wheel --outdir build/smoke .
	$(PYTHON) -m venv $(SMOKE)
	$(SMOKE)/bin/python -m pip install -qq --no-compile --disable-pip-version-check -c $(CONSTRAINTS) \
		"$$(echo build/smoke/cvgp-*.whl)[cli]"
	cd build/smoke && $(CURDIR)/$(SMOKE)/bin/python -I $(CURDIR)/.ci/smoke.py

clean:
	rm -rf demo site dist $(SMOKE) build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage*
	find src tests examples experiments -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
