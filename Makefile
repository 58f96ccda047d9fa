# make demo   everything: installs what is missing, builds, starts the lab, kills an application server, shows DNS converge
# make test   everything: installs what is missing, builds, runs the tests
# make test-kernel   on a kernel's own SCTP, in User-Mode Linux: both stacks on one wire, which `make test` runs, too; and conformance, the gate, ppu-agent's
#             via, RED and CHOKe of the emulated link, and the whole demo there, nine minutes that it leaves out
# make test-labs   quick runs of the labs that `make test` leaves out, since others of its tests hold what they show: bench, cells, chaos, discover, ims with
#             loss and compare, 3,000 sessions of DNS Push, resolvers, secondaries, SCTP's benchmark; ten minutes
# make test-site   builds the documentation, and looks at every page in Chromium: at 1400 px, at a phone's width, in the dark; some minutes
# make test-how-to   pastes the pages of docs/how-to into hosts under systemd, in namespaces; every service must then say that all is well; half an hour
# make test-lksctp   lksctp-tools' own test suite (fetched as Debian's source package) on sctpd and on a kernel's SCTP
# make test-fastpath-kernel   the BPF programs of the fast path and of ppu-guard on the kernel of this Debian release (12: Linux 6.1), in QEMU; both are fetched, not installed
# make bench  speed and size: queries per second beside other name servers, changes, 10,000 PEs; BENCH_OPTIONS='--quick', '--html FILE'
# make soak   SOAK_SCENARIOS=10000 more simulated scenarios on all processors (hours; what is done stays when it is interrupted), added to
#             docs/results/soak.jsonl and docs/results/simulated.md; needs no root
# make test-determinism    the same simulated scenarios with another Python: the same bytes? PYTHON=python3.13
# make mutants    breaks MUTANTS=300 rules of the product, one at a time, and writes docs/results/mutants.md: does a simulated scenario notice it?
# make results    runs the labs and writes docs/results from them (hours, on an idle machine); RESULTS='faults speed' for some pages
#             sctp-userland/ and ppu-agent/guard/ are products beside this one: `make -C sctp-userland test` (or bench), and the same of ppu-agent/guard
# make fuzz   fuzzes sctp-userland, ppu-guard and the registrars' gate, FUZZ_SECONDS=300 for each of four fuzzers
# make lint   ruff, mypy, the direction of imports, how sentences begin, names, blocks of the documentation; needs neither root nor the Debian packages
# make docs   the documentation as a site in build/site; links are checked. REPOSITORY_URL=https://...: each page links to the repository and to its source
# make man    writes the man pages of every command to build/man (MAN=folder: elsewhere)
# make install    for production: /opt/rspdns, units, man pages, completion (docs/how-to/install.md); DESTDIR, PREFIX, SCTP_USERLAND=yes, FASTPATH=yes
# make deb    Debian packages for Debian 12 and 13, each built in a root of its own, into build/packages (root); SUITES='bookworm';
#             ARCHITECTURE=arm64: cross-built, into build/packages/SUITE-arm64
# make wheel  Python wheel and sdist, into build/dist
# make release SIGN_KEY=FILE APT_KEY=FILE   all that a host would serve, into build/release: site, apt repository, images, wheel, checksums (packaging/README.md)
# make test-release   the same; then installs by an apt line in fresh roots of Debian 12 and 13, and upgrades from there; half an hour and more
# make images  container images with these packages (Debian 13), into build/images (root)
# make test-images  builds the images, runs each, and the whole chain of packaging/compose, in a network namespace
# make test-packages  builds the Debian packages (SUITES='bookworm': one release's); installs, upgrades (UPGRADE_FROM=REVISION, or a folder that
#             `make release` made, with its APT_KEY; default: the last tag), removes and purges them in fresh roots under systemd
# make test-arm64  cross-builds the packages for arm64 (Debian 13; SUITE=bookworm: 12), then installs and starts them in an emulated root
# make test-reproducible  builds wheel, sdist and the Debian packages twice and compares their bytes (SUITES='bookworm')
# make test-wheel  builds the wheel; installs it with each extra by pip, and by pipx
# make test-ansible  runs ansible-lint, and the role twice against a fresh Debian under systemd (SUITE=bookworm: Debian 12)
# make uninstall  removes that again; configuration and state stay
# make setup  installs what is missing for the tests, builds sctp-userland
# make clean  removes the virtual environment, builds and caches
# make lock   renews the pinned Python packages (versions and hashes only)
# make help   this text
.PHONY: help setup environment demo soak mutants test test-kernel test-how-to test-site test-lksctp test-fastpath-kernel bench results fuzz lint collect docs man install uninstall deb images wheel release test-release test-images test-packages test-arm64 test-reproducible test-wheel test-ansible test-determinism clean lock

