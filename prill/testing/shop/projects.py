"""A small site of projects with the addresses and class names that WebArena's graders look for in GitLab."""

from __future__ import annotations

from html import escape

from prill.testing.shop.pages import Answer, Ask, Refused, Route, button_form, field, redirect, site_page
from prill.testing.shop.store import Member, Project

_ROLES = ("Guest", "Reporter", "Developer", "Maintainer", "Owner")


def home(ask: Ask) -> Answer:
    """All projects."""
    items = "".join(
        f'<li><a href="/{it.path}">{escape(it.path.partition("/")[2])}</a> {escape(it.text)}</li>'
        for it in ask.store.projects.values()
    )
    return _page(ask, "Projects", f"<ul>{items}</ul>")


def project(ask: Ask) -> Answer:
    """One project: its issues and the way to its members."""
    it = _project(ask)
    issues = "".join(f"<li>{escape(title)}</li>" for title in it.issues)
    links = f'<p><a href="/{it.path}/-/project_members">Members</a></p>'
    return _page(ask, it.path, f"<p>{escape(it.text)}</p>{links}<h2>Open issues ({len(it.issues)})</h2><ul>{issues}</ul>")


def members(ask: Ask) -> Answer:
    """Who may do what in a project, and the form to invite somebody."""
    it = _project(ask)
    account = '<td data-label="Account">{} <span class="gl-avatar-labeled-sublabel">@{}</span></td>'
    role = '<td class="col-max-role"><span>{}</span></td>'
    rows = "".join(f"<tr>{account.format(escape(m.name), escape(m.account))}{role.format(m.role)}</tr>" for m in it.members)
    listed = f'<table aria-label="Members"><tr><th>Account</th><th>Max role</th></tr>{rows}</table>'
    radios = "".join(f'<label><input type="radio" name="role" value="{role}"> {role}</label>' for role in _ROLES[:-1])
    fields = f'{field("Username", "account")}<fieldset class="inline"><legend>Role</legend>{radios}</fieldset>'
    invite = f"<h2>Invite a member</h2>{button_form(f'/{it.path}/-/project_members', 'Invite', fields)}"
    return _page(ask, "Project members", listed + invite)


def invite(ask: Ask) -> Answer:
    """Gives somebody a role, a new one if they have one."""
    it, account, role = _project(ask), ask.form.get("account", "").strip().removeprefix("@"), ask.form.get("role", "")
    if account not in ask.store.full_names or role not in _ROLES[:-1]:
        raise Refused(400, "Name a user of this site, and a role.")
    it.members = [m for m in it.members if m.account != account] + [Member(account, ask.store.full_names[account], role)]
    return redirect(f"/{it.path}/-/project_members")


def login_page(ask: Ask, said: str = "") -> Answer:
    """The form."""
    wrong = f'<p class="wrong" role="alert">{escape(said)}</p>' if said else ""
    fields = field("Username or email", "user[login]") + field("Password", "user[password]", kind="password")
    form = button_form("/users/sign_in", "Sign in", fields)
    # WebArena's login finds the three parts of the form by test ids.
    form = form.replace('<input type="text"', '<input data-testid="username-field" type="text"')
    form = form.replace('<input type="password"', '<input data-testid="password-field" type="password"')
    form = form.replace("<button>", '<button data-testid="sign-in-button">')
    return _page(ask, "Sign in", wrong + form)


def login(ask: Ask) -> Answer:
    """Signs in, or says that it cannot."""
    token = ask.store.sign_in("gitlab", ask.form.get("user[login]", ""), ask.form.get("user[password]", ""))
    return login_page(ask, "Invalid login or password.") if token is None else redirect("/", token)


def logout(ask: Ask) -> Answer:
    """Signs out."""
    ask.store.sign_out(ask.session)
    return redirect("/users/sign_in", "")


def profile(ask: Ask) -> Answer:
    """Who one is."""
    return _page(ask, "User Settings", f"<p>{escape(ask.store.full_names[str(ask.user)])} @{escape(str(ask.user))}</p>")


def _page(ask: Ask, title: str, body: str) -> Answer:
    links = [("Projects", "/"), ("Profile", "/-/profile"), ("Sign out", "/users/sign_out")] if ask.user else []
    return site_page("gitlab", title, links, body)


def _project(ask: Ask) -> Project:
    it = ask.store.projects.get(f"{ask.parts['owner']}/{ask.parts['name']}")
    if it is None:
        raise Refused(404, "There is no such project.")
    return it


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
