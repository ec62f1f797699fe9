"""A small forum with the addresses and class names that WebArena's graders look for in Postmill."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from prill.testing.shop.pages import Answer, Ask, Refused, Route, button_form, field, redirect, site_page
from prill.testing.shop.store import Comment, Submission


def home(ask: Ask) -> Answer:
    """All forums, and what was posted."""
    forums = "".join(f'<li><a href="/f/{name}">{name}</a> {escape(title)}</li>' for name, title in ask.store.forums.items())
    return _page(ask, "Forums", f"<ul>{forums}</ul><h2>Submissions</h2>{_list(ask, ask.store.submissions)}")


def forum(ask: Ask) -> Answer:
    """One forum."""
    name = _forum(ask)
    posts = [post for post in ask.store.submissions if post.forum == name]
    submit = f'<p>{escape(ask.store.forums[name])}</p><p><a href="/submit/{name}">Submit to {name}</a></p>'
    return _page(ask, name, submit + _list(ask, posts))


def submission(ask: Ask) -> Answer:
    """One post with its comments."""
    post = _post(ask)
    said = "".join(
        f'<article class="review comment__inner"><p>{escape(c.text)}</p><p>{escape(c.author)}, {c.date[:10]}</p></article>'
        for c in post.comments
    )
    write = button_form(f"/f/{post.forum}/{post.id}/comment", "Post comment", field("Comment", "text")) if ask.user else ""
    return _page(ask, post.title, f"{_submission(ask, post, whole=True)}<h2>Comments</h2>{said}{write}")


def submit_page(ask: Ask) -> Answer:
    """The form for a post."""
    name = _forum(ask)
    fields = field("Title", "title") + field("Body", "body")
    return _page(ask, "Create submission", f"<p>Forum: {name}</p>{button_form(f'/submit/{name}', 'Create submission', fields)}")


def submit(ask: Ask) -> Answer:
    """Takes a post."""
    name, title = _forum(ask), ask.form.get("title", "").strip()
    if not title:
        raise Refused(400, "A submission needs a title.")
    return redirect(ask.store.submit(name, str(ask.user), title, ask.form.get("body", "").strip()).path)


def vote(ask: Ask) -> Answer:
    """One vote a person: the same again takes it back."""
    post, choice = _post(ask), 1 if ask.form.get("choice") == "1" else -1
    if post.votes.pop(str(ask.user), 0) != choice:
        post.votes[str(ask.user)] = choice
    return redirect(post.path)


def comment(ask: Ask) -> Answer:
    """Takes a comment."""
    post, text = _post(ask), ask.form.get("text", "").strip()
    if not text:
        raise Refused(400, "The comment is empty.")
    post.comments.append(Comment(str(ask.user), text, ask.store.now()))
    return redirect(post.path)


def login_page(ask: Ask, said: str = "") -> Answer:
    """The form."""
    wrong = f'<p class="wrong" role="alert">{escape(said)}</p>' if said else ""
    fields = field("Username", "_username") + field("Password", "_password", kind="password")
    return _page(ask, "Log in", wrong + button_form("/login", "Log in", fields))


def login(ask: Ask) -> Answer:
    """Signs in, or says that it cannot."""
    token = ask.store.sign_in("reddit", ask.form.get("_username", ""), ask.form.get("_password", ""))
    return login_page(ask, "Invalid credentials.") if token is None else redirect("/", token)


def logout(ask: Ask) -> Answer:
    """Signs out."""
    ask.store.sign_out(ask.session)
    return redirect("/", "")


def account(ask: Ask) -> Answer:
    """One's own account."""
    if ask.parts["name"] != ask.user:
        raise Refused(403, "This is somebody else's account.")
    return _page(ask, f"Account of {ask.user}", "<p>Delete account: write to the people who run this.</p>")


def _page(ask: Ask, title: str, body: str) -> Answer:
    links = [("Forums", "/")]
    links += [(ask.user, f"/user/{ask.user}/account"), ("Log out", "/logout")] if ask.user else [("Log in", "/login")]
    return site_page("reddit", title, links, body)


def _list(ask: Ask, posts: Iterable[Submission]) -> str:
    return "".join(_submission(ask, post, whole=False) for post in sorted(posts, key=lambda p: p.date, reverse=True))


def _submission(ask: Ask, post: Submission, *, whole: bool) -> str:
    own = post.votes.get(ask.user or "", 0)
    mark = {1: " vote--user-upvoted", -1: " vote--user-downvoted", 0: ""}[own]
    name = escape(post.title)
    score = post.score + sum(post.votes.values())
    votes = (
        f'<div class="submission__vote"><form class="vote{mark} inline" method="post" action="/sv/{post.id}">'
        f'<button name="choice" value="1" aria-label="Upvote {name}">+</button><span>{score}</span>'
        f'<button name="choice" value="-1" aria-label="Downvote {name}">−</button></form></div>'
    )
    body = f"<p>{escape(post.body)}</p>" if whole else ""
    facts = f"Submitted by {escape(post.author)} to {post.forum}, {post.date[:10]}, {len(post.comments)} comments"
    inner = f'<a href="{post.path}">{name}</a>{body}<p>{facts}</p>'
    return f'<article class="submission"><div class="submission__inner">{inner}</div>{votes}</article>'


def _forum(ask: Ask) -> str:
    if (name := ask.parts["forum"]) not in ask.store.forums:
        raise Refused(404, "There is no such forum.")
    return name


def _post(ask: Ask) -> Submission:
    for post in ask.store.submissions:
        if str(post.id) == ask.parts["id"] and ask.parts.get("forum", post.forum) == post.forum:
            return post
    raise Refused(404, "There is no such submission.")


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