BIN := .venv/bin
# The Debian release whose packages `make test-ansible` and `make test-arm64` install.
SUITE ?= trixie
# Test files run side by side: on two processors four of them wait more than they work.
WORKERS ?= 4
LEFT_OUT := --ignore-glob='*_on_a_kernel.py' --ignore-glob='*_lab_run.py' --ignore-glob='*/test_lksctp.py' --ignore-glob='*_walks.py' --ignore=tests/site
SOAK_SCENARIOS ?= 10000
MUTANTS ?= 300
PACKAGES := rserpool daemon_kit pool_user rspdns ppe_agent ppu_agent registrar_config pdns_config rspdns_lab

define NEEDS_ROOT
the tests make network namespaces and need root: sudo make test; without: make test PYTEST_OPTIONS='-m "not integration"'
endef
export NEEDS_ROOT

help:
	@sed -n '/^#/!q; s/^# //p' Makefile

setup:
	@setup/setup.sh test

demo:
	@setup/setup.sh demo
	@$(BIN)/rspdns-lab demo $(DEMO_OPTIONS)

test: setup
ifeq ($(findstring not integration,$(PYTEST_OPTIONS)),)
	@[ "$$(id -u)" -eq 0 ] || { echo "$$NEEDS_ROOT" >&2; exit 1; }
endif
	@setup/run_tests.sh -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(LEFT_OUT) $(PYTEST_OPTIONS)

test-labs: setup
	@setup/run_tests.sh -v tests/integration/test_*_lab_run.py sctp-userland/tests/test_*_lab_run.py $(PYTEST_OPTIONS)

test-kernel: setup
	@setup/run_tests.sh -v sctp-userland/tests/test_cases_on_a_kernel.py sctp-userland/tests/test_wire.py tests/integration/test_demo_on_a_kernel.py tests/integration/test_gate_on_a_kernel.py tests/labs/test_link_on_a_kernel.py tests/ppu_agent/test_via_on_a_kernel.py $(PYTEST_OPTIONS)

test-site: setup docs
	@setup/run_tests.sh -v tests/site $(PYTEST_OPTIONS)

test-how-to: setup
	@setup/run_tests.sh -v -n 2 --dist worksteal tests/integration/test_how_to_walks.py $(PYTEST_OPTIONS)

test-lksctp: setup
	@setup/run_tests.sh -v sctp-userland/tests/test_lksctp.py $(PYTEST_OPTIONS)

test-fastpath-kernel:
	@fastpath/kernel/run.sh

bench:
	@setup/setup.sh test
	@$(BIN)/rspdns-lab bench $(BENCH_OPTIONS)

soak: environment
	@$(BIN)/rspdns-lab simulate --results docs/results/soak.jsonl --scenarios $(SOAK_SCENARIOS) --jobs $$(nproc) --markdown docs/results/simulated.md

test-determinism: environment
	@setup/determinism.sh $(PYTHON)

mutants: environment
	@$(BIN)/rspdns-lab mutants --count $(MUTANTS) --jobs $$(nproc) --json docs/results/mutants.jsonl --markdown docs/results/mutants.md

