"""A minimal synchronous client for starting up: readiness, nodes, probes. Everything else uses `airunway.kube` or
kubectl.
"""

import http.client
import json
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from airunway.resource import Resource
from airunway_testing.controlplane.certificates import KeyPair


@dataclass(frozen=True, kw_only=True)
class Reply:
    """An answer: `status` 0 means that the server could not be reached; `text` is what came, `body` the same decoded
    if it was JSON.
    """

    status: int
    text: str
    body: Resource = field(default_factory=dict)


class Requests:
    """Requests to the API server on a loopback port, with a client certificate."""

    def __init__(self, *, port: int, authority: Path, client: KeyPair) -> None:
        self._port = port
        self._tls = ssl.create_default_context(cafile=str(authority))
        self._tls.load_cert_chain(str(client.certificate), str(client.key))

    def send(
        self, method: str, path: str, body: Resource | None = None, *, content_type: str = "application/json"
    ) -> Reply:
        """Make one request on a connection of its own."""
        connection = http.client.HTTPSConnection("127.0.0.1", self._port, context=self._tls, timeout=10)
        try:
            payload = None if body is None else json.dumps(body)
            connection.request(method, path, payload, {"Content-Type": content_type, "Accept": "application/json, */*"})
            response = connection.getresponse()
            text = response.read().decode()
        except (OSError, http.client.HTTPException) as error:
            return Reply(status=0, text=str(error))
        finally:
            connection.close()
        try:
            decoded = json.loads(text)
        except ValueError:
            decoded = {}
        return Reply(status=response.status, text=text, body=decoded if isinstance(decoded, dict) else {})
