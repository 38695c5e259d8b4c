#!/usr/bin/env bash
# Executes every ```sh block of the README and of docs/, each with a new shell in the root of a built checkout.
# A word behind `sh` says otherwise:
#   data     needs the UEA archive: executed where PRIMAL_TEST_DATA is set, whose uea/ stands in as data/Multivariate_ts
#   ci       is a step of .ci/run by itself: checked to stand there word for word
#   no-run   not executed: takes too long, or needs what a build machine lacks
# Usage: tools/check_docs.sh [FILE]...
set -euo pipefail
cd "$(dirname "$0")/.."

limit=300  # seconds for a block
work=$(mktemp -d)
archive=data/Multivariate_ts
cleanup() {
  rm -rf "$work"
  [ -z "${linked:-}" ] || rm -f "$archive"
}
trap cleanup EXIT

if [ -n "${PRIMAL_TEST_DATA:-}" ] && [ ! -e "$archive" ]; then
  ln -s "$PRIMAL_TEST_DATA/uea" "$archive"
  linked=yes
fi

# Writes block NUMBER of a file to $work/NUMBER and prints 'NUMBER LINE TAG'.
extract() {
  awk -v folder="$work" '
    /^```/ && inside { inside = 0; close(file); next }
    /^```/ { inside = 1; file = "/dev/null"
             if ($0 ~ /^```sh( |$)/) { n++; file = folder "/" n; print n, NR, ($2 == "" ? "run" : $2) }
             printf "" > file; next }
    inside { print > file }' "$1"
}

passed=0 failed=0 skipped=0
run_block() {  # FILE LINE BLOCK
  echo "docs: $1:$2"
  sed 's/^/  $ /' "$3"
  if timeout "$limit" bash -euo pipefail "$3" </dev/null >"$work/output" 2>&1; then
    passed=$((passed + 1))
  else
    echo "docs: $1:$2: FAILED (exit $?), its last lines:"
    tail -n 30 "$work/output"
    failed=$((failed + 1))
  fi
}

[ $# -gt 0 ] || set -- README.md docs/*.md
for file in "$@"; do
  while read -r number line tag; do
    block=$work/$number
    case $tag in
      run) run_block "$file" "$line" "$block" ;;
      data)
        if [ -n "${PRIMAL_TEST_DATA:-}" ]; then
          run_block "$file" "$line" "$block"
        else
          echo "docs: $file:$line: skipped: PRIMAL_TEST_DATA is not set"
          skipped=$((skipped + 1))
        fi ;;
      ci)
        while IFS= read -r command; do
          if ! grep -qF -- "$command" .ci/run; then
            echo "docs: $file:$line: FAILED: .ci/run has no '$command'"
            failed=$((failed + 1))
          fi
        done < <(sed 's/ *#.*//' "$block" | grep -v '^$') ;;
      no-run) skipped=$((skipped + 1)) ;;
      *)
        echo "docs: $file:$line: FAILED: unknown tag '$tag'"
        failed=$((failed + 1)) ;;
    esac
  done < <(extract "$file")
done
echo "docs: $passed blocks passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
