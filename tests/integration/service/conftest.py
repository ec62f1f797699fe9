"""The tests of this folder need the extra `serve`."""

import tests.support.service.visiting  # noqa: F401
