# The two commands of the README are `make demo` and `make test`; both do all their own set-up.
.DEFAULT_GOAL := help
SHELL := /bin/bash
export UV_PYTHON_DOWNLOADS ?= never
# Tests, demo and sandbox start hundreds of processes: without byte code each compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
# Processes that run tests; each starts control planes of its own. Two of them leave a third of two cores idle.
WORKERS ?= 3
# Providers that take part in the demo and the sandbox, of those under providers/.
PROVIDERS ?= kaito,vllm
BOOTSTRAP := .airunway/bootstrap
UV := $(shell command -v uv 2>/dev/null || echo $(BOOTSTRAP)/bin/uv)
RUN := $(UV) run --frozen --no-sync

.PHONY: help
help:  ## What can be made.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: python
python:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is not on PATH: install Python 3.11 or newer" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "AI Runway needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Set PYTHON=... to another." >&2; exit 1; }

$(BOOTSTRAP)/bin/uv: tools/uv.txt | python
	@echo "uv is not on PATH: putting one into $(BOOTSTRAP)"
	@$(PYTHON) -m venv $(BOOTSTRAP) || { echo "python3 -m venv failed: install your system's venv package (Debian: python3-venv)" >&2; exit 1; }
	@$(BOOTSTRAP)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r tools/uv.txt

.PHONY: sync
sync: | python
	@test -x "$(UV)" || $(MAKE) --no-print-directory $(BOOTSTRAP)/bin/uv
	@$(UV) sync --frozen --quiet --all-packages --python $(PYTHON)

.PHONY: demo
demo: sync  ## Start everything on this machine, apply the samples, show what becomes of them.
	@$(RUN) airunway sandbox --demo --gateway --providers $(PROVIDERS)

.PHONY: sandbox
sandbox: sync  ## Start everything on this machine and keep it up until Ctrl-C.
	@$(RUN) airunway sandbox --providers $(PROVIDERS)

# Programs in Go (helm, kubectl, buildah) end within seconds: with less collecting of garbage helm takes a fifth less.
test test-slow test-all: export GOGC = 400

IN_PROCESSES = -n $(WORKERS) --dist loadfile --no-loadscope-reorder
ASKED_FOR = soak or ray or picker or kueue

.PHONY: test
test: sync  ## Run the tests but the slow ones: 15 minutes on two cores.
	@$(RUN) pytest $(IN_PROCESSES) -m 'not (slow or $(ASKED_FOR))'

.PHONY: test-slow
test-slow: sync  ## Run the slow ones: another 25 minutes.
	@$(RUN) pytest $(IN_PROCESSES) -m 'slow and not ($(ASKED_FOR))'

.PHONY: test-all
test-all: sync  ## Run both in one go.
	@$(RUN) pytest $(IN_PROCESSES)

.PHONY: test-again
test-again: sync  ## Run the tests that failed last, one after another.
	@$(RUN) pytest --last-failed --last-failed-no-failures none

# Attacks by family (tests/security/README.md).
ATTACKS_tenant = tests/security/tenant/test_hostile_tenant.py tests/security/test_bounds.py tests/security/test_policy.py \
  core/tests/validation/test_uses.py core/tests/controller/test_config_policy.py
ATTACKS_tokens = tests/install/test_guards.py tests/catalogue/test_guard.py tests/admission/test_guard.py \
  tests/security/test_uses_by_policy.py tests/security/test_guard_parameters.py tests/security/test_places.py
ATTACKS_upstream = tests/security/test_answers.py tests/security/test_plans.py core/tests/runtime/test_event_bounds.py \
  testing/tests/test_conformance_hostile.py
ATTACKS_registry = catalogue/tests/test_registry.py catalogue/tests/test_scan.py catalogue/tests/test_any_input.py
ATTACKS_hub = downloader/tests/test_isolated.py downloader/tests/test_marker.py downloader/tests/test_tree.py \
  downloader/tests/test_faults.py
ATTACKS_model-server = core/tests/view/test_answers.py core/tests/view/test_engine_metrics.py tests/view/test_chat.py
ATTACKS_network = core/tests/webhook/test_hostile_clients.py core/tests/process/test_probes.py
FAMILY = tenant tokens upstream registry hub model-server network

.PHONY: attack
attack: sync  ## Attack the product as each of those who could: make attack [FAMILY=tokens]
	@$(RUN) pytest $(IN_PROCESSES) -m 'not ($(ASKED_FOR))' $(foreach family,$(FAMILY),$(ATTACKS_$(family)))

