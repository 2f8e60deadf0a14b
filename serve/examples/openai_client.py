"""The stock OpenAI client, pointed at a running server: pip install openai

python serve/examples/openai_client.py [http://127.0.0.1:8000]
"""

import os
import sys

from openai import OpenAI

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
client = OpenAI(base_url=f"{url}/v1", api_key=os.environ.get("RANKER_API_KEY", "none"))
model = client.models.list().data[0].id

answer = client.chat.completions.create(
    model=model, messages=[{"role": "user", "content": "I finally got promoted at work!"}]
)
print(answer.choices[0].message.content)

for chunk in client.chat.completions.create(
    model=model, messages=[{"role": "user", "content": "My dog died this morning."}], stream=True
):
    print(chunk.choices[0].delta.content or "", end="", flush=True)
print()
