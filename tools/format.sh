#!/usr/bin/env bash
# Formats the C++ and CUDA files that git tracks or would, or only checks them.
# Usage: tools/format.sh [--check]
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "${1:-}" = --check ]; then mode="--dry-run -Werror"; else mode=-i; fi
git ls-files -z --cached --others --exclude-standard '*.h' '*.cpp' '*.cu' ':!tests/toolkits' | xargs -0 -n 40 clang-format-14 $mode
