PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# The folder of data files the tests read; without it the tests on real data skip.
export GPATCHER_DATA ?=

.DEFAULT_GOAL := help
.PHONY: help install demo test test-all lint docs clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: $(STAMP)  ## create .venv with the gpatcher command in it

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "gpatcher needs Python 3.11 or newer: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

demo: install  ## the main job on built-in graphs: a table here, pages in demo/
	$(BIN)/python tools/demo.py --out demo

test: install  ## the tests, about ten minutes on two idle cores
	$(BIN)/python -m pytest -n 2

test-all: install  ## the slow tests too
	$(BIN)/python -m pytest -n 2 -m ''

lint: install  ## ruff and mypy, both strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: install  ## the documentation, in site/
	$(BIN)/mkdocs build --strict

clean:  ## remove what the other targets made
	rm -rf $(VENV) demo site .mypy_cache .pytest_cache .ruff_cache .hypothesis
