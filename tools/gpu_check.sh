#!/usr/bin/env bash
# Checks the CUDA backend on a machine with a GPU: kernels against the CPU, memory errors, a training job and its speed on
# both devices. Ends within eight minutes; the last lines are a table.
# Usage: tools/gpu_check.sh pack    builds for sm_90 and any x86-64 CPU, with the libraries it needs, in build/gpu-check
#        tools/gpu_check.sh         runs that build, or makes it first where the packages to build are installed
set -euo pipefail
cd "$(dirname "$0")/.."

build=build/gpu-check
results=${OUT:-$build/results}
table=""

pack() {
  cmake --preset cuda -B "$build" -DPRIMAL_NATIVE=OFF -DCMAKE_CUDA_ARCHITECTURES=90
  cmake --build "$build" --target programs primal-tests
  mkdir -p "$build/lib"
  # What a machine with the CUDA Toolkit may lack: everything but the C library, the driver and CUDA itself.
  ldd "$build"/bin/* | awk '$2 == "=>" && $3 ~ "^/" { print $3 }' | sort -u |
    grep -vE '/(libc|libm|libdl|libpthread|librt|libcuda|libcudart|libcublas|libcublasLt|libcudnn)[.]' |
    xargs -I{} cp -L {} "$build/lib/"
}

row() { table+=$(printf '%-28s %s' "$1" "$2")$'\n'; }

check() {  # NAME SECONDS COMMAND...
  local name=$1 limit=$2 start=$SECONDS
  shift 2
  if timeout "$limit" "$@" > "$results/${name// /_}.log" 2>&1; then
    row "$name" "ok ($((SECONDS - start)) s)"
  else
    row "$name" "FAILED (exit $?, $((SECONDS - start)) s): $(tail -n 1 "$results/${name// /_}.log")"
  fi
}

figure() {  # FILE KEY: a number of a JSON file
  sed -n "s/.*\"$2\": *\\([0-9.eE+-]*\\).*/\\1/p" "$1" 2>/dev/null | head -n 1
}

if [ "${1:-}" = pack ]; then
  pack
  exit
fi
bin=$build/bin
[ -x "$bin/primal-tests" ] || pack
mkdir -p "$results"
export LD_LIBRARY_PATH=$PWD/$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

row "GPU" "$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>&1 | head -n 1)"
"$bin/primal-data" generate uea --output data/generated > "$results/generate.log"
check "op cases" 120 "$bin/primal-tests" "cuda:*"
if skipped=$(grep -h "skipped:" "$results/op_cases.log"); then row "  FAILED" "$skipped"; fi
if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck; do
    check "$tool" 90 compute-sanitizer --tool "$tool" --error-exitcode 1 "$bin/primal-train" --config experiments/quickstart.yaml \
      --device cuda --check
  done
else
  row "compute-sanitizer" "not installed"
fi
for device in cpu cuda; do
  check "train $device" 60 "$bin/primal-train" --config experiments/quickstart.yaml --device "$device" --set train.epochs=10 \
    --output "$results/run-$device" --overwrite
  row "  test accuracy, loss" "$(figure "$results/run-$device/result.json" last_test_accuracy), $(
    grep '"event":"epoch"' "$results/run-$device/metrics.jsonl" 2>/dev/null | tail -n 1 | sed 's/.*"loss":\([^,]*\),.*/\1/')"
done
for recipe in canonical primal primal_plus; do
  for device in cpu cuda; do
    check "step $recipe $device" 40 "$bin/primal-bench" step --config experiments/uea/japanese_vowels.yaml \
      --set "recipe=$recipe" --set "device=$device" --random length=405,channels=61,classes=2 --steps 5 \
      --json "$results/step-$device-$recipe.json"
    row "  median ms" "$(figure "$results/step-$device-$recipe.json" median)"
  done
done
printf '\n%s' "$table"
! grep -q FAILED <<< "$table"
