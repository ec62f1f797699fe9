"""Serves the site, with the addresses that the original service used to choose, reset and grade
scenarios (arXiv 2310.03720).

    GET /get-random-scenario?task=TASK_X  {"id": …, "details": {…}}; &seed=7 fixes the scenario
    GET /reset-scenario?scenario=ID       resets the scenario
    GET /evaluate?scenario=ID             {"metrics": [{"task_completion": …, "%complete": …}, …]};
                                          the last entry is the current state
    GET /?scenario=ID                     the first page; a cookie keeps the scenario for the others

Unlike the original's, the first three addresses require a token, so that agents cannot read the
grading.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from prill.papers.step.airline.desk.pages import ROUTES, DeskPage, DeskRequest, not_found
from prill.papers.step.airline.desk.progress import DeskState
from prill.papers.step.airline.desk.world import SCENARIOS, Scenario, scenario
from prill.served import LocalSite

if TYPE_CHECKING:
    from aiohttp import web


_COOKIE = "scenario"


class AirlineDesk(LocalSite):
    """The running site, as a context manager: `with AirlineDesk() as airline: airline.url`, or
    `async with`.

    Args:
        port: The port. 0: a free one.
        seed: Draws the bookings, flights and passengers.
        token: What the three addresses of the service want as `&token=`. None: drawn at random;
            empty: they are open, as the original's were.

    Raises:
        UsageError: The number is not a port.
    """

    _what = "airline"

    def __init__(self, *, port: int = 0, seed: int = 0, token: str | None = None) -> None:
        super().__init__(port)
        self.token = secrets.token_urlsafe(12) if token is None else token
        self._seed = seed
        self._random = Random(f"{seed} scenarios")
        self._states: dict[str, DeskState] = {}

    @property
    def environ(self) -> dict[str, str]:
        """The site's address and the token of its service, as environment variables."""
        return {"AIRLINE": self.url, "AIRLINE_TOKEN": self.token}

    def state(self, scenario_id: str) -> DeskState:
        """Returns the current state of a scenario.

        Args:
            scenario_id: Its id.

        Returns:
            The state.

        Raises:
            LookupError: There is no such scenario.
        """
        if scenario_id not in self._states:
            self._states[scenario_id] = DeskState.of(self._scenario(scenario_id), self._seed)
        return self._states[scenario_id]

    def _scenario(self, scenario_id: str) -> Scenario:
        task, _, number = scenario_id.rpartition("-")
        return scenario(task, int(number) if number.isdecimal() else -1, self._seed)

    def _applications(self) -> Sequence[web.Application]:
        from aiohttp import web

        app = web.Application()
        app.router.add_get("/get-random-scenario", self._service(self._draw))
        app.router.add_get("/reset-scenario", self._service(self._reset))
        app.router.add_get("/evaluate", self._service(self._evaluate))
        for method, path, page in ROUTES:
            app.router.add_route(method, path, self._handler(page))
        app.router.add_route("*", "/{rest:.*}", self._handler(not_found))
        return (app,)

    def _service(
        self, answer: Callable[[web.Request], dict[str, Any]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(http: web.Request) -> web.Response:
            from aiohttp import web

            if self.token and not secrets.compare_digest(
                http.query.get("token", "").encode(), self.token.encode()
            ):
                return web.json_response({"error": "wrong token"}, status=403)
            try:
                return web.json_response(answer(http))
            except LookupError as problem:
                return web.json_response({"error": str(problem.args[0])}, status=404)

        return handle

    def _draw(self, http: web.Request) -> dict[str, Any]:
        task, seed = http.query.get("task", ""), http.query.get("seed", "")
        number = int(seed) if seed.isdecimal() else self._random.randrange(SCENARIOS)
        drawn = scenario(task, number, self._seed)
        return {"id": drawn.id, "details": drawn.details}

    def _reset(self, http: web.Request) -> dict[str, Any]:
        wanted = http.query.get("scenario", "")
        self._states[wanted] = DeskState.of(self._scenario(wanted), self._seed)
        return {"id": wanted}

    def _evaluate(self, http: web.Request) -> dict[str, Any]:
        return {"metrics": self.state(http.query.get("scenario", "")).metrics}

    def _handler(
        self, page: Callable[[DeskRequest], DeskPage]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(http: web.Request) -> web.Response:
            from aiohttp import web

            chosen = http.query.get("scenario") or http.cookies.get(_COOKIE, "")
            try:
                state = self.state(chosen)
            except LookupError as problem:
                return web.Response(status=404, text=f"Open /?scenario=ID first: {problem.args[0]}")
            form = {name: value for name, value in http.query.items() if name != "scenario"}
            form |= {
                name: value for name, value in (await http.post()).items() if isinstance(value, str)
            }
            request = DeskRequest(state, form, http.match_info.get("code", ""))
            try:
                answer = page(request)
            except LookupError:
                answer = not_found(request)
            state.measure()
            if answer.location:
                response = web.Response(status=303, headers={"Location": answer.location})
            else:
                response = web.Response(
                    text=answer.body, status=answer.status, content_type="text/html"
                )
            response.set_cookie(_COOKIE, chosen, path="/", httponly=True, samesite="Lax")
            return response

        return handle
