#!/bin/sh
# Chromium for the browser tests: installed when root on Debian, else said how.
set -eu
command -v chromium >/dev/null 2>&1 && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null
else
  echo "The browser tests need Chromium; on Debian run: sudo apt-get install chromium" >&2
  exit 3
fi
