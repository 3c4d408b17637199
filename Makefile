# Everything a contributor runs. Each target brings up .venv by itself; ARGS="..." is passed on.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PY := .venv/bin/python
export PYTHON
ARGS ?=

.PHONY: help demo test lint format docs bench keys-soak chaos histories powerloss test-browser clean
.PHONY: up-run up-test up-browser up-dev up-docs up-bench

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

demo: up-run ## order pizza on a page, and break it (ARGS='--terminal'; --say /order in a script)
	@$(PY) -m hitherto demo $(ARGS)

test: up-test ## run the test suite, on two cores (ARGS='tests/test_keys.py -k topic' for a part of it)
	@$(PY) -m pytest $(or $(ARGS),-n 2 --dist loadfile)

lint: up-dev ## ruff, mypy --strict and pyright; nothing is changed
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@$(PY) -m pyright

format: up-dev ## let ruff format and sort what it can
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

docs: up-docs ## build the documentation into site/, warnings are errors
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet $(ARGS)

bench: up-bench ## measure hitherto beside its peers
	@$(PY) -m benchmarks $(ARGS)

keys-soak: up-test ## a million hostile key pairs, looking for one collision
	@$(PY) tests/soak_keys.py $(ARGS)

chaos: up-test ## kill, pause and cut workers and servers, then check the promise
	@PYTHONPATH=tests $(PY) -m chaos $(ARGS)

histories: up-test ## record concurrent histories of every store under faults, and check each
	@$(PY) tests/recording.py $(ARGS)

powerloss: up-test ## cut the power after every call to the disk, and let every call fail
	@cd tests && ../$(PY) -m powerloss $(ARGS)

test-browser: up-browser ## the page of the demo and the inspector, in a real browser
	@tools/browser
	@$(PY) -m pytest tests/browser $(ARGS)

clean: ## remove what the other targets made, .venv too
	@rm -rf .venv build dist site artifacts .hypothesis .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

up-run up-test up-browser up-dev up-docs up-bench: up-%:
	@tools/bootstrap $*
