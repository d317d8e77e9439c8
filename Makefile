PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# One thread for each of the two workers of the tests: on two cores more of them would wait for each other.
TEST   := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal
# Folder of raw data files for the tests; without it the tests on real data skip.
export GPATCHER_DATA ?=

.DEFAULT_GOAL := help
.PHONY: help install demo test test-all coverage campaign lint docs clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: $(STAMP)  ## create .venv with the package and all tools

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "gpatcher needs Python 3.11 or newer: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

demo: install  ## train four models on generated graphs: a table here, pages in demo/
	$(BIN)/python tools/demo.py --out demo

test: install  ## run the tests, 5 to 15 minutes on two cores
	$(TEST)

test-all: install  ## run all tests, the slow ones too
	$(TEST) -m ''

coverage: install  ## run the tests with coverage: a table here, pages in htmlcov/
	$(TEST) --cov=gpatcher --cov-report=term --cov-report=html

campaign: install  ## damage, kill and starve the program, continue where it stopped: docs/reliability.md
	OMP_NUM_THREADS=1 $(BIN)/python tools/campaign

lint: install  ## check with ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: install  ## build the documentation in site/
	$(BIN)/mkdocs build --strict

clean:  ## remove what the other targets created
	rm -rf $(VENV) demo site htmlcov .mypy_cache .pytest_cache .ruff_cache .hypothesis
