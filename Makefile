# A thin front for CMake. `make demo` and `make test` do everything on a fresh machine. Each target
# installs what it needs, and nothing else, and says so first.
BUILD ?= build/$(or $(SAN),$(if $(filter clang%,$(CC)),clang,release))
PREFIX ?= /usr/local
PYTHON ?= yes

# $(call configure,OPTIONS): the build folder keeps what was switched on before, so `make` after
# `make test` stays cheap. Of the log the errors are shown where CMake fails.
configure = scripts/need.sh cmake && mkdir -p $(BUILD) && { $(if $(SAN),scripts/sanitize.sh $(SAN),cmake -S . -B $(BUILD) -G Ninja) \
	-DCMAKE_INSTALL_PREFIX=$(PREFIX) $(1) > $(BUILD)/configure.log 2>&1 || \
	{ sed -n '/^CMake Error/,$$p' $(BUILD)/configure.log | grep . || cat $(BUILD)/configure.log; exit 1; } >&2; }

.PHONY: all everything demo test tests one torch bench claims front attacks check fresh fuzz soak format install deb clean

all: packages-build $(if $(filter clang%,$(CC)),packages-clang) ## the program and the libraries [CC=clang CXX=clang++]
	@$(call configure)
	@cmake --build $(BUILD)

everything: packages-build packages-test $(if $(filter clang%,$(CC)),packages-clang) ## program, tests and benchmarks, warnings are errors [CC=clang CXX=clang++]
	@$(call configure,-DDILOCO_TESTS=ON -DDILOCO_BENCH=ON -DDILOCO_WERROR=ON)
	@cmake --build $(BUILD)

packages-%:
	@scripts/packages.sh $*

demo: packages-build ## train four replicas on English text and compare [DEMO_ROUNDS=56]
	@$(call configure)
	@[ -e $(BUILD)/diloco ] || echo "demo: the program is built first, in about a minute on 2 cores; then it trains three runs$(if $(DEMO_ROUNDS),, in about 90 seconds)"
	@cmake --build $(BUILD) --target diloco
	@examples/demo.sh $(BUILD)/diloco

tests: packages-build packages-test $(if $(SAN),packages-check) # build them
	@scripts/need.sh python3
	@$(call configure,-DDILOCO_TESTS=ON)
	@cmake --build $(BUILD)

test: packages-build packages-test packages-gpu packages-servers packages-launch $(if $(filter yes,$(PYTHON)),packages-python) $(if $(filter yes,$(BROWSER)),packages-browser) ## every test this machine can run [SAN=address|thread] [PYTHON=no: without PyTorch] [BROWSER=yes: with Chromium]
	@$(MAKE) --no-print-directory tests
	@scripts/test.sh $(BUILD)

one: packages-build packages-test ## one test program, or the cases of it with this in their names: make one T=protocol_machine_test [CASE=late]
	@$(call configure,-DDILOCO_TESTS=ON)
	@cmake --build $(BUILD) --target $(T)
	@$(BUILD)/$(T) $(if $(CASE),'*$(CASE)*')

torch: packages-python ## build/venv with torch, its trainers and torchft, which the tests of the Python package use
	@scripts/need.sh python3

bench: packages-build ## what is measured, against what: bench/*.md
	@$(call configure,-DDILOCO_BENCH=ON)
	@cmake --build $(BUILD)
	@bench/run.sh $(BUILD)

claims: all ## what the papers say, tried here: make claims DATA=folder-of-texts [FLAGS=--overnight]
	@python3 bench/claims/claims.py $(BUILD)/diloco $(if $(DATA),--data $(DATA)) --out build/claims $(FLAGS)

front: all ## bytes at equal loss: make front DATA=folder-of-texts [FLAGS=--overnight]
	@python3 bench/front/front.py $(BUILD)/diloco $(if $(DATA),--data $(DATA)) --out build/front $(FLAGS)

attacks: tests ## what members that lie can do: make attacks DATA=folder-of-texts MNIST=folder [FLAGS=--hours=1]
	@python3 bench/attacks/attacks.py $(BUILD)/diloco $(BUILD)/tests/hostile.so $(if $(DATA),--data $(DATA)) $(if $(MNIST),--mnist $(MNIST)) --out build/attacks $(FLAGS)

fresh: packages-fresh $(if $(filter full image%,$(FRESH)),packages-image) $(if $(filter full,$(FRESH)),wheel) ## prove the commands above on bare machines, chroots of Debian 12 and 13 [FRESH="PIECE…", FRESH=full]
	@scripts/fresh.sh $(FRESH)

fuzz: packages-build packages-check ## ten minutes for every parser of outside bytes
	@scripts/fuzz.sh -max_total_time=$${FUZZ_SECONDS:-600}

soak: packages-build packages-test packages-check packages-deb packages-wheel packages-fresh packages-image tests ## for as long as it may take: the whole matrix, fuzzing, simulations
	@scripts/soak.sh $(BUILD)

check: packages-build packages-test packages-check ## formatting, linting, both compilers, sanitizers
	@scripts/check.sh

format: packages-check
	@git ls-files '*.c' '*.h' '*.cc' | xargs clang-format -i

install: all
	@cmake --install $(BUILD) --prefix $(PREFIX)

deb: packages-deb all
	@cmake --build $(BUILD) --target deb

clean:
	@rm -rf build

.PHONY: wheel sdist release image docs

wheel: packages-wheel ## a wheel for every Linux with glibc 2.28 or later, into build/wheel
	@rm -rf build/wheel && scripts/wheel/wheel.sh build/wheel

sdist: ## the source distribution for pip, into build/sdist
	@scripts/need.sh python3 && mkdir -p build/sdist
	@cd python && python3 -c 'import _build; print("build/sdist/" + _build.build_sdist("../build/sdist"))'

release: packages-build packages-deb packages-wheel ## all files of a release, into build/release-VERSION: make release VERSION=x
	@scripts/release.sh "$(VERSION)"

image: ## the container image diloco, by podman, buildah or docker
	@scripts/image.sh

# The site's tools are in a virtual environment of its own, from PyPI; mermaid draws the diagrams, from npm.
docs: ## the documentation as a site with search, into build/docs/site, with every link checked
	@scripts/need.sh python3
	@scripts/docs.sh build/docs
