# make is a thin alias of `.venv/bin/python -m suite VERB …`: it makes the environment and passes words on.
# A variable counts only when it is given on make's command line: a setting exported for other purposes
# changes nothing. Every failure exits 2, as make does; the verbs themselves have finer exit codes.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.SUFFIXES:
MAKEFLAGS += --no-print-directory --no-builtin-rules

WORDS := WORKLOAD FRAMEWORK PHASE SCENARIO MODE PRECISION SCALE DATA CACHE FORM LOADER BATCH DEVICES DIVISION \
         PURPOSE RUNTIME LAUNCHER VARIANT IMAGE PAIR
PLACES := DATA_ROOT RESULTS_DIR CACHE_DIR BUNDLE
PY := .venv/bin/python

# ---- words given on the command line --------------------------------------------------------------------
given := $(foreach v,$(.VARIABLES),$(if $(subst command line,,$(origin $v)),,$v))
has = $(filter $1,$(given))
quote = '$(subst ','\'',$1)'
lower = $(shell printf '%s' $(call quote,$1) | tr '[:upper:]' '[:lower:]')
closest = $(shell python3 -c 'import difflib, sys; known = {w.upper(): w for w in sys.argv[2:]}; \
  m = difflib.get_close_matches(sys.argv[1].upper(), known, 1); \
  print("; did you mean " + known[m[0]] + "?" if m else ".")' \
  $(call quote,$1) $2 2>/dev/null)
# $(call only,A B): refuse every variable that the target does not know, PYTHON apart.
only = $(foreach v,$(given),$(if $(filter $v,$1 PYTHON),,$(error `make $(subst check-run-words,run,$@)` does not know the variable \
  $v$(call closest,$v,$1) It takes: $(or $(strip $1),none))))
# Hydra reads commas, brackets and spaces as grammar: a value that is not plain goes in double quotes.
plain = $(shell printf '%s' $(call quote,$1) | LC_ALL=C grep -qxE '[A-Za-z0-9_./+-]*' && echo yes)
hydra_value = $(if $(call plain,$1),$1,"$(subst ",\",$1)")
setting = $(call quote,$(call lower,$1)=$(call hydra_value,$(value $1)))
switch = $(if $(call has,$1),$(if $(filter 1 true yes,$(value $1)),$2,$(if $(filter 0 false no,$(value $1)),, \
  $(error $1 is a switch: $1=1 or $1=0, found $1=$(value $1)))))
option = $(if $(call has,$1),$2 $(call quote,$(value $1)))
need = $(if $(call has,$1),,$(error `make $@` needs $1=$2))

run_words = $(foreach v,$(WORDS) $(PLACES),$(if $(call has,$v),$(call setting,$v))) \
  $(call switch,DRY,dry=true) $(call switch,FETCH,fetch=true) $(if $(call has,ARGS),$(value ARGS))
results_dir = $(if $(call has,RESULTS_DIR),$(value RESULTS_DIR),results)

# ---- for people -----------------------------------------------------------------------------------------
targets := help run say check audit audit-replay audit-perturb quote export import coverage keygen submit check-submissions summary compare ab matrix quality plot data preprocess environments bench-overhead \
           bench-peers image images image-list image-lock image-lock-check doctor fetch test test-containers test-pair equivalence \
           lint format lock clean distclean
.PHONY: $(targets)

help:
	@$(call only)
	@cat tools/help.txt

say:
	@set -- $(PY) -m suite run $(run_words); printf '%q' "$$1"; shift; printf ' %q' "$$@"; echo

run: check-run-words say .venv/suite.stamp
	@exec $(PY) -m suite run $(run_words)

.PHONY: check-run-words
check-run-words:
	@$(call only,$(WORDS) $(PLACES) ARGS DRY FETCH)

