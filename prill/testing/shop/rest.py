"""The few calls of Magento's interface that WebArena's graders make: a token, orders, reviews. Answers are JSON."""

from __future__ import annotations

import json
import re

from prill.testing.shop.pages import Answer, Ask, Refused, Route
from prill.testing.shop.store import Order

_CRITERION = re.compile(r"searchCriteria\[(?:filter_groups|filterGroups)\]\[(\d+)\]\[filters\]\[(\d+)\]\[(\w+)\]")


def token(ask: Ask) -> Answer:
    """A token for an administrator's name and password; they come as JSON."""
    made = ask.store.sign_in("shopping_admin", ask.form.get("username", ""), ask.form.get("password", ""))
    return _json({"message": "The account sign-in was incorrect."}, 401) if made is None else _json(made)


def orders(ask: Ask) -> Answer:
    """Orders that pass the filters (`eq` and `like` on customer_email, status and increment_id), sorted and cut."""
    filters: dict[tuple[str, str], dict[str, str]] = {}
    for key, value in ask.query.items():
        if found := _CRITERION.fullmatch(key):
            filters.setdefault((found[1], found[2]), {})[found[3]] = value
    items = [_order(ask, it) for it in ask.store.orders]
    for each in filters.values():
        wanted = each.get("value", "").replace("%", "")
        if each.get("condition_type") == "like":
            items = [item for item in items if wanted in str(item.get(each.get("field", "")))]
        else:
            items = [item for item in items if str(item.get(each.get("field", ""))) == wanted]
    sort = "searchCriteria[sortOrders][0]"
    if (by := ask.query.get(f"{sort}[field]", "")) in ("created_at", "increment_id"):
        items.sort(key=lambda item: str(item[by]), reverse=ask.query.get(f"{sort}[direction]", "DESC").upper() == "DESC")
    size = ask.query.get("searchCriteria[pageSize]", "")
    return _json({"items": items[: int(size)] if size.isdecimal() else items, "total_count": len(items)})


def reviews(ask: Ask) -> Answer:
    """The reviews of a product, the newest last."""
    it = ask.store.products.get(ask.parts["sku"])
    if it is None:
        raise Refused(404, "The product that was requested doesn't exist.")
    return _json(
        [
            {
                "id": number,
                "title": review.title,
                "detail": review.text,
                "nickname": review.author,
                "ratings": [{"rating_name": "Rating", "percent": review.rating * 20, "value": review.rating}],
                "created_at": review.date,
            }
            for number, review in enumerate(it.reviews, 1)
        ]
    )


def _order(ask: Ask, it: Order) -> dict[str, object]:
    return {
        "increment_id": it.label,
        "customer_email": it.email,
        "created_at": it.date,
        "status": it.status.lower(),
        "grand_total": it.total / 100,
        "items": [
            {"sku": sku, "name": ask.store.products[sku].name, "qty_ordered": quantity, "price": price / 100}
            for sku, quantity, price in it.lines
        ],
    }


def _json(value: object, status: int = 200) -> Answer:
    return Answer(json.dumps(value), status, kind="application/json")


ROUTES = tuple(
    Route(method, f"/rest{store}/V1{path}", handler, private=private)
    for store in ("", "/default")
    for method, path, handler, private in (
        ("POST", "/integration/admin/token", token, False),
        ("GET", "/orders", orders, True),
        ("GET", "/products/{sku}/reviews", reviews, True),
    )
)
