# The commands of this repository. `make help` lists them.
PYTHON := .venv/bin/python
SYSTEM_PYTHON := /usr/bin/python3
E2E := PYTHONPATH=e2e $(SYSTEM_PYTHON) -m rlt_e2e
MAKEFLAGS += --no-print-directory
GPU_PYTHON ?= python3
GPU_CHECK_PATH := bench:trainer:api:pod:trainer/tests:trainer/oracles
BUDGET ?= 900
IMAGES ?= operator

.PHONY: help demo check test test-long machine environment lint generate timings requirements outdated cluster-up clean-cluster \
	image-operator image-trainer-cpu image-trainer-cuda release fuzz-api explore bench-operator bench-trainer test-models chaos gpu-check gpu-bundle

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-18s %s\n", $$1, $$2}'

demo: machine environment ## set everything up and run examples/01-arithmetic-grpo.yaml to its end
	@$(PYTHON) -m rlt_e2e.demo

check: ## style, types, generated files and unit tests in about five minutes, without root
	@$(E2E).check --only lint,verify,unit

test: ## run what every change must pass, or the parts ONLY=lint,unit, or the files FILES=...
	@$(E2E).check --only "$(ONLY)" --files "$(FILES)"

test-long: ## run the rest, or the parts ONLY=chaos,hosts, or the files FILES=...; a new start skips what passed
	@$(E2E).check --suite test-long --only "$(ONLY)" --files "$(FILES)"

machine: ## check that the embedded cluster can run on this machine
	@[ -n "$$KUBECONFIG" ] || $(E2E).cluster check

environment: ## make .venv with everything pinned in requirements/
	@$(E2E).environment

explore: environment ## explore the reconciliation of a job further than the unit tests do
	@RLT_EXPLORE=deep $(PYTHON) -m pytest -q -rP -n 2 operator/tests/exploration

fuzz-api: machine environment ## 2,000 random jobs before the real API server and the offline validator: they must agree
	@$(PYTHON) -m rlt_e2e.fuzz_api --count 2000

bench-operator: machine environment ## measure the operator under load, and write the table of docs/performance.md
	@PYTHONPATH=bench $(PYTHON) -m operator_bench $(ARGUMENTS)

bench-trainer: environment ## measure the trainer's speed, all rows or ROWS=..., and write the table of docs/performance.md
	@PYTHONPATH=bench:trainer/oracles:trainer/tests $(PYTHON) -m trainer_bench --rows "$(ROWS)"

gpu-check: environment-of-gpu-check ## check the trainer on one GPU: CHECKS=..., BUDGET=900, GPU_PYTHON=python3; REHEARSE=1 on CPUs
	@$(if $(REHEARSE),PYTHONPATH=bench $(PYTHON) -m gpu_bundle.rehearse,PYTHONPATH=$(GPU_CHECK_PATH) $(GPU_PYTHON) -m gpu_check \
		--commit "$$(git describe --always --dirty)") --checks "$(CHECKS)" --budget $(BUDGET)

.PHONY: environment-of-gpu-check
environment-of-gpu-check: $(if $(REHEARSE),environment) # a machine with a GPU needs its own Python alone

gpu-bundle: environment ## write gpu-check and what it needs to out/gpu-bundle, for a machine without a package registry
	@PYTHONPATH=bench $(PYTHON) -m gpu_bundle

test-models: environment ## run the tested model families, all or FAMILIES=... and COLUMNS=..., and write their page
	@PYTHONPATH=trainer/tests:trainer/oracles $(PYTHON) trainer/oracles/families_that_train.py \
		--families "$(FAMILIES)" --columns "$(COLUMNS)"

chaos: machine environment ## inject faults into the cluster of a learning job, all or FAULTS=..., and measure its recovery
	@$(PYTHON) -m rlt_e2e.chaos --faults "$(FAULTS)"

lint: ## check style, types, import contracts, idioms, spelling, terms and documentation
	@$(E2E).check --only lint

generate: environment ## write the CRDs, the schemas and the reference pages
	@$(PYTHON) tools/generate.py
	@$(PYTHON) tools/values_schema.py

timings: ## write the tables of docs/testing.md from the last runs of the suites
	@$(PYTHON) tools/timings.py

requirements: environment ## pin the dependencies of the distributions
	@$(PYTHON) tools/compile_requirements.py

outdated: environment ## list the pins that are behind, with their changelogs
	@$(PYTHON) tools/outdated.py

cluster-up: environment ## the embedded Kubernetes of two nodes, without the operator
	@$(PYTHON) -m rlt_e2e.cluster up

clean-cluster: ## remove the embedded clusters; builds and images stay in the cache
	@$(E2E).cluster down --below $${XDG_STATE_HOME:-$$HOME/.local/state}/rlt

image-operator: environment ## build the operator's image into an archive below out/
	@$(PYTHON) -m rlt_e2e.build_image operator

release: environment ## build release VERSION=0.1.0 from its tag; push it to REGISTRY=... (docs/release.md)
	@PYTHONPATH=tools $(PYTHON) -m release --version "$(VERSION)" --homepage "$(HOMEPAGE)" --registry "$(REGISTRY)" \
		--images "$(IMAGES)" --key "$(COSIGN_KEY)"

image-trainer-cpu: environment ## build the trainer's image for CPUs into an archive below out/; needs 20 GB of disk
	@$(PYTHON) -m rlt_e2e.build_image trainer-cpu

image-trainer-cuda: environment ## build the trainer's image for NVIDIA GPUs into an archive below out/; needs 35 GB of disk
	@$(PYTHON) -m rlt_e2e.build_image trainer-cuda
