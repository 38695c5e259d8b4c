#!/usr/bin/env bash
# From a fresh clone to a trained model: packages, build, a generated data set, training, the test accuracy.
# Usage: tools/quickstart.sh [--set key=value]...     further arguments go to primal-train
set -euo pipefail
cd "$(dirname "$0")/.."

tools/packages.sh build
cmake --preset release
cmake --build --preset release --target programs
build/release/bin/primal-data generate uea --output data/generated
build/release/bin/primal-train --config experiments/quickstart.yaml --output runs/quickstart --overwrite "$@"

sed -n 's/.*"last_test_accuracy": *\([0-9.eE+-]*\).*/\1/p' runs/quickstart/result.json | head -n 1 |
  awk '{ printf "quickstart: test accuracy %.1f %%\n", 100 * $1 }'
