"""A small project site with the URLs and class names that graders expect of GitLab."""

from __future__ import annotations

from html import escape

from prill.emulators.shop.pages import (
    PageError,
    Response,
    Route,
    ShopRequest,
    button_form,
    field,
    redirect,
    site_page,
)
from prill.emulators.shop.store import Member, Project

_ROLES = ("Guest", "Reporter", "Developer", "Maintainer", "Owner")


def home(request: ShopRequest) -> Response:
    """All projects."""
    items = "".join(
        f'<li><a href="/{project.path}">{escape(project.path.partition("/")[2])}</a> '
        f"{escape(project.text)}</li>"
        for project in request.store.projects.values()
    )
    return _page(request, "Projects", f"<ul>{items}</ul>")


def project(request: ShopRequest) -> Response:
    """A project page: its issues and a link to its members."""
    project = _project(request)
    issues = "".join(f"<li>{escape(title)}</li>" for title in project.issues)
    links = f'<p><a href="/{project.path}/-/project_members">Members</a></p>'
    return _page(
        request,
        project.path,
        f"<p>{escape(project.text)}</p>{links}<h2>Open issues "
        f"({len(project.issues)})</h2><ul>{issues}</ul>",
    )


def members(request: ShopRequest) -> Response:
    """Members and their roles, and the invitation form."""
    project = _project(request)
    account = '<td data-label="Account">{} <span class="gl-avatar-labeled-sublabel">@{}</span></td>'
    role = '<td class="col-max-role"><span>{}</span></td>'
    rows = "".join(
        f"<tr>{account.format(escape(m.name), escape(m.account))}{role.format(m.role)}</tr>"
        for m in project.members
    )
    listed = f'<table aria-label="Members"><tr><th>Account</th><th>Max role</th></tr>{rows}</table>'
    radios = "".join(
        f'<label><input type="radio" name="role" value="{role}"> {role}</label>'
        for role in _ROLES[:-1]
    )
    fields = (
        f"{field('Username', 'account')}<fieldset "
        f'class="inline"><legend>Role</legend>{radios}</fieldset>'
    )
    invite = (
        "<h2>Invite a "
        f"member</h2>{button_form(f'/{project.path}/-/project_members', 'Invite', fields)}"
    )
    return _page(request, "Project members", listed + invite)


def invite(request: ShopRequest) -> Response:
    """Gives somebody a role, a new one if they have one."""
    project = _project(request)
    account = request.form.get("account", "").strip().removeprefix("@")
    role = request.form.get("role", "")
    if account not in request.store.full_names or role not in _ROLES[:-1]:
        raise PageError(400, "Name a user of this site, and a role.")
    others = [member for member in project.members if member.account != account]
    project.members = [*others, Member(account, request.store.full_names[account], role)]
    return redirect(f"/{project.path}/-/project_members")


def login_page(request: ShopRequest, message: str = "") -> Response:
    """The form."""
    wrong = f'<p class="wrong" role="alert">{escape(message)}</p>' if message else ""
    fields = field("Username or email", "user[login]") + field(
        "Password", "user[password]", kind="password"
    )
    form = button_form("/users/sign_in", "Sign in", fields)
    # WebArena's login finds the three parts of the form by test ids.
    form = form.replace('<input type="text"', '<input data-testid="username-field" type="text"')
    form = form.replace(
        '<input type="password"', '<input data-testid="password-field" type="password"'
    )
    form = form.replace("<button>", '<button data-testid="sign-in-button">')
    return _page(request, "Sign in", wrong + form)


def login(request: ShopRequest) -> Response:
    """Signs in, or says that it cannot."""
    token = request.store.sign_in(
        "gitlab", request.form.get("user[login]", ""), request.form.get("user[password]", "")
    )
    return (
        login_page(request, "Invalid login or password.") if token is None else redirect("/", token)
    )


def logout(request: ShopRequest) -> Response:
    """Signs out."""
    request.store.sign_out(request.session)
    return redirect("/users/sign_in", "")


def profile(request: ShopRequest) -> Response:
    """The user's profile page."""
    return _page(
        request,
        "User Settings",
        f"<p>{escape(request.store.full_names[str(request.user)])} "
        f"@{escape(str(request.user))}</p>",
    )


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


ROUTES = (
    Route("GET", "/", home, private=True),
    Route("GET", "/users/sign_in", login_page),
    Route("POST", "/users/sign_in", login),
    Route("GET", "/users/sign_out", logout),
    Route("GET", "/-/profile", profile, private=True),
    Route("GET", "/{owner}/{name}", project, private=True),
    Route("GET", "/{owner}/{name}/-/project_members", members, private=True),
    Route("POST", "/{owner}/{name}/-/project_members", invite, private=True),
)
