"""The app for any ASGI server, such as: uvicorn --app-dir serve asgi:app

Its settings are those of `ranker serve`: the file that RANKER_CONFIG names, else ranker.toml beside this
file, and RANKER_<TABLE>_<KEY> in the environment before either. Nothing is opened before the server starts.
"""

import os
from pathlib import Path

from ranker.server import ServerSettings, create_app

_file = Path(os.environ.get("RANKER_CONFIG", Path(__file__).with_name("ranker.toml")))
app = create_app(ServerSettings.read(_file))
