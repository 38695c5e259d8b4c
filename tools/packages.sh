#!/usr/bin/env bash
# Installs the packages that are missing; their names are the same on Debian 12 and Ubuntu 24.04.
# Usage: tools/packages.sh [build] [check]     build: to build, run and test (default); check: what CI uses besides
set -euo pipefail

build="g++ cmake ninja-build ccache git libeigen3-dev libopenblas-openmp-dev libyaml-cpp-dev libspdlog-dev libcli11-dev
  nlohmann-json3-dev libpng-dev catch2 libboost-context-dev gnuplot-nox"
# One version of the style tools, since each formats and warns differently.
check="clang-format-14 clang-tidy-14 libomp-14-dev clang libclang-rt-dev"

wanted=""
for set in "${@:-build}"; do
  case $set in
    build) wanted="$wanted $build" ;;
    check) wanted="$wanted $check" ;;
    *) echo "packages.sh: '$set' is neither 'build' nor 'check'" >&2; exit 2 ;;
  esac
done

if ! command -v apt-get >/dev/null; then
  echo "packages.sh: no apt-get here; install what corresponds to:" $wanted >&2
  exit 0
fi
missing=""
for package in $wanted; do
  state=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$state" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

sudo=""
if [ "$(id -u)" -ne 0 ]; then
  sudo=sudo
  command -v sudo >/dev/null || { echo "packages.sh: run as root: apt-get install$missing" >&2; exit 1; }
fi
echo "installing$missing"
$sudo apt-get update -q
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing
