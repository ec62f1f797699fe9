"""The shop's public pages: categories, search, products, reviews, contact form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from prill.emulators.shop.pages import (
    PageError,
    Response,
    Route,
    ShopRequest,
    draw,
    find,
    redirect,
    shop_page,
    whole_number,
)
from prill.emulators.shop.store import Product, Review

# The orders of a list: the names in the menu, and the sort keys.
_ORDERS: dict[str, tuple[str, Callable[[Product], Any]]] = {
    "position": ("Position", lambda product: 0),
    "name": ("Name", lambda product: product.name),
    "price": ("Price", lambda product: product.price),
    "rating": ("Rating", lambda product: -product.rating),
}


def _home(request: ShopRequest) -> Response:
    first = list(request.store.products.values())[:10]
    return shop_page(
        request, "One shop for desks and kitchens", draw("catalog.html", "cards", first)
    )


def _category(request: ShopRequest) -> Response:
    """Lists the products of a category in the requested order."""
    name = "/".join(request.parts.values())
    products = [
        p for p in request.store.products.values() if f"{p.category}/".startswith(f"{name}/")
    ]
    if not products:
        return _show_product(request)
    below = sorted(
        {p.category for p in request.store.products.values() if p.category.startswith(f"{name}/")}
    )
    narrow = [(each, _title(each)) for each in below]
    return shop_page(request, _title(name), _listing(request, products, f"/{name}.html", narrow))


def _search(request: ShopRequest) -> Response:
    """Lists the products whose name or description contains every word."""
    words = request.query.get("q", "").lower().split()
    hits = [
        p
        for p in request.store.products.values()
        if words and all(w in f"{p.name} {p.text} {p.sku}".lower() for w in words)
    ]
    title = f"Search results for: '{request.query.get('q', '')}'"
    if not hits:
        return shop_page(request, title, draw("catalog.html", "nothing"))
    return shop_page(request, title, _listing(request, hits, "/catalogsearch/result/"))


def _show_product(request: ShopRequest) -> Response:
    product = _product(request)
    note = "You submitted your review." if request.query.get("said") == "review" else ""
    body = draw("catalog.html", "product", product)
    return shop_page(request, product.name, body, message=note)


def _review(request: ShopRequest) -> Response:
    product = _product(request)
    texts = {name: request.form.get(name, "").strip() for name in ("nickname", "title", "detail")}
    if not all(texts.values()):
        raise PageError(400, "A review needs a nickname, a summary and a text.")
    rating = whole_number(request.form.get("rating", ""), "The rating", 1, 5)
    product.reviews.append(
        Review(texts["nickname"], rating, texts["title"], texts["detail"], request.store.now())
    )
    return redirect(f"/{product.slug}.html?said=review")


def _contact(request: ShopRequest) -> Response:
    message = "Thank you. We answer within two days." if "said" in request.query else ""
    return shop_page(request, "Contact Us", draw("catalog.html", "contact"), message=message)


def _message(request: ShopRequest) -> Response:
    if not request.form.get("comment", "").strip():
        raise PageError(400, "The message is empty.")
    request.store.messages.append((request.form.get("email", ""), request.form["comment"]))
    return redirect("/contact/?said=1")


def _product(request: ShopRequest) -> Product:
    products = request.store.products.values()
    return find(products, lambda product: product.slug == request.parts.get("name"), "page")


def _listing(
    request: ShopRequest,
    products: list[Product],
    address: str,
    below: list[tuple[str, str]] | None = None,
) -> str:
    order = request.query.get("product_list_order", "position")
    if order in _ORDERS:
        products = sorted(products, key=_ORDERS[order][1])
    query = {"q": request.query["q"]} if "q" in request.query else {}
    orders = [
        (name, f"{address}?{urlencode(query | {'product_list_order': order})}")
        for order, (name, _) in _ORDERS.items()
    ]
    return draw("catalog.html", "listing", products, orders, below or ())


def _title(name: str) -> str:
    return name.rpartition("/")[2].replace("-", " ").title()


ROUTES = (
    Route("GET", "/", _home),
    Route("GET", "/catalogsearch/result", _search),
    Route("GET", "/contact", _contact),
    Route("POST", "/contact", _message),
    Route("GET", "/{name}.html", _category),
    Route("GET", "/{top}/{below}.html", _category),
    Route("POST", "/review/{name}", _review),
)
