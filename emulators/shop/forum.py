"""A small forum with the URLs and class names that WebArena's graders expect of Postmill."""

from __future__ import annotations

from prill.emulators.shop.pages import (
    PageError,
    Response,
    Route,
    ShopRequest,
    SignIn,
    draw,
    find,
    redirect,
    site_page,
)
from prill.emulators.shop.store import Comment, Submission


def _home(request: ShopRequest) -> Response:
    store = request.store
    return _draw(request, "Forums", "home", store.forums, store.submissions, request.user)


def _show_forum(request: ShopRequest) -> Response:
    name = _forum(request)
    posts = [post for post in request.store.submissions if post.forum == name]
    return _draw(request, name, "forum", name, request.store.forums[name], posts, request.user)


def _submission(request: ShopRequest) -> Response:
    post = _post(request)
    return _draw(request, post.title, "submission", post, request.user)


def _submit_page(request: ShopRequest) -> Response:
    return _draw(request, "Create submission", "submit", _forum(request))


def _submit(request: ShopRequest) -> Response:
    """Saves a post."""
    name, title = _forum(request), request.form.get("title", "").strip()
    if not title:
        raise PageError(400, "A submission needs a title.")
    return redirect(
        request.store.submit(
            name, str(request.user), title, request.form.get("body", "").strip()
        ).path
    )


def _vote(request: ShopRequest) -> Response:
    """Records a user's vote; repeating the same vote withdraws it."""
    post, choice = _post(request), 1 if request.form.get("choice") == "1" else -1
    if post.votes.pop(str(request.user), 0) != choice:
        post.votes[str(request.user)] = choice
    return redirect(post.path)


def _comment(request: ShopRequest) -> Response:
    post, text = _post(request), request.form.get("text", "").strip()
    if not text:
        raise PageError(400, "The comment is empty.")
    post.comments.append(Comment(str(request.user), text, request.store.now()))
    return redirect(post.path)


def _account(request: ShopRequest) -> Response:
    if request.parts["name"] != request.user:
        raise PageError(403, "This is somebody else's account.")
    return _draw(request, f"Account of {request.user}", "account")


def _draw(request: ShopRequest, title: str, part: str, *values: object) -> Response:
    return _page(request, title, draw("forum.html", part, *values))


def _page(request: ShopRequest, title: str, body: str) -> Response:
    links = [("Forums", "/")]
    links += (
        [(request.user, f"/user/{request.user}/account"), ("Log out", "/logout")]
        if request.user
        else [("Log in", "/login")]
    )
    return site_page("reddit", title, links, body)


SIGN_IN = SignIn(
    site="reddit",
    path="/login",
    leave_path="/logout",
    home="/",
    left="/",
    page=_page,
    title="Log in",
    button="Log in",
    wrong="Invalid credentials.",
    user="_username",
    password="_password",
    look={},
)


def _forum(request: ShopRequest) -> str:
    if (name := request.parts["forum"]) not in request.store.forums:
        raise PageError(404, "There is no such forum.")
    return name


def _post(request: ShopRequest) -> Submission:
    parts = request.parts
    return find(
        request.store.submissions,
        lambda post: str(post.id) == parts["id"] and parts.get("forum", post.forum) == post.forum,
        "submission",
    )


ROUTES = (
    Route("GET", "/", _home),
    *SIGN_IN.routes,
    Route("GET", "/user/{name}/account", _account, private=True),
    Route("GET", "/submit/{forum}", _submit_page, private=True),
    Route("POST", "/submit/{forum}", _submit, private=True),
    Route("POST", "/sv/{id}", _vote, private=True),
    Route("GET", "/f/{forum}", _show_forum),
    Route("GET", "/f/{forum}/{id}", _submission),
    Route("GET", "/f/{forum}/{id}/{slug}", _submission),
    Route("POST", "/f/{forum}/{id}/comment", _comment, private=True),
)