check: .venv/suite.stamp
	@$(call only,RESULT STRICT JSON RESULTS_DIR)
	@path=$(if $(call has,RESULT),$(call quote,$(value RESULT))); \
	if [[ -z $$path ]]; then \
	  echo "make check checks a result (RESULT=path); the self-tests are \`make test\`."; \
	  path=$$(find $(call quote,$(results_dir)) -mindepth 1 -maxdepth 1 -type d -name '*Z-*' \
	    ! -name '*.partial' ! -name '*.debug' 2>/dev/null | sort | tail -n 1) || true; \
	  [[ -n $$path ]] || { echo "no result in $(results_dir)/ yet: make run WORKLOAD=ncf FRAMEWORK=pytorch"; exit 2; }; \
	  echo "newest result: $$path"; \
	fi; \
	exec $(PY) -m suite check "$$path" $(call switch,STRICT,--strict) $(call switch,JSON,--json)

audit: .venv/suite.stamp
	@$(call only,RESULT SUBMISSIONS KEY OUT VERIFY KEYS REPLAY STRICT JSON)
	@$(call need,RESULT,results/<run id>)
	@exec $(PY) -m suite audit $(call option,RESULT,--result) $(call option,SUBMISSIONS,--submissions) \
	  $(call option,KEY,--key) $(call option,OUT,--out) $(call option,VERIFY,--verify) $(call option,KEYS,--keys) \
	  $(call option,REPLAY,--replay) $(call switch,STRICT,--strict) $(call switch,JSON,--json)

audit-replay: .venv/suite.stamp
	@$(call only,$(again_words) KEY DEVICE STEPS FRAMEWORK THREADS)
	@$(call need,RESULT,results/<run id>)
	@exec $(PY) -m suite audit-replay $(again_options) $(call option,KEY,--key) $(call option,DEVICE,--device) \
	  $(call option,STEPS,--steps) $(call option,FRAMEWORK,--framework) $(call option,THREADS,--threads)

audit-perturb: .venv/suite.stamp
	@$(call only,$(again_words) GROW)
	@$(call need,RESULT,results/<run id>)
	@exec $(PY) -m suite audit-perturb $(again_options) $(call option,GROW,--grow)

again_words := RESULT SUBMISSIONS NONCE REPEATS OUT PAIR INTERPRETER OTHER_CODE FETCH JSON DATA_ROOT CACHE_DIR
again_options = $(call option,RESULT,--result) $(call option,SUBMISSIONS,--submissions) $(call option,NONCE,--nonce) \
  $(call option,REPEATS,--repeats) $(call option,OUT,--out) $(call option,PAIR,--pair) \
  $(call option,INTERPRETER,--python) $(call switch,OTHER_CODE,--other-code) $(call switch,FETCH,--fetch) \
  $(call switch,JSON,--json) $(call option,DATA_ROOT,--data-root) $(call option,CACHE_DIR,--cache-dir)

quote: .venv/suite.stamp
	@$(call only,RESULT SUBMISSIONS)
	@$(call need,RESULT,results/<run id>)
	@exec $(PY) -m suite quote $(call option,RESULT,--result) $(call option,SUBMISSIONS,--submissions)

export: .venv/suite.stamp
	@$(call only,RESULT FORMAT OUT)
	@$(call need,RESULT,results/<run id>)
	@exec $(PY) -m suite export --format $(if $(call has,FORMAT),$(call quote,$(value FORMAT)),mllog) \
	  $(call option,OUT,--out) $(call quote,$(value RESULT))

# PATH is the shell's.
import: .venv/suite.stamp
	@$(call only,LOGS ROUND FORMAT STRICT)
	@$(call need,LOGS,<a log or a folder of logs>)
	@exec $(PY) -m suite import $(call option,ROUND,--round) $(call option,FORMAT,--format) \
	  $(call switch,STRICT,--strict) $(call quote,$(value LOGS))

coverage: .venv/suite.stamp
	@$(call only,SUBMITTER JSON)
	@$(call need,SUBMITTER,<your organisation>)
	@exec $(PY) -m suite coverage $(call option,SUBMITTER,--submitter) $(call switch,JSON,--json)

