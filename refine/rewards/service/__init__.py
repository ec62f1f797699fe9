"""The judge as an HTTP service: `prill serve`, or `await serve(prill.reward("vlm", model=…))`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.lazy import lazily

if TYPE_CHECKING:
    from prill.refine.rewards.service.app import Service
    from prill.refine.rewards.service.serving import make_service
    from prill.refine.rewards.service.serving import serve_reward as serve
    from prill.refine.rewards.service.spec import ServiceSpec

__all__ = ["Service", "ServiceSpec", "make_service", "serve"]
__getattr__, __dir__ = lazily(__name__)