RAYS = $(patsubst providers/kuberay/tests/ray/environments/%.txt,%,$(wildcard providers/kuberay/tests/ray/environments/*.txt))

.PHONY: rays
rays: sync
	@for release in $(RAYS); do \
	  $(UV) venv --quiet --allow-existing --python $(PYTHON) .airunway/ray-$$release && \
	  $(UV) pip install --quiet --python .airunway/ray-$$release/bin/python \
	    -r providers/kuberay/tests/ray/environments/$$release.txt || exit 1; \
	done

.PHONY: test-ray
test-ray: rays  ## Hold what is written for KubeRay against Ray's own builders (fetches four releases of Ray: some 1.5 GB).
	@$(RUN) pytest -q providers/kuberay/tests/ray/test_builds.py

.PHONY: test-ray-live
test-ray-live: rays  ## Run real Ray behind the simulated KubeRay, with a played engine.
	@$(RUN) pytest -q -m ray tests/kuberay/test_live.py

.PHONY: e2e
e2e: sync  ## Live through every provider's samples on a cluster of yours: make e2e KUBECONFIG=...
	@test -n "$(KUBECONFIG)" || { echo "make e2e KUBECONFIG=... : name the cluster (docs/e2e.md)" >&2; exit 1; }
	@$(RUN) python -m airunway_testing.e2e --kubeconfig "$(KUBECONFIG)" $(E2E)

.PHONY: lint
lint: sync  ## Formatting, linting, types, direction of imports.
	@$(RUN) ruff format --check --quiet .
	@$(RUN) ruff check --quiet .
	@$(RUN) mypy
	@$(RUN) lint-imports --no-cache

.PHONY: format
format: sync  ## Put all code into its format.
	@$(RUN) ruff format --quiet .
	@$(RUN) ruff check --quiet --fix .

.PHONY: generate
generate: sync  ## Write the generated files (CRDs, charts, dashboard, alerts, reference pages) anew.
	@$(RUN) airunway crds --write core/src/airunway/api/crds
	@$(RUN) python -m tools.observability.generate
	@$(RUN) python -m tools.rights
	@$(RUN) python -m tools.home
	@$(RUN) python -m tools.charts.generate
	@$(RUN) python -m tools.fields_page
	@$(RUN) python -m tools.matrix_page
	@$(RUN) python -m tools.doctor_page
	@$(RUN) python -m tools.rules_section
	@$(RUN) python -m tools.sdk_reference
	@$(RUN) python -m tools.conditions_page
	@$(RUN) python -m tools.cache_faults_page
	@$(RUN) python -m tools.cli_page
	@$(RUN) python -m tools.view_page

.PHONY: wheels
wheels: sync  ## Build the wheels of all distributions into dist/: make wheels REGISTRY=registry.internal/team
	@$(RUN) python -m tools.wheels $(if $(REGISTRY),--registry $(REGISTRY))

.PHONY: images
images: sync  ## Build the container images as the charts name them (root, buildah): make images REGISTRY=registry.internal/team
	@$(RUN) python -m tools.images.build $(if $(REGISTRY),--registry $(REGISTRY)) $(IMAGES_FLAGS)

.PHONY: images-lock
images-lock: sync  ## Write down which of Debian's packages are in the images today (images/base.lock.yaml).
	@$(RUN) python -m tools.images.lock $(if $(MIRROR),--mirror $(MIRROR))

.PHONY: release
release: sync  ## Everything of a release in dist/: make release VERSION=0.1.0 REGISTRY=registry.internal/team SIGNING_KEY=FILE
	@$(RUN) python -m tools.release $(VERSION) $(if $(REGISTRY),--registry $(REGISTRY)) \
	  $(if $(SIGNING_KEY),--signing-key $(SIGNING_KEY)) $(if $(MIRROR),--mirror $(MIRROR)) $(RELEASE_FLAGS)

.PHONY: publish
publish: sync  ## Bring a release's images and charts to a registry (skopeo): make publish VERSION=0.1.0 REGISTRY=registry.internal/team
	@$(RUN) python -m tools.publish dist/release-$(VERSION) --registry $(REGISTRY) $(PUBLISH_FLAGS)

.PHONY: site
site: sync  ## Build the documentation as a web site with a search that works without a server: make site [VERSION=0.1.0]
	@$(RUN) python -m tools.site $(VERSION)
