"""Moto's stand-ins for Amazon's services, behind a server that keeps connections open."""

import sys

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from waitress import serve

serve(
    DomainDispatcherApplication(create_backend_app),
    host="127.0.0.1",
    port=int(sys.argv[1]),
    threads=16,
    max_request_body_size=1 << 26,
)
