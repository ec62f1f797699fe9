"""A small project site with the URLs and class names that graders expect of GitLab."""

from __future__ import annotations

from prill.emulators.shop.pages import (
    PageError,
    Response,
    Route,
    ShopRequest,
    SignIn,
    draw,
    redirect,
    site_page,
)
from prill.emulators.shop.store import Member, Project

_ROLES = ("Guest", "Reporter", "Developer", "Maintainer", "Owner")


def _home(request: ShopRequest) -> Response:
    return _draw(request, "Projects", "home", request.store.projects.values())


def _show_project(request: ShopRequest) -> Response:
    project = _project(request)
    return _draw(request, project.path, "project", project)


def _members(request: ShopRequest) -> Response:
    return _draw(request, "Project members", "members", _project(request), _ROLES[:-1])


def _invite(request: ShopRequest) -> Response:
    """Gives a user a role, which replaces an existing one."""
    project = _project(request)
    account = request.form.get("account", "").strip().removeprefix("@")
    role = request.form.get("role", "")
    if account not in request.store.full_names or role not in _ROLES[:-1]:
        raise PageError(400, "Name a user of this site, and a role.")
    others = [member for member in project.members if member.account != account]
    project.members = [*others, Member(account, request.store.full_names[account], role)]
    return redirect(f"/{project.path}/-/project_members")


def _profile(request: ShopRequest) -> Response:
    name = request.store.full_names[str(request.user)]
    return _draw(request, "User Settings", "profile", name, request.user)


def _draw(request: ShopRequest, title: str, part: str, *values: object) -> Response:
    return _page(request, title, draw("projects.html", part, *values))


def _page(request: ShopRequest, title: str, body: str) -> Response:
    links = (
        [("Projects", "/"), ("Profile", "/-/profile"), ("Sign out", "/users/sign_out")]
        if request.user
        else []
    )
    return site_page("gitlab", title, links, body)


def _project(request: ShopRequest) -> Project:
    project = request.store.projects.get(f"{request.parts['owner']}/{request.parts['name']}")
    if project is None:
        raise PageError(404, "There is no such project.")
    return project


SIGN_IN = SignIn(
    site="gitlab",
    path="/users/sign_in",
    leave_path="/users/sign_out",
    home="/",
    left="/users/sign_in",
    page=_page,
    title="Sign in",
    button="Sign in",
    wrong="Invalid login or password.",
    user="user[login]",
    password="user[password]",
    look={
        "label": "Username or email",
        "tests": ("username-field", "password-field", "sign-in-button"),
    },
)
ROUTES = (
    Route("GET", "/", _home, private=True),
    *SIGN_IN.routes,
    Route("GET", "/-/profile", _profile, private=True),
    Route("GET", "/{owner}/{name}", _show_project, private=True),
    Route("GET", "/{owner}/{name}/-/project_members", _members, private=True),
    Route("POST", "/{owner}/{name}/-/project_members", _invite, private=True),
)
