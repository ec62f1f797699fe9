"""The subset of Magento's REST API that WebArena's graders use: token, orders, reviews."""

from __future__ import annotations

import json
import re

from prill.emulators.shop.pages import PageError, Response, Route, ShopRequest
from prill.emulators.shop.store import ShopOrder

_CRITERION = re.compile(
    r"searchCriteria\[(?:filter_groups|filterGroups)\]\[(\d+)\]\[filters\]\[(\d+)\]\[(\w+)\]"
)


def token(request: ShopRequest) -> Response:
    """Returns a token for an administrator's name and password, sent as JSON."""
    session = request.store.sign_in(
        "shopping_admin", request.form.get("username", ""), request.form.get("password", "")
    )
    return (
        _json({"message": "The account sign-in was incorrect."}, 401)
        if session is None
        else _json(session)
    )


def orders(request: ShopRequest) -> Response:
    """Returns the orders that match the filters (`eq` and `like` on customer_email, status and
    increment_id), sorted and limited.
    """
    filters: dict[tuple[str, str], dict[str, str]] = {}
    for key, value in request.query.items():
        if criterion := _CRITERION.fullmatch(key):
            filters.setdefault((criterion[1], criterion[2]), {})[criterion[3]] = value
    items = [_order(request, order) for order in request.store.orders]
    for each in filters.values():
        text = each.get("value", "").replace("%", "")
        if each.get("condition_type") == "like":
            items = [item for item in items if text in str(item.get(each.get("field", "")))]
        else:
            items = [item for item in items if str(item.get(each.get("field", ""))) == text]
    sort = "searchCriteria[sortOrders][0]"
    if (by := request.query.get(f"{sort}[field]", "")) in ("created_at", "increment_id"):
        items.sort(
            key=lambda item: str(item[by]),
            reverse=request.query.get(f"{sort}[direction]", "DESC").upper() == "DESC",
        )
    size = request.query.get("searchCriteria[pageSize]", "")
    return _json(
        {"items": items[: int(size)] if size.isdecimal() else items, "total_count": len(items)}
    )


def reviews(request: ShopRequest) -> Response:
    """Returns the reviews of a product, newest last."""
    product = request.store.products.get(request.parts["sku"])
    if product is None:
        raise PageError(404, "The product that was requested doesn't exist.")
    return _json(
        [
            {
                "id": number,
                "title": review.title,
                "detail": review.text,
                "nickname": review.author,
                "ratings": [
                    {"rating_name": "Rating", "percent": review.rating * 20, "value": review.rating}
                ],
                "created_at": review.date,
            }
            for number, review in enumerate(product.reviews, 1)
        ]
    )


def _order(request: ShopRequest, order: ShopOrder) -> dict[str, object]:
    return {
        "increment_id": order.label,
        "customer_email": order.email,
        "created_at": order.date,
        "status": order.status.lower(),
        "grand_total": order.total / 100,
        "items": [
            {
                "sku": sku,
                "name": request.store.products[sku].name,
                "qty_ordered": quantity,
                "price": price / 100,
            }
            for sku, quantity, price in order.lines
        ],
    }


def _json(value: object, status: int = 200) -> Response:
    return Response(json.dumps(value), status, kind="application/json")


ROUTES = tuple(
    Route(method, f"/rest{store}/V1{path}", handler, private=private)
    for store in ("", "/default")
    for method, path, handler, private in (
        ("POST", "/integration/admin/token", token, False),
        ("GET", "/orders", orders, True),
        ("GET", "/products/{sku}/reviews", reviews, True),
    )
)
