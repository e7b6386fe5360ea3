# Two commands for a stranger: `make demo` and `make test`. Everything they need is installed into .venv.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

# Idle OpenMP threads must sleep, not spin; set before torch loads.
export OMP_WAIT_POLICY := PASSIVE
export HF_HUB_OFFLINE := 1
# Real datasets, where there are any; tests that want them say so when they skip.
export ICDA_DATA ?= $(abspath ../shared/data)

.PHONY: help install demo bench test test-lowest fuzz lint types unit hooks browser wheel faults tables pictures docs clean

help:
	@echo "make demo   install, then compare six methods on four small tasks (one to three minutes)"
	@echo "make bench  install the benchmarks, then list what icda bench can measure"
	@echo "make test   install what tests need, then lint, types and all tests"
	@echo "make test-lowest   the core tests with the lowest versions pyproject.toml allows (5 GB, once)"
	@echo "make fuzz   50,000 odd calls of losses, statistics, estimators and the audit, with a table (about an hour)"
	@echo "make hooks  run the hooks of pre-commit on all files"
	@echo "make wheel  build a wheel into dist/"
	@echo "make faults kill trainings, fill their disk, damage their files; see docs/evidence/reliability.md (some minutes)"
	@echo "make tables fill the tables of README and docs from benchmarks/results"
	@echo "make pictures   make the screenshots and figures of README and docs again, and the outputs of the notebooks"
	@echo "make docs   build the documentation site into site/"
	@echo "make clean  remove .venv, .venv-lowest, runs/, dist/ and site/"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "icda needs Python 3.11 or newer: make PYTHON=python3.11 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing icda into $(VENV) ..."
	@$(PIP) -e ".[explain]" 2> >(grep -v 'is ignored: it is neither a file' >&2)
	@touch $@

$(VENV)/.installed-test: pyproject.toml benchmarks/pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing icda and what its tests need into $(VENV) ..."
	@$(PIP) -e ".[test]" -e ./benchmarks 2> >(grep -v 'is ignored: it is neither a file' >&2)
	@touch $@ $(VENV)/.installed $(VENV)/.installed-bench

$(VENV)/.installed-dev: $(VENV)/.installed-test
	@$(PIP) -e ".[dev]" 2> >(grep -v 'is ignored: it is neither a file' >&2)
	@touch $@

$(VENV)/.installed-bench: pyproject.toml benchmarks/pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing icda and icda-bench into $(VENV) ..."
	@$(PIP) -e ".[explain]" -e ./benchmarks 2> >(grep -v 'is ignored: it is neither a file' >&2)
	@touch $@ $(VENV)/.installed

install: $(VENV)/.installed

bench: $(VENV)/.installed-bench
	$(BIN)/icda bench

demo: $(VENV)/.installed
	$(BIN)/icda demo

# Side by side: the type checker has one thread, and would leave the second core idle for a minute.
test: $(VENV)/.installed-test browser
	@$(MAKE) --no-print-directory -j 3 lint types unit

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo

types: $(VENV)/.installed-test
	$(BIN)/mypy

hooks: $(VENV)/.installed-dev
	$(BIN)/pre-commit run --all-files

# From a wheel: pip install dist/icda-*.whl
wheel: $(VENV)/.installed-test
	$(BIN)/python -m hatchling build -t wheel -d dist

# Where there is a browser, a test that does not find it fails instead of being skipped.
unit: $(VENV)/.installed-test browser
	@command -v chromium > /dev/null && export ICDA_REQUIRE_BROWSER=1; \
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -q --durations=20

# Debian's Chromium opens the report in the tests.
browser:
	@command -v chromium > /dev/null || { \
		echo "Installing Chromium, in which the tests open the report ..."; \
		root=; [ "$$(id -u)" = 0 ] || root="sudo -n"; \
		{ $$root apt-get update -qq && $$root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium; } > /dev/null 2>&1; \
		command -v chromium > /dev/null || { \
			echo "************************************************************************" >&2; \
			echo "* Chromium could not be installed: the report is NOT tested in a browser." >&2; \
			echo "* Install it by hand (Debian: apt-get install chromium), then make test." >&2; \
			echo "************************************************************************" >&2; \
		}; \
	}

# The lowest versions that pyproject.toml allows, in an environment of their own. On Linux torch of that age needs its CUDA
# libraries even to be imported: about 5 GB on the disk.
LOWEST := .venv-lowest
CORE_TESTS := tests/functional tests/losses tests/statistics tests/heads tests/estimators tests/meta

$(LOWEST)/.installed: pyproject.toml tools/lowest_versions.py | $(BIN)/python
	@echo "Installing the lowest versions pyproject.toml allows into $(LOWEST) ..."
	@$(BIN)/python -m venv --clear $(LOWEST)
	@$(BIN)/python tools/lowest_versions.py > $(LOWEST)/constraints.txt
	@$(LOWEST)/bin/pip install --quiet --disable-pip-version-check -c $(LOWEST)/constraints.txt \
		-e ".[parquet,audit]" pytest hypothesis 2> >(grep -v 'is ignored: it is neither a file' >&2)
	@touch $@

test-lowest: $(LOWEST)/.installed
	@$(LOWEST)/bin/pip freeze --exclude-editable | grep -i -E "^(torch|numpy|scipy|scikit-learn|accelerate)=" | tr '\n' ' '; echo
	# Tests of several ranks wait for ever with torch 2.6.0 (seen, not understood): they are left out.
	OMP_NUM_THREADS=1 $(LOWEST)/bin/python -m pytest -q -k "not ranks and not rank_" $(CORE_TESTS)

# Forks need one thread: a fork of a process with OpenMP threads would wait for them for ever.
faults: $(VENV)/.installed
	OMP_NUM_THREADS=1 $(BIN)/python tools/faults --out runs/faults --table runs/faults.csv

# FUZZ_CALLS=500000 FUZZ_SEED=1 for more, and others.
FUZZ_CALLS ?= 50000
FUZZ_SEED ?= 0

fuzz: $(VENV)/.installed-test
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz/long.py $(FUZZ_CALLS) $(FUZZ_SEED)

tables: $(VENV)/.installed-bench
	$(BIN)/python -m icda_bench.tables README.md docs/*.md docs/*/*.md

# Needs CIFAR-10 and the reviews of cad_imdb below ICDA_DATA; the report's picture needs `make demo` before.
pictures: $(VENV)/.installed-test browser
	$(BIN)/python tools/pictures.py
	$(BIN)/python tools/notebooks.py examples/*.ipynb

docs: $(VENV)/.installed-test
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir site

clean:
	rm -rf $(VENV) $(LOWEST) runs dist site