keygen: .venv/suite.stamp
	@$(call only,OUT SUBMITTER ORGANISATION)
	@exec $(PY) -m suite keygen $(call option,OUT,--out) $(call option,SUBMITTER,--submitter) \
	  $(call option,ORGANISATION,--organisation)

submit: .venv/suite.stamp
	@$(call only,RESULT SUBMITTER SYSTEM KEY YES)
	@$(call need,RESULT,results/<run id>)$(call need,SUBMITTER,<your organisation>)
	@exec $(PY) -m suite submit $(call option,RESULT,--result) $(call option,SUBMITTER,--submitter) \
	  $(call option,SYSTEM,--system) $(call option,KEY,--key) $(call switch,YES,--yes)

check-submissions: .venv/suite.stamp
	@$(call only)
	@exec $(PY) -m suite check-submissions

summary: .venv/suite.stamp
	@$(call only,FORMAT)
	@exec $(PY) -m suite summary $(call option,FORMAT,--format)

compare: .venv/suite.stamp
	@$(call only,A B BASELINE RESULT ADD FAIL_SLOWER JUNIT FORMAT)
	@$(if $(call has,BASELINE),$(call need,RESULT,results/<run id>),$(call need,A,results/<run id>)$(call \
	  need,B,results/<run id>))
	@exec $(PY) -m suite compare $(call option,BASELINE,--baseline) $(call switch,ADD,--add) $(compare_options) \
	  $(foreach v,A B RESULT,$(if $(call has,$v),$(call quote,$(value $v))))

ab: .venv/suite.stamp
	@$(call only,A B FAIL_SLOWER JUNIT FORMAT $(WORDS) $(PLACES) ARGS DRY FETCH)
	@$(call need,A,'<words of A>')$(call need,B,'<words of B>')
	@exec $(PY) -m suite ab $(compare_options) $(run_words) -- $(call quote,$(value A)) -- $(call quote,$(value B))

compare_options = $(call option,FAIL_SLOWER,--fail-slower) $(call option,JUNIT,--junit) $(call option,FORMAT,--format)

matrix: .venv/suite.stamp
	@$(call only,EXPERIMENT DRY WORKLOAD FRAMEWORK PHASE FORMAT RESULTS_DIR DATA_ROOT CACHE_DIR ARGS)
	@exec $(PY) -m suite matrix $(call option,EXPERIMENT,--experiment) $(call option,WORKLOAD,--workload) \
	  $(call option,FRAMEWORK,--framework) $(call option,PHASE,--phase) $(call switch,DRY,--dry) \
	  $(call option,FORMAT,--format) $(call option,RESULTS_DIR,--results) \
	  $(foreach v,DATA_ROOT CACHE_DIR,$(if $(call has,$v),$(call setting,$v))) $(if $(call has,ARGS),$(value ARGS))

quality: .venv/suite.stamp
	@$(call only,WORKLOAD FRAMEWORK SEEDS DRY FORMAT RESULTS_DIR DATA_ROOT CACHE_DIR ARGS)
	@exec $(PY) -m suite quality $(call option,WORKLOAD,--workload) $(call option,FRAMEWORK,--framework) \
	  $(call option,SEEDS,--seeds) $(call switch,DRY,--dry) $(call option,FORMAT,--format) \
	  $(call option,RESULTS_DIR,--results) \
	  $(foreach v,DATA_ROOT CACHE_DIR,$(if $(call has,$v),$(call setting,$v))) $(if $(call has,ARGS),$(value ARGS))

plot: .venv/plot.stamp
	@$(call only,METRIC OUT RESULTS_DIR WORKLOAD FRAMEWORK PHASE PRECISION SCALE DATA MODE DIVISION)
	@exec $(PY) -m suite plot $(call option,METRIC,--metric) $(call option,OUT,--out) \
	  $(call option,RESULTS_DIR,--results) $(call option,WORKLOAD,--workload) $(call option,FRAMEWORK,--framework) \
	  $(call option,PHASE,--phase) $(call option,PRECISION,--precision) $(call option,SCALE,--scale) \
	  $(call option,DATA,--data) $(call option,MODE,--mode) $(call option,DIVISION,--division)

