"""A judge as an HTTP service: `prill serve`, or `serve(prill.reward("vlm", model=…), ServiceSpec(port=8700))`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.lazy import lazily

if TYPE_CHECKING:
    from prill.service.app import Service, make_service
    from prill.service.server import serve
    from prill.service.spec import ServiceSpec, read_service, service_table

__all__ = ["Service", "ServiceSpec", "make_service", "read_service", "serve", "service_table"]
_HOMES = {
    "Service": "app",
    "ServiceSpec": "spec",
    "make_service": "app",
    "read_service": "spec",
    "serve": "server",
    "service_table": "spec",
}
__getattr__, __dir__ = lazily(__name__, _HOMES)
