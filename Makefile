# make makes the environment and passes its command line on: `make VERB NAME=VALUE …` is
# `.venv/bin/python -m suite --make VERB NAME=VALUE …`, which declares the variables (suite/cli/verbs.py). Variables of
# the environment are never passed on. Every failure exits 2, as make does; the verbs have finer exit codes.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.SUFFIXES:
MAKEFLAGS += --no-print-directory --no-builtin-rules

VERBS := node run ab matrix sweep scale quality baseline bench-overhead check summary compare advise plot site report \
         export import audit audit-replay audit-perturb quote verify-quote keygen register system submit withdraw \
         check-submissions coverage data preprocess \
         doctor environments fetch image images image-list image-build image-publish image-lock image-lock-check bench-peers
WITH_TESTS := equivalence test-pair
PY := .venv/bin/python
ANY_PY = $(firstword $(wildcard $(PY)) $(shell command -v python3.11 || command -v python3))

# ---- the command line -------------------------------------------------------------------------------------
given := $(foreach v,$(.VARIABLES),$(if $(subst command line,,$(origin $v)),,$v))
has = $(filter $1,$(given))
quote = '$(subst ','\'',$1)'
pairs = $(foreach v,$(given),$(call quote,$v=$(value $v)))
# $(call only,A B): the variables that a target accepts besides PYTHON, for targets that make carries out itself.
only = $(foreach v,$(filter-out $1 PYTHON,$(given)),$(error `make $@` does not know the variable $v; it \
  takes: $(or $(strip $1),none)))
python = $(if $(call has,PYTHON),$(call quote,$(value PYTHON)),'')

# ---- verbs of the suite ----------------------------------------------------------------------------------
.PHONY: help $(VERBS) $(WITH_TESTS) test test-containers test-all lint format lock clean distclean
help:
	@[[ -n "$(ANY_PY)" ]] || { echo "Python 3.11 was not found: README.md lists what make offers" >&2; exit 2; }
	@exec $(ANY_PY) -m suite --make help $(pairs)

$(VERBS): .venv/suite.stamp
	@exec $(PY) -m suite --make $@ $(pairs)

$(WITH_TESTS): .venv/dev.stamp
	@$(PY) -m suite environments --accelerator cpu
	@exec $(PY) -m suite --make $@ $(pairs)

# An unknown target: an error with a suggestion.
.DEFAULT:
	@exec $(or $(ANY_PY),false) -m suite --make $@

# ---- for developers --------------------------------------------------------------------------------------
# Three processes keep two cores busy: with two, the cores were idle for a sixth of the time.
IN_PARALLEL := -m pytest -n 3 --dist loadfile --no-loadscope-reorder
test: .venv/dev.stamp
	@$(call only,ARGS)
	@$(PY) -m suite environments --accelerator cpu
	@exec $(PY) $(IN_PARALLEL) --ignore=tests/containers $(if $(call has,ARGS),$(value ARGS))

# Real containers: without an engine these tests skip with the reason; with CI=true they fail. Tests that
# compare times run last, with nothing beside them.
test-containers: .venv/dev.stamp
	@$(call only,ARGS)
ifneq (,$(call has,ARGS))
	@exec $(PY) -m pytest tests/containers $(value ARGS)
else
	@$(PY) $(IN_PARALLEL) -m "not quiet" tests/containers
	@exec $(PY) -m pytest -m quiet tests/containers
endif

# Both at once, as CI does: less time than one after the other.
test-all: .venv/dev.stamp
	@$(call only)
	@$(PY) -m suite environments --accelerator cpu
	@$(PY) $(IN_PARALLEL) -m "not quiet"
	@exec $(PY) -m pytest -m quiet tests/containers

lint: .venv/dev.stamp
	@$(call only)
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@.venv/bin/lint-imports

format: .venv/dev.stamp
	@$(call only)
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .
	@$(PY) -m tools.options_table
	@$(PY) -m tools.notebook docs/reading_results.py

lock:
	@$(call only)
	@command -v uv >/dev/null || { echo "make lock needs uv: python3.11 -m pip install uv"; exit 2; }
	@$(if $(call has,PYTHON),$(python),python3.11) tools/lock.py

# Results, data and submissions are never deleted.
clean:
	@$(call only)
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find suite tests tools -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean
	rm -rf .venv .envs

# ---- the suite's own environment --------------------------------------------------------------------------
# Concurrent makes wait for each other; an interrupted build has no stamp and is repeated.
.venv/suite.stamp: requirements/suite.txt
	@tools/venv.sh $(python) requirements/suite.txt $@ \
	  $(if $(call has,BUNDLE),$(call quote,$(value BUNDLE)/wheels/suite))

.venv/dev.stamp: requirements/dev.txt .venv/suite.stamp
	@tools/venv.sh $(python) requirements/dev.txt $@