results:
	@setup/setup.sh test
	@setup/results.sh $(RESULTS)

fuzz: setup
	@$(MAKE) --silent -C sctp-userland fuzz
	@$(MAKE) --silent -C ppu-agent/guard fuzz
	@$(MAKE) --silent -C registrar-config fuzz

environment:
	@setup/setup.sh lint

lint: environment
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-logo --no-cache
	@$(BIN)/python setup/prose.py
	@$(BIN)/python setup/names.py
	@$(BIN)/python setup/blocks.py
	@$(BIN)/mypy $(addprefix -p ,$(PACKAGES))
	@$(BIN)/mypy tests conftest.py
	@$(BIN)/mypy sctp-userland ppu-agent/guard

# Compiles the tests as pytest does. In a clean clone each of `make test`'s processes would.
collect: environment
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest --collect-only --quiet $(LEFT_OUT) >.setup/collect.log || { tail -20 .setup/collect.log; exit 1; }

docs: environment
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "docs: build/site/index.html; with search: $(BIN)/python -m http.server --directory build/site"

man: environment
	@$(BIN)/python setup/man_pages.py $(or $(MAN),build/man)

install uninstall: export DESTDIR := $(DESTDIR)
install uninstall: export PREFIX := $(PREFIX)
install uninstall:
	@setup/install.sh $@

deb: export ARCHITECTURE := $(ARCHITECTURE)
deb:
	@packaging/deb.sh $(SUITES)

images:
	@packaging/deb.sh trixie
	@packaging/images/build.sh

wheel:
	@packaging/wheel.sh build/dist

release test-release test-packages: export SIGN_KEY := $(SIGN_KEY)
release test-release test-packages: export APT_KEY := $(APT_KEY)
release:
	@packaging/release.sh

test-release: setup release
	@$(BIN)/pytest packaging/trial/test_release.py -v $(PYTEST_OPTIONS)
	@packaging/previous.sh build/release
	@$(BIN)/pytest packaging/trial/test_packages.py -v $(PYTEST_OPTIONS)

test-images: setup images
	@$(BIN)/pytest packaging/trial/test_images.py -v $(PYTEST_OPTIONS)

ANSIBLE := $(CURDIR)/build/ansible
test-ansible: setup
	@packaging/deb.sh $(SUITE)
	@test -x $(ANSIBLE)/bin/ansible-lint || { python3 -m venv $(ANSIBLE) && $(ANSIBLE)/bin/pip -q install -r packaging/ansible/requirements.txt; }
	@cd packaging/ansible && PATH=$(ANSIBLE)/bin:$$PATH ansible-lint --offline
	@SUITE=$(SUITE) $(BIN)/pytest packaging/trial/test_ansible.py -v $(PYTEST_OPTIONS)

test-packages: setup deb
	@SUITES='$(SUITES)' packaging/previous.sh $(UPGRADE_FROM)
	@SUITES='$(SUITES)' $(BIN)/pytest packaging/trial/test_packages.py -v $(PYTEST_OPTIONS)

test-arm64: setup
	@ARCHITECTURE=arm64 packaging/deb.sh $(SUITE)
	@SUITE=$(SUITE) $(BIN)/pytest packaging/trial/test_arm64.py -v $(PYTEST_OPTIONS)

test-reproducible:
	@packaging/reproducible.sh $(SUITES)

test-wheel: setup wheel
	@$(BIN)/pytest packaging/trial/test_wheel.py -v $(PYTEST_OPTIONS)

clean:
	@$(MAKE) --silent -C sctp-userland clean
	@$(MAKE) --silent -C ppu-agent clean
	@$(MAKE) --silent -C registrar-config clean
	@$(MAKE) --silent -C fastpath clean
	@rm -rf .venv .setup build .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

lock:
	@$(BIN)/python -m pip --quiet install pip-tools
	@$(BIN)/pip-compile --quiet --output-file setup/requirements.lock pyproject.toml