data: .venv/suite.stamp
	@$(call only,WORKLOAD SCALE FROM OWN DATA_ROOT VERIFY)
	@$(call need,WORKLOAD,<workload>)
	@exec $(PY) -m suite data $(call option,WORKLOAD,--workload) $(call option,SCALE,--scale) $(call option,FROM,--from) \
	  $(call switch,OWN,--own) $(call option,DATA_ROOT,--data-root) $(call switch,VERIFY,--verify)

preprocess: .venv/suite.stamp
	@$(call only,$(preprocess_words) $(PLACES) MEASURE ARGS DRY FETCH)
	@$(call need,WORKLOAD,<workload with pictures>)$(call need,TO,recordio|tfrecord|lmdb)
	@exec $(PY) -m suite preprocess \
	  $(foreach v,$(preprocess_words) $(PLACES),$(if $(call has,$v),$(call setting,$v))) \
	  $(if $(call has,MEASURE),$(if $(call switch,MEASURE,1),,measure=false)) $(call switch,DRY,dry=true) $(call switch,FETCH,fetch=true) \
	  $(if $(call has,ARGS),$(value ARGS))

preprocess_words := WORKLOAD TO SCALE BATCH CACHE DIVISION PURPOSE RUNTIME LAUNCHER IMAGE

environments: .venv/suite.stamp
	@$(call only,FRAMEWORK FETCH)
	@exec $(PY) -m suite environments $(if $(call has,FRAMEWORK),$(call quote,$(value FRAMEWORK))) \
	  $(call switch,FETCH,--fetch)

image: .venv/suite.stamp
	@$(call only,WORKLOAD FRAMEWORK FETCH CACHE_DIR)
	@$(call need,WORKLOAD,<workload>)$(call need,FRAMEWORK,<framework>)
	@exec $(PY) -m suite image build $(image_options)

images: .venv/suite.stamp
	@$(call only,WORKLOAD FRAMEWORK FETCH CACHE_DIR)
	@exec $(PY) -m suite image build $(image_options)

image_options = $(call option,WORKLOAD,--workload) $(call option,FRAMEWORK,--framework) $(call switch,FETCH,--fetch) \
  $(call option,CACHE_DIR,--cache)

image-list: .venv/suite.stamp
	@$(call only,FORMAT)
	@exec $(PY) -m suite image list $(call option,FORMAT,--format)

image-lock: .venv/suite.stamp
	@$(call only,REPIN)
	@exec $(PY) -m suite image lock $(call switch,REPIN,--repin)

image-lock-check: .venv/suite.stamp
	@$(call only)
	@exec $(PY) -m suite image lock-check

doctor: .venv/suite.stamp
	@$(call only,WORKLOAD FRAMEWORK RUNTIME JUNIT START DATA_ROOT RESULTS_DIR CACHE_DIR)
	@exec $(PY) -m suite doctor $(call option,WORKLOAD,--workload) $(call option,FRAMEWORK,--framework) \
	  $(call option,RUNTIME,--runtime) $(call option,JUNIT,--junit) $(if $(filter 0 no false,$(START)),--no-start) \
	  $(call option,DATA_ROOT,--data-root) $(call option,RESULTS_DIR,--results-dir) $(call option,CACHE_DIR,--cache-dir)

fetch: .venv/suite.stamp
	@$(call only,WORKLOAD FRAMEWORK DEST IMAGE_FORMAT RULES ACCELERATOR CACHE_DIR FETCH)
	@$(call need,WORKLOAD,<workload>)$(call need,FRAMEWORK,<framework>)$(call need,DEST,<folder>)
	@exec $(PY) -m suite fetch $(call option,WORKLOAD,--workload) $(call option,FRAMEWORK,--framework) \
	  $(call option,DEST,--dest) $(call option,IMAGE_FORMAT,--image-format) $(call option,RULES,--rules) \
	  $(call option,ACCELERATOR,--accelerator) $(call option,CACHE_DIR,--cache) $(call switch,FETCH,--fetch)

