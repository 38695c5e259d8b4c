#!/usr/bin/env bash
# Builds and runs all tests.
# Usage: tools/test.sh [PRESET] [CTEST ARGUMENT]...     PRESET: release (default) or debug (ASan and UBSan)
set -euo pipefail
cd "$(dirname "$0")/.."

preset=${1:-release}
tools/packages.sh build
cmake --preset "$preset"
cmake --build --preset "$preset"
ctest --preset "$preset" -j "$(nproc)" "${@:2}"
