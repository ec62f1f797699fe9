"""The shop's administration pages: orders, customers, products, reports."""

from __future__ import annotations

from collections import Counter

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
    whole_number,
)
from prill.emulators.shop.store import Product, ShopOrder

_MENU = (
    ("Dashboard", "/admin/dashboard"),
    ("Orders", "/admin/sales/order/"),
    ("Customers", "/admin/customer/index/"),
    ("Products", "/admin/catalog/product/"),
    ("Bestsellers", "/admin/reports/report_sales/bestsellers/"),
    ("Order Report", "/admin/reports/report_sales/sales/"),
    ("Sign Out", "/admin/auth/logout/"),
)
_STATUSES = ("Pending", "Processing", "Complete", "Canceled")
_OPEN = ("Pending", "Processing")


SIGN_IN = SignIn(
    site="shopping_admin",
    path="/admin",
    leave_path="/admin/auth/logout",
    home="/admin/dashboard",
    left="/admin",
    page=lambda request, title, body: site_page("shopping_admin", title, (), body),
    title="Welcome, please sign in",
    button="Sign in",
    wrong="The account sign-in was incorrect or your account is disabled temporarily.",
    user="login[username]",
    password="login[password]",
    look={"hints": ("user name", "password")},
    is_skipped=True,
)


def _dashboard(request: ShopRequest) -> Response:
    sold = [o for o in request.store.orders if o.status != "Canceled"]
    last = sorted(request.store.orders, key=lambda o: o.date, reverse=True)[:5]
    sales = sum(o.total for o in sold)
    return _page("Dashboard", "dashboard", sales, last, _names(request))


def _orders(request: ShopRequest) -> Response:
    status, query = request.query.get("status", ""), request.query.get("q", "").strip().lower()
    names = _names(request)
    matches = [
        o
        for o in request.store.orders
        if (not status or o.status == status)
        and (not query or query in f"{o.label} {o.email} {names[o.email]}".lower())
    ]
    sought = request.query.get("q", "")
    return _page("Orders", "orders", matches, names, _STATUSES, status, sought)


def _show_order(request: ShopRequest) -> Response:
    order = _order(request)
    name, is_open = _names(request)[order.email], order.status in _OPEN
    return _page(f"Order # {order.label}", "order", order, name, request.store.products, is_open)


def _change_order(request: ShopRequest) -> Response:
    """Ships or cancels an order; cancelled products return to the stock."""
    order, change = _order(request), request.parts["change"]
    if order.status not in _OPEN or change not in ("ship", "cancel"):
        raise PageError(400, "This order cannot be changed any more.")
    order.status = "Complete" if change == "ship" else "Canceled"
    if change == "cancel":
        for sku, quantity, _ in order.lines:
            request.store.products[sku].stock += quantity
    return redirect(f"/admin/sales/order/view/order_id/{order.number}/")


def _customers(request: ShopRequest) -> Response:
    bought = Counter(o.email for o in request.store.orders)
    return _page("Customers", "customers", request.store.customers.values(), bought)


def _products(request: ShopRequest) -> Response:
    return _page("Products", "products", request.store.products.values())


def _show_product(request: ShopRequest) -> Response:
    product = _product(request)
    message = "You saved the product." if "said" in request.query else ""
    return _page(product.name, "product", product, message=message)


def _save_product(request: ShopRequest) -> Response:
    product = _product(request)
    name = request.form.get("product[name]", "").strip()
    try:
        price = round(float(request.form.get("product[price]", "").strip().removeprefix("$")) * 100)
    except (ValueError, OverflowError):
        price = -1
    if not name or not 0 <= price <= 10_000_000:
        raise PageError(400, "A product needs a name, and a price such as 12.50.")
    stock = whole_number(request.form.get("product[quantity]", ""), "The quantity", 0, 1_000_000)
    product.name, product.price, product.stock = name, price, stock
    return redirect(f"/admin/catalog/product/edit/id/{product.id}/?said=1")


def _bestsellers(request: ShopRequest) -> Response:
    """Shows the units sold by product within a period."""
    counts: Counter[str] = Counter()
    for order in _between(request):
        for sku, quantity, _ in order.lines:
            counts[sku] += quantity
    ranked = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    sold = [(request.store.products[sku], count) for sku, count in ranked]
    return _page("Bestsellers Report", "bestsellers", request, sold)


def _sales(request: ShopRequest) -> Response:
    months: dict[str, list[ShopOrder]] = {}
    for order in _between(request):
        months.setdefault(order.date[:7], []).append(order)
    return _page("Order Report", "sales", request, sorted(months.items()))


def _page(title: str, part: str, *values: object, message: str = "") -> Response:
    body = draw("admin.html", part, *values)
    return site_page("shopping_admin", title, _MENU, body, message=message)


def _between(request: ShopRequest) -> list[ShopOrder]:
    first, last = request.query.get("from") or "0000", request.query.get("to") or "9999"
    return [
        o for o in request.store.orders if o.status != "Canceled" and first <= o.date[:10] <= last
    ]


def _names(request: ShopRequest) -> dict[str, str]:
    """Returns the customers' names by email address."""
    return {email: customer.name for email, customer in request.store.customers.items()}


def _order(request: ShopRequest) -> ShopOrder:
    number = request.parts["number"]
    return find(request.store.orders, lambda order: str(order.number) == number, "order")


def _product(request: ShopRequest) -> Product:
    products = request.store.products.values()
    return find(products, lambda product: str(product.id) == request.parts["id"], "product")


ROUTES = (
    *SIGN_IN.routes,
    Route("GET", "/admin/dashboard", _dashboard, private=True),
    Route("GET", "/admin/sales/order", _orders, private=True),
    Route("GET", "/admin/sales/order/view/order_id/{number}", _show_order, private=True),
    Route(
        "POST", "/admin/sales/order/view/order_id/{number}/{change}", _change_order, private=True
    ),
    Route("GET", "/admin/customer/index", _customers, private=True),
    Route("GET", "/admin/catalog/product", _products, private=True),
    Route("GET", "/admin/catalog/product/edit/id/{id}", _show_product, private=True),
    Route("POST", "/admin/catalog/product/edit/id/{id}", _save_product, private=True),
    Route("GET", "/admin/reports/report_sales/bestsellers", _bestsellers, private=True),
    Route("GET", "/admin/reports/report_sales/sales", _sales, private=True),
)
