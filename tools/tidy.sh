#!/usr/bin/env bash
# Runs clang-tidy, with the checks of .clang-tidy, on every source of a configured build.
# Usage: tools/tidy.sh [BUILD FOLDER] [FILE]...     default: build/release and all its sources
set -euo pipefail
cd "$(dirname "$0")/.."

build=${1:-build/release}
if [ $# -gt 1 ]; then
  files=$(printf '%s\n' "${@:2}")
else
  files=$(sed -n 's/^ *"file": "\(.*\)",\{0,1\}$/\1/p' "$build/compile_commands.json")
fi

check() {
  # What clang-tidy has to say about the code comes on stdout; stderr only counts suppressed warnings.
  if ! report=$(clang-tidy-14 -p "$1" --quiet --warnings-as-errors='*' --extra-arg=-Wno-unknown-warning-option "$2" 2>/dev/null); then
    printf '%s\n%s\n' "tidy: $2" "$report"
    return 1
  fi
}
export -f check
printf '%s\n' "$files" | xargs -P "$(nproc)" -I{} bash -c 'check "$@"' check "$build" {}
