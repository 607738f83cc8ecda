#!/bin/sh
# Make sure that programs from Debian are there: debian.sh WHY PROGRAM:PACKAGE ...
# Installs what is missing when root, else says what to install and exits with 3.
set -eu
why=$1
shift
missing=""
for pair in "$@"; do
  command -v "${pair%%:*}" >/dev/null 2>&1 || missing="$missing ${pair#*:}"
done
[ -z "$missing" ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  # shellcheck disable=SC2086
  if apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null; then
    exit 0
  fi
fi
echo "$why: not found:$missing. On Debian run: sudo apt-get install$missing" >&2
exit 3
