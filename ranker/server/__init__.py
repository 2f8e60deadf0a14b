"""The ranker over HTTP: needs the extra `serve`."""

from ranker.server.app import create_app, openapi_json
from ranker.server.running import run_server
from ranker.server.settings import ServerSettings

__all__ = ["ServerSettings", "create_app", "openapi_json", "run_server"]
