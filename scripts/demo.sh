#!/bin/sh
# The main job: ASCII art questions to a small language model on this machine, beside guessing and a constant answer.
set -eu
report=${ASSAY_DEMO_REPORT:-asciieval-report.html}
exec .venv/bin/assay run asciieval --tasks text --limit "${ASSAY_DEMO_LIMIT:-60}" \
  -o max_tokens=8 -o longest=600 \
  -s local:smollm2 -s method:random -s method:constant --report "$report"
