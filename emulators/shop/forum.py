"""A small forum with the URLs and class names that WebArena's graders expect of Postmill."""

from __future__ import annotations

from collections.abc import Iterable
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
from prill.emulators.shop.store import Comment, Submission


def home(request: ShopRequest) -> Response:
    """All forums, and what was posted."""
    forums = "".join(
        f'<li><a href="/f/{name}">{name}</a> {escape(title)}</li>'
        for name, title in request.store.forums.items()
    )
    return _page(
        request,
        "Forums",
        f"<ul>{forums}</ul><h2>Submissions</h2>{_list(request, request.store.submissions)}",
    )


def forum(request: ShopRequest) -> Response:
    """One forum."""
    name = _forum(request)
    posts = [post for post in request.store.submissions if post.forum == name]
    submit = (
        f'<p>{escape(request.store.forums[name])}</p><p><a href="/submit/{name}">Submit to '
        f"{name}</a></p>"
    )
    return _page(request, name, submit + _list(request, posts))


def submission(request: ShopRequest) -> Response:
    """One post with its comments."""
    post = _post(request)
    message = "".join(
        f'<article class="review comment__inner"><p>{escape(c.text)}</p><p>{escape(c.author)}, '
        f"{c.date[:10]}</p></article>"
        for c in post.comments
    )
    write = (
        button_form(f"/f/{post.forum}/{post.id}/comment", "Post comment", field("Comment", "text"))
        if request.user
        else ""
    )
    return _page(
        request,
        post.title,
        f"{_submission(request, post, whole_number=True)}<h2>Comments</h2>{message}{write}",
    )


def submit_page(request: ShopRequest) -> Response:
    """The form for a post."""
    name = _forum(request)
    fields = field("Title", "title") + field("Body", "body")
    return _page(
        request,
        "Create submission",
        f"<p>Forum: {name}</p>{button_form(f'/submit/{name}', 'Create submission', fields)}",
    )


def submit(request: ShopRequest) -> Response:
    """Takes a post."""
    name, title = _forum(request), request.form.get("title", "").strip()
    if not title:
        raise PageError(400, "A submission needs a title.")
    return redirect(
        request.store.submit(
            name, str(request.user), title, request.form.get("body", "").strip()
        ).path
    )


def vote(request: ShopRequest) -> Response:
    """One vote a person: the same again takes it back."""
    post, choice = _post(request), 1 if request.form.get("choice") == "1" else -1
    if post.votes.pop(str(request.user), 0) != choice:
        post.votes[str(request.user)] = choice
    return redirect(post.path)


def comment(request: ShopRequest) -> Response:
    """Takes a comment."""
    post, text = _post(request), request.form.get("text", "").strip()
    if not text:
        raise PageError(400, "The comment is empty.")
    post.comments.append(Comment(str(request.user), text, request.store.now()))
    return redirect(post.path)


def login_page(request: ShopRequest, message: str = "") -> Response:
    """The form."""
    wrong = f'<p class="wrong" role="alert">{escape(message)}</p>' if message else ""
    fields = field("Username", "_username") + field("Password", "_password", kind="password")
    return _page(request, "Log in", wrong + button_form("/login", "Log in", fields))


def login(request: ShopRequest) -> Response:
    """Signs in, or says that it cannot."""
    token = request.store.sign_in(
        "reddit", request.form.get("_username", ""), request.form.get("_password", "")
    )
    return login_page(request, "Invalid credentials.") if token is None else redirect("/", token)


def logout(request: ShopRequest) -> Response:
    """Signs out."""
    request.store.sign_out(request.session)
    return redirect("/", "")


def account(request: ShopRequest) -> Response:
    """The user's account page."""
    if request.parts["name"] != request.user:
        raise PageError(403, "This is somebody else's account.")
    return _page(
        request,
        f"Account of {request.user}",
        "<p>Delete account: write to the people who run this.</p>",
    )


def _page(request: ShopRequest, title: str, body: str) -> Response:
    links = [("Forums", "/")]
    links += (
        [(request.user, f"/user/{request.user}/account"), ("Log out", "/logout")]
        if request.user
        else [("Log in", "/login")]
    )
    return site_page("reddit", title, links, body)


def _list(request: ShopRequest, posts: Iterable[Submission]) -> str:
    return "".join(
        _submission(request, post, whole_number=False)
        for post in sorted(posts, key=lambda p: p.date, reverse=True)
    )


def _submission(request: ShopRequest, post: Submission, *, whole_number: bool) -> str:
    own = post.votes.get(request.user or "", 0)
    mark = {1: " vote--user-upvoted", -1: " vote--user-downvoted", 0: ""}[own]
    name = escape(post.title)
    score = post.score + sum(post.votes.values())
    votes = (
        f'<div class="submission__vote"><form class="vote{mark} inline" method="post" '
        f'action="/sv/{post.id}">'
        f'<button name="choice" value="1" aria-label="Upvote {name}">+</button><span>{score}</span>'
        f'<button name="choice" value="-1" aria-label="Downvote {name}">−</button></form></div>'
    )
    body = f"<p>{escape(post.body)}</p>" if whole_number else ""
    facts = (
        f"Submitted by {escape(post.author)} to {post.forum}, {post.date[:10]}, "
        f"{len(post.comments)} comments"
    )
    inner = f'<a href="{post.path}">{name}</a>{body}<p>{facts}</p>'
    return (
        f'<article class="submission"><div class="submission__inner">{inner}</div>{votes}</article>'
    )


def _forum(request: ShopRequest) -> str:
    if (name := request.parts["forum"]) not in request.store.forums:
        raise PageError(404, "There is no such forum.")
    return name


def _post(request: ShopRequest) -> Submission:
    for post in request.store.submissions:
        if (
            str(post.id) == request.parts["id"]
            and request.parts.get("forum", post.forum) == post.forum
        ):
            return post
    raise PageError(404, "There is no such submission.")


ROUTES = (
    Route("GET", "/", home),
    Route("GET", "/login", login_page),
    Route("POST", "/login", login),
    Route("GET", "/logout", logout),
    Route("GET", "/user/{name}/account", account, private=True),
    Route("GET", "/submit/{forum}", submit_page, private=True),
    Route("POST", "/submit/{forum}", submit, private=True),
    Route("POST", "/sv/{id}", vote, private=True),
    Route("GET", "/f/{forum}", forum),
    Route("GET", "/f/{forum}/{id}", submission),
    Route("GET", "/f/{forum}/{id}/{slug}", submission),
    Route("POST", "/f/{forum}/{id}/comment", comment, private=True),
)
