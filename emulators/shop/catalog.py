"""The shop's public pages: categories, search, products, reviews, contact form."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from urllib.parse import urlencode

from prill.emulators.shop.pages import (
    PageError,
    Response,
    Route,
    ShopRequest,
    button_form,
    card,
    field,
    picture,
    redirect,
    shop_page,
    stars,
    whole_number,
)
from prill.emulators.shop.store import Product, Review, money

_ORDERS = {"position": "Position", "name": "Name", "price": "Price", "rating": "Rating"}


def home(request: ShopRequest) -> Response:
    """The first page: a few products."""
    return shop_page(
        request,
        "One shop for desks and kitchens",
        _cards(list(request.store.products.values())[:10]),
    )


def category(request: ShopRequest) -> Response:
    """All products below a category, in the asked order."""
    name = "/".join(request.parts.values())
    products = [
        p for p in request.store.products.values() if f"{p.category}/".startswith(f"{name}/")
    ]
    if not products:
        return product(request)
    below = sorted(
        {p.category for p in request.store.products.values() if p.category.startswith(f"{name}/")}
    )
    links = "".join(f'<a href="/{each}.html">{_title(each)}</a>' for each in below)
    narrow = f'<nav class="inline" aria-label="Narrow down">{links}</nav>' if links else ""
    return shop_page(request, _title(name), narrow + _listing(request, products, f"/{name}.html"))


def search(request: ShopRequest) -> Response:
    """Products whose name or description has every word."""
    words = request.query.get("q", "").lower().split()
    hits = [
        p
        for p in request.store.products.values()
        if words and all(w in f"{p.name} {p.text} {p.sku}".lower() for w in words)
    ]
    title = f"Search results for: '{request.query.get('q', '')}'"
    if not hits:
        return shop_page(request, title, '<p class="wrong">Your search returned no results.</p>')
    return shop_page(request, title, _listing(request, hits, "/catalogsearch/result/"))


def product(request: ShopRequest) -> Response:
    """One product, with its reviews and the form for another."""
    product = _product(request)
    stock = "In stock" if product.stock > 0 else "Out of stock"
    buy = (
        '<label>Qty <input class="small" name="qty" value="1" autocomplete="off"></label> '
        "<button>Add to Cart</button>"
        if product.stock > 0
        else ""
    )
    facts = (
        f'<p class="price">{money(product.price)}</p><p>{stock} · SKU {escape(product.sku)} · '
        f"{stars(product)}</p>"
        f"<p>{escape(product.text)}</p>"
        f'<form class="inline" method="post" action="/checkout/cart/add/{product.sku}">{buy}</form>'
        + button_form(f"/wishlist/add/{product.sku}", "Add to Wish List")
    )
    reviews = "".join(
        f'<article class="review"><h3>{escape(r.title)}</h3><p>{r.rating} of 5 stars. '
        f"{escape(r.text)}</p>"
        f"<p>Review by {escape(r.author)}, {r.date[:10]}</p></article>"
        for r in product.reviews
    )
    body = (
        f'<div class="two">{picture(product)}<div>{facts}</div></div><div class="columns">'
        "<section><h2>Customer "
        f"Reviews</h2>{reviews or '<p>Nobody has reviewed this yet.</p>'}</section>"
        f"<section><h2>Write a review</h2>{_review_form(product)}</section></div>"
    )
    note = "You submitted your review." if request.query.get("said") == "review" else ""
    return shop_page(request, product.name, body, message=note)


def review(request: ShopRequest) -> Response:
    """Takes a review."""
    product = _product(request)
    texts = {name: request.form.get(name, "").strip() for name in ("nickname", "title", "detail")}
    if not all(texts.values()):
        raise PageError(400, "A review needs a nickname, a summary and a text.")
    rating = whole_number(request.form.get("rating", ""), "The rating", 1, 5)
    product.reviews.append(
        Review(texts["nickname"], rating, texts["title"], texts["detail"], request.store.now())
    )
    return redirect(f"/{product.slug}.html?said=review")


def contact(request: ShopRequest) -> Response:
    """The form for questions; a telephone number is not given."""
    fields = (
        field("Your Name", "name")
        + field("Your Email", "email")
        + field("What is on your mind?", "comment")
    )
    message = "Thank you. We answer within two days." if "said" in request.query else ""
    body = "<p>We answer by e-mail only.</p>" + button_form("/contact/", "Submit", fields)
    return shop_page(request, "Contact Us", body, message=message)


def message(request: ShopRequest) -> Response:
    """Takes a question."""
    if not request.form.get("comment", "").strip():
        raise PageError(400, "The message is empty.")
    request.store.messages.append((request.form.get("email", ""), request.form["comment"]))
    return redirect("/contact/?said=1")


def _product(request: ShopRequest) -> Product:
    slug = request.parts.get("name", "")
    for product in request.store.products.values():
        if product.slug == slug:
            return product
    raise PageError(404, "There is no such page.")


def _cards(products: Iterable[Product]) -> str:
    return (
        '<ul class="cards" '
        f'aria-label="Products">{"".join(card(product) for product in products)}</ul>'
    )


def _listing(request: ShopRequest, products: list[Product], address: str) -> str:
    order = request.query.get("product_list_order", "position")
    if order == "price":
        products = sorted(products, key=lambda p: p.price)
    elif order == "name":
        products = sorted(products, key=lambda p: p.name)
    elif order == "rating":
        products = sorted(products, key=lambda p: -p.rating)
    query = {"q": request.query["q"]} if "q" in request.query else {}
    links = "".join(
        f'<a href="{escape(address)}?{escape(urlencode(query | {"product_list_order": order}))}">Sort by {name}</a>'  # noqa: E501
        for order, name in _ORDERS.items()
    )
    return (
        f'<p>{len(products)} items</p><nav class="inline" '
        f'aria-label="Sorting">{links}</nav>{_cards(products)}'
    )


def _title(name: str) -> str:
    return name.rpartition("/")[2].replace("-", " ").title()


def _review_form(product: Product) -> str:
    radios = "".join(
        f'<label><input type="radio" name="rating" value="{n}"> {n} '
        f"star{'s' if n > 1 else ''}</label>"
        for n in range(1, 6)
    )
    fields = (
        f'<fieldset class="inline"><legend>Your Rating</legend>{radios}</fieldset>'
        f"{field('Nickname', 'nickname')}{field('Summary', 'title')}{field('Review', 'detail')}"
    )
    return button_form(f"/review/{product.slug}", "Submit Review", fields)


ROUTES = (
    Route("GET", "/", home),
    Route("GET", "/catalogsearch/result", search),
    Route("GET", "/contact", contact),
    Route("POST", "/contact", message),
    Route("GET", "/{name}.html", category),
    Route("GET", "/{top}/{below}.html", category),
    Route("POST", "/review/{name}", review),
)
