"""A chat in the terminal with a running server, with nothing but Python's standard library.

python serve/examples/chat.py [http://127.0.0.1:8000]     RANKER_API_KEY holds the key where one is needed
"""

import json
import os
import sys
import urllib.error
import urllib.request

URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"


def post(path: str, body: dict) -> dict:
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get("RANKER_API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    request = urllib.request.Request(URL + path, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=15) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        # Every error has this shape. Wait and try again after a 429 or 503: Retry-After says how long.
        sys.exit(json.load(error)["error"]["message"])


def main() -> None:
    turns: list[str] = []
    print("Talk, or: !report (the last reply was unethical), !edit BETTER REPLY. Ctrl+D ends.")
    reply: dict = {}
    for line in map(str.strip, sys.stdin):
        if line.startswith(("!report", "!edit ")) and reply:
            about = {"context": turns[:-1], "text": reply["text"], "candidate_id": reply["id"]}
            about["pool"] = reply["pool"]
            if line.startswith("!edit "):
                post("/v1/feedback", {"kind": "edit", "edited_text": line.removeprefix("!edit "), **about})
            else:
                post("/v1/feedback", {"kind": "report", **about})
            print("(kept, thank you)")
        elif line:
            turns.append(line)
            reply = post("/v1/respond", {"context": turns[-20:]})
            turns.append(reply["text"])
            print(f"{reply['text']}   [{reply['source']}; you sound {reply['emotion'] or 'neutral'}]")


if __name__ == "__main__":
    main()
