"""A hint writer outside the run: one call of an OpenAI-compatible chat service."""

import http.client
import json
import logging
import os
import time
import urllib.error
import urllib.request
from collections.abc import Sequence

from spade_jax import config

KEY = "SPADE_HINT_API_KEY"
"""Environment variable with the service's key; without it no key is sent."""
TIMEOUT = 120.0  # seconds of one call
PAUSES = (1.0, 2.0)  # seconds before the second and the third try


def ask(messages: Sequence[dict[str, str]], settings: config.Hints) -> str:
    """The service's reply; '' where it gave none in three tries, which is logged."""
    body = {
        "model": settings.endpoint_model,
        "messages": list(messages),
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "max_tokens": settings.max_tokens,
    }
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get(KEY):
        headers["Authorization"] = f"Bearer {key}"
    request = urllib.request.Request(
        settings.endpoint.rstrip("/") + "/chat/completions", json.dumps(body).encode(), headers
    )
    reason = ""
    for pause in (0.0, *PAUSES):
        time.sleep(pause)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
                choice = json.load(answer)["choices"][0]
            if choice["finish_reason"] == "stop":
                return str(choice["message"]["content"]).strip()
            reason = f"the reply ended by {choice['finish_reason']!r}"
        except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError) as error:
            reason = f"{type(error).__name__}: {error}"
    logging.warning("no hint from %s: %s", settings.endpoint, reason)
    return ""
