"""How many requests may be sent in a minute."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

_WINDOW_SECONDS = 60.0


class Budget:
    """At most `per_minute` requests in any 60 seconds. Threads may share it.

    A window that slides, rather than a bucket that starts full and refills: that one lets twice as many
    through in its first minute.
    """

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._taken: deque[float] = deque()
        self._lock = threading.Lock()

    def take(self) -> float:
        """Take one request from the budget: 0, or the seconds until there is one, where none was taken."""
        with self._lock:
            now = self._clock()
            while self._taken and self._taken[0] <= now - _WINDOW_SECONDS:
                self._taken.popleft()
            if len(self._taken) < self._per_minute:
                self._taken.append(now)
                return 0.0
            return self._taken[0] + _WINDOW_SECONDS - now
