"""The judge as an HTTP service: `prill serve`, or `serve(prill.reward("vlm", model=…))`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.lazy import lazily

if TYPE_CHECKING:
    from prill.service.app import Service, make_service
    from prill.service.server import serve, serve_async
    from prill.service.spec import ServiceSpec

__all__ = ["Service", "ServiceSpec", "make_service", "serve", "serve_async"]
__getattr__, __dir__ = lazily(__name__)
