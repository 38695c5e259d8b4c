#!/usr/bin/env bash
# Fuzzes the readers under ASan and UBSan, each for the given time, starting from the seeds in tests/fuzz/seeds. What
# libFuzzer learns is kept in build/fuzz/corpus, an input that breaks a reader in build/fuzz/findings.
# Usage: tools/fuzz.sh [SECONDS] [ts|config|safetensors|listops|text|pairs|cifar|pathfinder|png|tokens]...     default: 60 seconds, all
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-60}
readers=("${@:2}")
[ ${#readers[@]} -gt 0 ] || readers=(ts config safetensors listops text pairs cifar pathfinder png tokens)

tools/packages.sh build check
cmake --preset fuzz
cmake --build --preset fuzz --target "${readers[@]/#/fuzz-}"

fuzz() {
  reader=$1
  corpus=build/fuzz/corpus/$reader findings=build/fuzz/findings
  mkdir -p "$corpus" "$findings"
  log=$findings/$reader.log
  dictionary=tests/fuzz/$reader.dict
  [ -f "$dictionary" ] || dictionary=
  if build/fuzz/bin/fuzz-"$reader" "$corpus" tests/fuzz/seeds/"$reader" ${dictionary:+-dict="$dictionary"} \
      -max_total_time="$2" -timeout=10 -max_len=65536 -print_final_stats=1 \
      -artifact_prefix="$findings/$reader-" >"$log" 2>&1; then
    echo "fuzz: $reader: nothing found in $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs, $2 s"
  else
    echo "fuzz: $reader: FAILED"
    tail -n 60 "$log"
    return 1
  fi
}
export -f fuzz
printf '%s\n' "${readers[@]}" | xargs -P "$(nproc)" -I{} bash -euo pipefail -c 'fuzz "$@"' fuzz {} "$seconds"
