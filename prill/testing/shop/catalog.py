"""The shop as everybody sees it: categories, search, products with reviews, the contact form."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from urllib.parse import urlencode

from prill.testing.shop.pages import (
    Answer,
    Ask,
    Refused,
    Route,
    button_form,
    card,
    field,
    picture,
    redirect,
    shop_page,
    stars,
    whole,
)
from prill.testing.shop.store import Product, Review, money

_ORDERS = {"position": "Position", "name": "Name", "price": "Price", "rating": "Rating"}


def home(ask: Ask) -> Answer:
    """The first page: a few products."""
    return shop_page(ask, "One shop for desks and kitchens", _cards(list(ask.store.products.values())[:10]))


def category(ask: Ask) -> Answer:
    """All products below a category, in the asked order."""
    name = "/".join(ask.parts.values())
    products = [p for p in ask.store.products.values() if f"{p.category}/".startswith(f"{name}/")]
    if not products:
        return product(ask)
    below = sorted({p.category for p in ask.store.products.values() if p.category.startswith(f"{name}/")})
    links = "".join(f'<a href="/{each}.html">{_title(each)}</a>' for each in below)
    narrow = f'<nav class="inline" aria-label="Narrow down">{links}</nav>' if links else ""
    return shop_page(ask, _title(name), narrow + _listing(ask, products, f"/{name}.html"))


def search(ask: Ask) -> Answer:
    """Products whose name or description has every word."""
    words = ask.query.get("q", "").lower().split()
    hits = [p for p in ask.store.products.values() if words and all(w in f"{p.name} {p.text} {p.sku}".lower() for w in words)]
    title = f"Search results for: '{ask.query.get('q', '')}'"
    if not hits:
        return shop_page(ask, title, '<p class="wrong">Your search returned no results.</p>')
    return shop_page(ask, title, _listing(ask, hits, "/catalogsearch/result/"))


def product(ask: Ask) -> Answer:
    """One product, with its reviews and the form for another."""
    it = _product(ask)
    stock = "In stock" if it.stock > 0 else "Out of stock"
    buy = (
        '<label>Qty <input class="small" name="qty" value="1" autocomplete="off"></label> <button>Add to Cart</button>'
        if it.stock > 0
        else ""
    )
    facts = (
        f'<p class="price">{money(it.price)}</p><p>{stock} · SKU {escape(it.sku)} · {stars(it)}</p><p>{escape(it.text)}</p>'
        f'<form class="inline" method="post" action="/checkout/cart/add/{it.sku}">{buy}</form>'
        + button_form(f"/wishlist/add/{it.sku}", "Add to Wish List")
    )
    reviews = "".join(
        f'<article class="review"><h3>{escape(r.title)}</h3><p>{r.rating} of 5 stars. {escape(r.text)}</p>'
        f"<p>Review by {escape(r.author)}, {r.date[:10]}</p></article>"
        for r in it.reviews
    )
    body = (
        f'<div class="two">{picture(it)}<div>{facts}</div></div><div class="columns">'
        f"<section><h2>Customer Reviews</h2>{reviews or '<p>Nobody has reviewed this yet.</p>'}</section>"
        f"<section><h2>Write a review</h2>{_review_form(it)}</section></div>"
    )
    note = "You submitted your review." if ask.query.get("said") == "review" else ""
    return shop_page(ask, it.name, body, said=note)


def review(ask: Ask) -> Answer:
    """Takes a review."""
    it = _product(ask)
    texts = {name: ask.form.get(name, "").strip() for name in ("nickname", "title", "detail")}
    if not all(texts.values()):
        raise Refused(400, "A review needs a nickname, a summary and a text.")
    rating = whole(ask.form.get("rating", ""), "The rating", 1, 5)
    it.reviews.append(Review(texts["nickname"], rating, texts["title"], texts["detail"], ask.store.now()))
    return redirect(f"/{it.slug}.html?said=review")


def contact(ask: Ask) -> Answer:
    """The form for questions; a telephone number is not given."""
    fields = field("Your Name", "name") + field("Your Email", "email") + field("What is on your mind?", "comment")
    said = "Thank you. We answer within two days." if "said" in ask.query else ""
    body = "<p>We answer by e-mail only.</p>" + button_form("/contact/", "Submit", fields)
    return shop_page(ask, "Contact Us", body, said=said)


def message(ask: Ask) -> Answer:
    """Takes a question."""
    if not ask.form.get("comment", "").strip():
        raise Refused(400, "The message is empty.")
    ask.store.messages.append((ask.form.get("email", ""), ask.form["comment"]))
    return redirect("/contact/?said=1")


def _product(ask: Ask) -> Product:
    slug = ask.parts.get("name", "")
    for it in ask.store.products.values():
        if it.slug == slug:
            return it
    raise Refused(404, "There is no such page.")


def _cards(products: Iterable[Product]) -> str:
    return f'<ul class="cards" aria-label="Products">{"".join(card(product) for product in products)}</ul>'


def _listing(ask: Ask, products: list[Product], address: str) -> str:
    chosen = ask.query.get("product_list_order", "position")
    if chosen == "price":
        products = sorted(products, key=lambda p: p.price)
    elif chosen == "name":
        products = sorted(products, key=lambda p: p.name)
    elif chosen == "rating":
        products = sorted(products, key=lambda p: -p.rating)
    query = {"q": ask.query["q"]} if "q" in ask.query else {}
    links = "".join(
        f'<a href="{escape(address)}?{escape(urlencode(query | {"product_list_order": order}))}">Sort by {name}</a>'
        for order, name in _ORDERS.items()
    )
    return f'<p>{len(products)} items</p><nav class="inline" aria-label="Sorting">{links}</nav>{_cards(products)}'


def _title(name: str) -> str:
    return name.rpartition("/")[2].replace("-", " ").title()


def _review_form(it: Product) -> str:
    radios = "".join(
        f'<label><input type="radio" name="rating" value="{n}"> {n} star{"s" if n > 1 else ""}</label>' for n in range(1, 6)
    )
    fields = (
        f'<fieldset class="inline"><legend>Your Rating</legend>{radios}</fieldset>'
        f"{field('Nickname', 'nickname')}{field('Summary', 'title')}{field('Review', 'detail')}"
    )
    return button_form(f"/review/{it.slug}", "Submit Review", fields)


ROUTES = (
    Route("GET", "/", home),
    Route("GET", "/catalogsearch/result", search),
    Route("GET", "/contact", contact),
    Route("POST", "/contact", message),
    Route("GET", "/{name}.html", category),
    Route("GET", "/{top}/{below}.html", category),
    Route("POST", "/review/{name}", review),
)
