#!/usr/bin/env bash
# Formats the tracked C++ and CUDA files, or only checks them.
# Usage: tools/format.sh [--check]
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "${1:-}" = --check ]; then mode="--dry-run -Werror"; else mode=-i; fi
git ls-files -z '*.h' '*.cpp' '*.cu' ':!tests/toolkits' | xargs -0 -n 40 clang-format-14 $mode