bench-overhead: .venv/suite.stamp
	@$(call only)
	@exec $(PY) -m suite bench-overhead

bench-peers: .venv/suite.stamp
	@$(call only,WORKLOAD FRAMEWORK PHASE SCALE PRECISION BATCH THREADS WAIT ROUNDS SECONDS OUT)
	@exec $(PY) -m peers $(call option,WORKLOAD,--workload) $(call option,FRAMEWORK,--framework) \
	  $(call option,PHASE,--phase) $(call option,SCALE,--scale) $(call option,PRECISION,--precision) \
	  $(call option,BATCH,--batch) $(call option,THREADS,--threads) \
	  $(call option,WAIT,--wait-policy) $(call option,ROUNDS,--rounds) $(call option,SECONDS,--seconds) $(call option,OUT,--out)

# ---- for developers -------------------------------------------------------------------------------------
test: .venv/dev.stamp
	@$(call only,ARGS)
	@$(PY) -m suite environments --accelerator cpu
	@exec $(PY) -m pytest -n 2 --dist loadfile --ignore=tests/containers $(if $(call has,ARGS),$(value ARGS))

# Real containers: with no engine these skip with the reason, and fail where CI=true.
test-containers: .venv/dev.stamp
	@$(call only,ARGS)
	@exec $(PY) -m pytest tests/containers $(if $(call has,ARGS),$(value ARGS))

test-pair: .venv/dev.stamp
	@$(call only,WORKLOAD FRAMEWORK PAIR)
	@$(call need,WORKLOAD,<workload>)$(call need,FRAMEWORK,<framework>)$(call need,PAIR,path/pair.py)
	@$(PY) -m suite environments --accelerator cpu
	@exec $(PY) -m tests.equivalence.own_pair $(call quote,$(value WORKLOAD)) $(call quote,$(value FRAMEWORK)) \
	  $(call quote,$(value PAIR))

equivalence: .venv/dev.stamp
	@$(call only,WORKLOAD SCALE PRECISION OUT CACHE_DIR)
	@$(PY) -m suite environments --accelerator cpu
	@exec $(PY) -m tests.equivalence.table $(call option,WORKLOAD,--workload) $(call option,SCALE,--scale) \
	  $(call option,PRECISION,--precision) $(call option,OUT,--out) $(call option,CACHE_DIR,--cache)

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

lock:
	@$(call only)
	@command -v uv >/dev/null || { echo "make lock needs uv: python3.11 -m pip install uv"; exit 2; }
	@$(if $(call has,PYTHON),$(call quote,$(value PYTHON)),python3.11) tools/lock.py

# Results, data and submissions are nobody's to delete but yours.
clean:
	@$(call only)
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find suite tests tools -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean
	rm -rf .venv .envs

# ---- the suite's own environment --------------------------------------------------------------------------
# Two makes at once wait for each other; a build that was cut off has no stamp and is made anew.
.venv/suite.stamp: requirements/suite.txt
	@tools/venv.sh $(if $(call has,PYTHON),$(call quote,$(value PYTHON)),'') requirements/suite.txt $@ \
	  $(if $(call has,BUNDLE),$(call quote,$(value BUNDLE)/wheels/suite))

.venv/plot.stamp: requirements/plot.txt .venv/suite.stamp
	@tools/venv.sh $(if $(call has,PYTHON),$(call quote,$(value PYTHON)),'') requirements/plot.txt $@

.venv/dev.stamp: requirements/dev.txt .venv/suite.stamp
	@tools/venv.sh $(if $(call has,PYTHON),$(call quote,$(value PYTHON)),'') requirements/dev.txt $@

.DEFAULT:
	@echo "no target $@$(call closest,$@,$(targets)) \`make\` lists them." >&2; exit 2
