#!/usr/bin/env bash
# Builds the Python wheel and the sdist into a folder: wheel.sh FOLDER. Two builds of one commit give the same bytes.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:?usage: wheel.sh FOLDER}
setup/setup.sh lint
mkdir -p "$folder"
rm -f "$folder"/rspdns-*.whl "$folder"/rspdns-*.tar.gz
SOURCE_DATE_EPOCH=$(packaging/version.sh --date)
export SOURCE_DATE_EPOCH
umask 022
# From the files of the repository alone: ppu-guard, a program of this machine's architecture, is no part of a wheel for all.
here=$PWD
folder=$(cd "$folder" && pwd)
source=$(mktemp -d)
trap 'rm -rf "$source"' EXIT
git ls-files -z | xargs -0 cp --parents --no-dereference --preserve=mode,timestamps -t "$source"
pace=ppu-agent/ppu_agent/kernel/pace.bpf.o
[ ! -f "$pace" ] || cp -p "$pace" "$source/$pace"
(cd "$source" && "$here/.venv/bin/python" -m hatchling build --target wheel --target sdist --directory "$folder" 2>&1 | sed -n '/rror/p')
ls -1 "$folder"/rspdns-*
