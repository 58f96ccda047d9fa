#!/bin/sh
# Takes out of what `make install` wrote below $1 what a package must not have, or what differs between two builds.
set -eu
cd "$1/usr"
find lib/rspdns -name __pycache__ -prune -exec rm -rf {} +
rm -rf lib/rspdns/include lib/rspdns/installed-files lib/rspdns/requirements.txt lib/rspdns/share lib/rspdns/.gitignore
find lib/rspdns/bin -mindepth 1 ! -name 'python*' ! -name 'rspdns*' ! -name 'pp?-agent' -delete
cd lib/rspdns/lib/python3*/site-packages
rm -rf pip pip-* setuptools setuptools-* _distutils_hack distutils-precedence.pth pkg_resources
# The environment is the package's: pip has no business in it. RECORD and direct_url.json name the folder of the build.
rm -f ./*.dist-info/RECORD ./*.dist-info/INSTALLER ./*.dist-info/REQUESTED ./*.dist-info/direct_url.json
rm -rf numpy/tests numpy/*/tests numpy/_core/tests matplotlib/tests mpl_toolkits/*/tests
find . -type f ! -name ppu-guard -exec chmod 644 {} +
cd ../../../../..
# Each Debian program's place for it, and the examples by package.
if [ -d share/zsh/site-functions ]; then mv share/zsh/site-functions share/zsh/vendor-completions; fi
mv ../etc/rspdns/rspdns.toml.example ../etc/rspdns/rspdns.toml
mv ../etc/ppe-agent/agent.toml.example ../etc/ppe-agent/agent.toml
mv ../etc/ppu-agent/ppu-agent.toml.example ../etc/ppu-agent/ppu-agent.toml
# Configured by the administrator alone: without it the service does not start.
mkdir -p share/doc/rspdns-fastpath/examples
mv ../etc/rspdns/fastpath.env.example share/doc/rspdns-fastpath/examples/fastpath.env
