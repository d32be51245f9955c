# The commands of this repository. `make help` lists them.
PYTHON := .venv/bin/python
SYSTEM_PYTHON := /usr/bin/python3
MAKEFLAGS += --no-print-directory

.PHONY: help demo test machine environment unit lint generate verify requirements cluster-up clean-cluster \
	image-operator image-trainer-cpu fuzz-api

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-18s %s\n", $$1, $$2}'

demo: machine environment ## set everything up and run examples/01-arithmetic-grpo.yaml to its end
	@$(PYTHON) e2e/demo.py

test: machine environment ## set up what is needed and pass all tests
	@$(PYTHON) e2e/check.py

machine: ## say what would keep the embedded cluster from coming up, before anything is started
	@[ -n "$$KUBECONFIG" ] || PYTHONPATH=e2e $(SYSTEM_PYTHON) -m cluster check

environment: ## make .venv with everything pinned in requirements/
	@$(SYSTEM_PYTHON) e2e/environment.py

unit: environment ## the unit tests alone
	@$(PYTHON) -m pytest -q -n 2 --dist worksteal -m "not apiserver and not cluster and not slow"

fuzz-api: machine environment ## 2,000 random jobs before the real API server and the offline validator: they must agree
	@$(PYTHON) e2e/fuzz_api.py --count 2000

lint: environment ## style, types and import contracts
	@$(PYTHON) e2e/check.py lint

generate: environment ## write the CRDs, the schemas and the reference pages
	@$(PYTHON) tools/generate.py
	@$(PYTHON) tools/values_schema.py

verify: environment ## fail where something generated is out of date
	@$(PYTHON) tools/generate.py --check
	@$(PYTHON) tools/values_schema.py --check
	@$(PYTHON) tools/compile_requirements.py --check

requirements: environment ## pin the distributions' dependencies anew
	@$(PYTHON) tools/compile_requirements.py

cluster-up: environment ## the embedded Kubernetes of two nodes, without the operator
	@$(PYTHON) -m cluster up

clean-cluster: ## end the embedded cluster; nothing of it is left but caches
	@PYTHONPATH=e2e $(SYSTEM_PYTHON) -m cluster down

image-operator: environment ## build the operator's image into an archive below out/
	@$(PYTHON) e2e/build_image.py operator

image-trainer-cpu: environment ## build the trainer's image for CPUs into an archive below out/; needs 20 GB of disk
	@$(PYTHON) e2e/build_image.py trainer-cpu
