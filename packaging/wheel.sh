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
.venv/bin/python -m hatchling build --target wheel --target sdist --directory "$folder" 2>&1 | sed -n '/rror/p'
ls -1 "$folder"/rspdns-*
