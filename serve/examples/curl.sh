#!/bin/sh
# The API by hand: sh serve/examples/curl.sh [http://127.0.0.1:8000]
# RANKER_API_KEY holds the key where one is needed.
set -eu
url=${1:-http://127.0.0.1:8000}

call() {
    curl --fail-with-body --silent --show-error --max-time 15 \
        -H "Authorization: Bearer ${RANKER_API_KEY:-none}" -H "Content-Type: application/json" "$@"
    echo
}

call "$url/v1/pools"
call "$url/v1/rank" -d '{"context": ["I finally got promoted at work!"], "k": 3}'
call "$url/v1/respond" -d '{"context": ["My dog died.", "I am so sorry.", "He was fourteen."]}'
call "$url/v1/score" -d '{"context": "I lost my keys.", "candidates": ["Where were you last?", "Congratulations!"]}'
